//! Farfield's simulator: far memory, a network and compute threads in virtual time, all in one OS thread.
//!
//! A run is a function of its program and a seed, so that a run that fails fails again. The simulator is a fabric: a thread's [`Sim`] is an
//! [`Endpoint`](farfield_fabric::Endpoint). Beyond that it executes the threads of a run ([`simulate`]), lets things go wrong
//! ([`Fault`]), judges accesses to objects, and recognises runs that do not end.
//!
//! | module or item | what it has | look here to |
//! |---|---|---|
//! | `engine`: [`World`], [`Sim`] | time, threads, NICs, memory nodes, chains in flight, faults, and the loop that polls threads | change the model |
//! | `books`: [`ObjectType`] | objects and their lives, the trace and its hash, what was found wrong | judge or report more |
//! | `config`: [`SimConfig`] | the options of a `sim:` URL | add an option |
//! | [`Meaning`] | what words outside objects mean: the layer above gives it | |
//! | [`Plant`] | planted bugs of the layer above, for checkers to find | plant a bug |
//! | [`Work`] | what a program computes, which the simulator can not see | |
//! | [`History`] | operations as their clients saw them | |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod books;
mod config;
mod engine;
mod fault;
mod history;
mod meaning;
mod plant;
#[cfg(test)]
mod tests;
mod work;

pub use books::allocations::ObjectType;
pub use books::trace::NO_THREAD;
pub use config::{Reclaim, Reuse, SimConfig};
pub use engine::{
    Body, KEEPER_TASK, LoopId, LoopKind, PAUSE, SharedWorld, Sim, Simulation, ThreadFuture, ThreadOutcome,
    Watch, World, simulate,
};
pub use farfield_fabric::error::Finding;
pub use fault::Fault;
pub use history::{Client, Clocked, Event, Happened, History};
pub use meaning::{Meaning, NoMeaning};
pub use plant::Plant;
pub use work::Work;
