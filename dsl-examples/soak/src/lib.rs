//! The soak: example structures in the simulator, over thousands of seeds, against sequential models; and in real processes that are killed
//! or whose memory is corrupted.
//!
//! | module | contents | look here to |
//! |---|---|---|
//! | [`model`] | sequential models of a set, a map, a stack, a queue and a register | add a kind of structure |
//! | [`subject`] | the structures that are soaked, and their workloads | soak another structure |
//! | [`map`] | the map as a subject: its workload, and its keys and values | |
//! | [`kv`] | the key-value engine, which processes open one after the other, and die | |
//! | [`planted`] | planted bugs of structures | plant a bug in a structure |
//! | [`mutants`] | the mutants that the build script makes of them | |
//! | [`planted_runtime`] | planted bugs of the runtime, and programs that detect them | plant a bug in the runtime |
//! | [`trustees`] | a program of clients and trustees that die | check another promise of delegation |
//! | [`register`] | a structure for tests of `Versioned`, which no example uses | |
//! | [`soak`] | runs of seeds | |
//! | [`structures`] | the structures that real processes share | add a structure to the crash test |
//! | [`crash`] | the crash test: processes that are killed, their logs, and the judge | check another property after crashes |
//! | [`corrupt`] | the corruption test: processes whose far memory is corrupted | corrupt other words |
//!
//! `farfield-testing` executes and judges runs, as in any user's tests. The program `soak` drives it: `soak --seeds 0..10000` must find no
//! failure, and `soak --planted` every planted bug. The tests of this crate are a short soak; the long one is `cargo xtask sim-soak`.

pub use farfield_testing::Check;

pub mod corrupt;
pub mod crash;
pub mod kv;
pub mod map;
pub mod model;
pub mod mutants;
pub mod planted;
pub mod planted_runtime;
pub mod register;
pub mod soak;
pub mod structures;
pub mod subject;
pub mod trustees;
