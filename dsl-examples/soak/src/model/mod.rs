//! Sequential models of the structures.
//!
//! | module | contents |
//! |---|---|
//! | [`set`] | a set of keys |
//! | [`exchange`] | a stack and a queue of values |
//! | [`register`] | a register |

pub mod exchange;
pub mod register;
pub mod set;
