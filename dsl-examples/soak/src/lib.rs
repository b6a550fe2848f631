//! Soaking: the example structures under the simulator, over thousands of seeds, against sequential models; and in real processes
//! that are killed.
//!
//! | module | what it is |
//! |---|---|
//! | [`model`] | a set, a stack, a queue and a register as one thread sees them |
//! | [`planted`] | the table of bugs that must be found |
//! | [`planted_runtime`] | the runtime's own planted bugs, and the programs that find them |
//! | [`mutants`] | the copies of the structures that have them |
//! | [`register`] | a subject for what the examples do not use |
//! | [`subject`] | what is soaked: a structure, or a copy of one with a planted bug |
//! | [`soak`] | seeds of a tested structure, and what is wrong with them |
//! | [`stage`] | what real processes work on |
//! | [`crash`] | real processes that are killed, and what they leave behind |
//! | [`corrupt`] | real processes whose far memory is corrupted under them |
//!
//! Plans, runs and the comparison with a model are those of `farfield-testing`, as in any user's tests. The program `soak` drives them: `soak --seeds 0..10000` must find nothing, `soak --planted` every bug. The tests of
//! this crate are a short soak; the long one is `cargo xtask sim-soak`.

pub mod corrupt;
pub mod crash;
pub mod model;
pub mod mutants;
pub mod planted;
pub mod planted_runtime;
pub mod register;
pub mod soak;
pub mod stage;
pub mod subject;
