//! Testing with the simulator: observing a simulated cluster, and injecting faults.
//!
//! `Cluster::connect("sim:seed=7")` returns a cluster whose network, threads and clock are simulated; [`Cluster::connect`](crate::Cluster::connect)
//! lists its options. It supports all operations of a cluster, and in addition:
//!
//! - [`Simulation`]: the virtual clock, the trace and its hash;
//! - [`Fault`]: a fault at a certain time or operation;
//! - [`Work`]: the cost of a thread's own computation, which the simulator can not measure;
//! - [`History`]: the operations and results of clients, for a checker of linearizability;
//! - `#[farfield::test(sim, seeds = 0..1000)]`: a test that runs under many seeds, each with its own number of threads in a process.
//!
//! The simulator itself is the crate `farfield-sim`. A fault:
//!
//! ```
//! use farfield::prelude::*;
//! use farfield::sim::Fault;
//!
//! # fn main() -> farfield::Result<()> {
//! let cluster = Cluster::connect("sim:seed=1")?;
//! let simulation = cluster.simulation().expect("it is a simulated cluster");
//! // Thread 1 dies at its third chain.
//! simulation.inject(Fault::crash(1).after_chains(2));
//! let survivors = cluster.run_surviving(2, async |ct| {
//!     // The survivor gets an error, since thread 1 can not arrive.
//!     assert!(ct.barrier("all").await.is_err());
//!     Ok(ct.index())
//! })?;
//! assert_eq!(survivors, [Some(0), None]);
//! # Ok(())
//! # }
//! ```
//!
//! A history of operations:
//!
//! ```
//! use farfield::prelude::*;
//! use farfield::sim::{Happened, History};
//!
//! #[remote]
//! struct Register {
//!     value: Atomic<u64>,
//! }
//!
//! # fn main() -> farfield::Result<()> {
//! let history = History::new();
//! Cluster::connect("sim:seed=1")?.run(2, async |ct| {
//!     let root = ct.root_or_init("register", async || {
//!         Register::new_in(ct, Register::init()).await?.write(ct).await
//!     }).await?;
//!     history.record(ct, "add", async || root.value().fetch_add(ct, 1).await).await?;
//!     Ok(())
//! })?;
//! let returned = history.into_events().into_iter().filter_map(|event| match event.happened {
//!     Happened::Returned(earlier) => Some(earlier),
//!     Happened::Invoked(_) => None,
//! });
//! assert!(returned.eq([0, 1]));
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

pub use farfield_sim::{Client, Clocked, Event, Fault, Finding, Happened, History, Simulation, Work};

use crate::ComputeThread;

impl Clocked for ComputeThread {
    fn client(&self) -> Client {
        Client { thread: self.index(), task: self.task() }
    }

    fn now(&self) -> Duration {
        ComputeThread::now(self)
    }
}
