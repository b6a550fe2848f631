//! Live memory that is corrupted: what does it, and what it is done to.
//!
//! | module | what it does |
//! |---|---|
//! | [`memory`] | the memory of a cluster, for programs that are none of its members |
//! | [`hand`] | corrupts words of it, as it is told |
//! | [`choice`] | which word a case corrupts, and what it becomes |
//! | [`program`] | a member that works on all structures, and ends when it is told to, whatever is in far memory |
//!
//! `cargo xtask corrupt` starts both and looks at how all processes fare.

pub mod choice;
pub mod hand;
pub mod memory;
pub mod program;
