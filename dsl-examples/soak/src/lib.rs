//! Soaking: the example structures under the simulator, over thousands of seeds, against sequential models; and in real processes
//! that are killed.
//!
//! | module | what it is |
//! |---|---|
//! | [`model`] | a set, a stack and a queue as one thread sees them, and whether a history agrees with one |
//! | [`planted`] | the table of bugs that must be found |
//! | [`planted_runtime`] | the runtime's own planted bugs, and the programs that find them |
//! | [`mutants`] | the copies of the structures that have them |
//! | [`register`] | a subject for what the examples do not use |
//! | [`subject`] | what is soaked: a structure, or a copy of one with a planted bug |
//! | [`plan`] | what a seed stands for: a cluster and a workload |
//! | [`soak`] | one seed's run, and what is wrong with it |
//! | [`crash`] | real processes that are killed, and what they leave behind |
//!
//! The program `soak` drives them: `soak --seeds 0..10000` must find nothing, `soak --planted` every bug. The tests of
//! this crate are a short soak; the long one is `cargo xtask sim-soak`.

pub mod crash;
pub mod model;
pub mod mutants;
pub mod plan;
pub mod planted;
pub mod planted_runtime;
pub mod register;
pub mod soak;
pub mod subject;
