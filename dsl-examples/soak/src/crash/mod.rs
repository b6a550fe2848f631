//! Real processes that are killed: what each does, what it leaves behind, and whether that is right.
//!
//! | module | what it does |
//! |---|---|
//! | [`log`] | what a process did, in a file that survives it |
//! | [`work`] | a process that works on all [structures](crate::stage) until it is told to stop, or killed |
//! | [`judge`] | looks at what is left: the structures, the memory, and all logs |
//! | [`order`] | whether the operations on a key of a set can have happened one after the other |
//! | [`sequence`] | the same of a stack or a queue: no value is lost or doubled, or out of order |
//! | [`register`] | the same of a record |
//!
//! Whoever starts and kills the processes is `cargo xtask crash-test`.

pub mod judge;
pub mod log;
pub mod order;
pub mod register;
pub mod sequence;
pub mod work;
