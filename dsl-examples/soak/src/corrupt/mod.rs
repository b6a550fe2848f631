//! The corruption test: processes whose far memory is corrupted while they work.
//!
//! | module | contents |
//! |---|---|
//! | [`memory`] | the memory of a cluster, for programs that are no members |
//! | [`injector`] | corrupts words, by command |
//! | [`cases`] | which word a case corrupts, and its new value |
//! | [`worker`] | a member that operates on all structures, and stops on command even if far memory is corrupt |
//!
//! `cargo xtask corrupt` starts both and checks how all processes end.

pub mod cases;
pub mod injector;
pub mod memory;
pub mod worker;
