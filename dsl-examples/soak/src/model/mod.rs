//! Models: what the structures do when one thread uses them.
//!
//! | module | what it is |
//! |---|---|
//! | [`set`] | a set of keys |
//! | [`exchange`] | a stack and a queue of values |
//! | [`register`] | a value that is read and replaced |

pub mod exchange;
pub mod register;
pub mod set;
