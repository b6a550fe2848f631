//! Farfield's simulator: far memory, a network and compute threads in virtual time, all in one OS thread.
//!
//! A run is a function of its program and a seed, so a failing run can be repeated. The simulator is a fabric: a thread's [`Sim`] is an
//! [`Endpoint`](farfield_fabric::Endpoint). It also executes the threads of a run ([`simulate`]), injects faults ([`Fault`]), checks accesses to
//! objects, and detects runs that do not end.
//!
//! | module or item | contents | look here to |
//! |---|---|---|
//! | `engine`: [`World`], [`Sim`] | time, threads, NICs, memory nodes, chains in flight, faults, and the loop that polls threads | change the model |
//! | `books`: [`ObjectType`] | objects and their lives, the trace and its hash, the first finding | check or report more |
//! | `config`: [`SimConfig`] | the options of a `sim:` URL | add an option |
//! | [`Meaning`] | the names of words outside objects, implemented by the layer above | name a new control word in traces |
//! | [`Plant`] | planted bugs of the layer above, for checkers to find | plant a bug |
//! | [`Work`] | the cost of a thread's own work in virtual time | change what computing costs |
//! | [`History`] | invocations and returns of operations, for linearizability checkers | record more of a run |

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
