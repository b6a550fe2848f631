//! Sequential models of the structures.
//!
//! | module | contents |
//! |---|---|
//! | [`set`] | a set of keys |
//! | [`map`] | a map from keys to values, and an ordered one |
//! | [`exchange`] | a stack, a queue and a bounded queue of values |
//! | [`priority`] | a priority queue |
//! | [`register`] | a register |
//! | [`store`] | a key-value store |

pub mod exchange;
pub mod map;
pub mod priority;
pub mod register;
pub mod set;
pub mod store;
