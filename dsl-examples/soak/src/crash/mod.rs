//! The crash test: processes are killed, and the structures, the memory and the logs are checked.
//!
//! | module | contents |
//! |---|---|
//! | [`log`] | the operations of a process, in a file that survives it |
//! | [`tally`] | counters that are delegated: whether each request was executed as its answer says |
//! | [`work`] | a process that operates on all [structures](crate::structures) until it is stopped or killed |
//! | [`judge`] | checks the structures, the memory and all logs |
//! | [`set`] | decides whether the operations on a key of a set or a map are linearizable |
//! | [`sequence`] | for a stack or a queue: no value is lost, duplicated or out of order |
//! | [`register`] | decides whether the operations on a record are linearizable |
//!
//! `cargo xtask crash-test` starts and kills the processes.

pub mod judge;
pub mod log;
pub mod register;
pub mod sequence;
pub mod set;
pub mod tally;
pub mod work;
