//! Sequential models of the structures.
//!
//! | module | contents |
//! |---|---|
//! | [`set`] | a set of keys |
//! | [`map`] | a map from keys to values |
//! | [`exchange`] | a stack, a queue and a bounded queue of values |
//! | [`register`] | a register |

pub mod exchange;
pub mod map;
pub mod register;
pub mod set;
