//! Checks a data structure on Farfield against a sequential model of it, in the simulator, and shrinks what fails.
//!
//! A user writes two things:
//!
//! - a [`Model`]: the structure as one thread sees it (its sequential specification), in a few lines;
//! - a [`Tested`]: how to open the structure, perform an operation, and draw one.
//!
//! A [`Checker`] runs seeds, with faults or without. Each stands for a [`Plan`]: a cluster, its network and faults, and what each client
//! does. A run is judged by everything that can find something wrong with it ([`Check`]): the simulator's findings (memory, leaks, deadlocks
//! and livelocks), errors and panics, and the comparison of its history with the model, for linearizability. The first plan
//! that fails is made as small as it can be ([`shrink`](fn@shrink)), and is printed with its history as a diagram, the answer
//! that contradicts the model, and the command that replays it. Histories that are too hard to decide are counted and shown
//! ([`Undecided`]), and are failures unless [`Checker::most_undecided`] allows for them.
//!
//! ```
//! use farfield::Result;
//! use farfield::prelude::*;
//! use farfield_testing::{Checker, Model, Random, Tested};
//!
//! /// A structure: the highest number that was ever offered.
//! #[remote]
//! struct Highest {
//!     number: Atomic<u64>,
//! }
//!
//! #[derive(Clone, Debug, PartialEq)]
//! struct Offer(u64);
//!
//! struct Auction;
//!
//! impl Model for Auction {
//!     type Operation = Offer;
//!     /// The highest before.
//!     type Returned = u64;
//!     type State = u64;
//!
//!     fn step(highest: &mut u64, offer: &Offer) -> u64 {
//!         std::mem::replace(highest, offer.0.max(*highest))
//!     }
//! }
//!
//! impl Tested for Auction {
//!     type Model = Self;
//!     type Structure = Highest;
//!
//!     async fn open(ct: &ComputeThread) -> Result<Highest> {
//!         let new = async || Highest::new_in(ct, Highest::init()).await?.write(ct).await;
//!         Highest::attach(ct.root_or_init("auction", new).await?, ct).await
//!     }
//!
//!     async fn perform(highest: &Highest, offer: &Offer, ct: &ComputeThread) -> Result<u64> {
//!         highest.number().fetch_max(ct, offer.0).await
//!     }
//!
//!     fn operation(random: &mut Random) -> Offer {
//!         Offer(random.range(1..5))
//!     }
//! }
//!
//! Checker::new().seeds(0..50).assert_sound::<Auction>();
//! ```
//!
//! The book's chapter "Checking a structure of your own" finds a bug in this way.
//!
//! | module | what it is |
//! |---|---|
//! | `model` | sequential models, and the fates of values |
//! | `linearizability` | whether a model explains a history |
//! | `history`, `search` | a history as calls; the search for an order of them |
//! | `contradiction`, `timeline` | why it does not, in words and as a diagram |
//! | `plan`, `random` | what a run does, and how it is drawn from a seed |
//! | `strategy` (feature `proptest`) | plans that `proptest` generates and shrinks |
//! | `tested`, `run` | a structure's life under a plan, and what is wrong with it |
//! | `shrink` | from a plan that fails to a small one |
//! | `checker` | many seeds, in parallel, and the report |
//!
//! # Cost
//!
//! A run of a drawn plan takes some 200 us in an optimised build and a millisecond in others; shrinking takes at most
//! [`MOST_RUNS`] runs. A search takes at most [`SEARCH_LIMIT`] steps for each part of a history, which is well under a second.
//!
//! # Features
//!
//! `proptest`: the module `strategy`. The major version of `proptest` is then part of this crate's interface.

mod checker;
mod contradiction;
mod history;
mod life;
mod linearizability;
mod model;
mod plan;
mod random;
mod run;
mod search;
mod shrink;
#[cfg(feature = "proptest")]
pub mod strategy;
mod tested;
mod timeline;

pub use checker::{Checker, Summary, in_parallel};
pub use contradiction::Contradiction;
pub use linearizability::{SEARCH_LIMIT, Undecided, Verdict, check, check_within};
pub use model::{AT_THE_END, EventOf, Fate, Fates, Model};
pub use plan::{Dead, Faults, Plan, Scripted, Step};
pub use random::Random;
pub use run::{Check, Found, Outcome, run, run_within};
pub use shrink::{MOST_RUNS, SEEDS_TRIED, Shrunk, shrink};
pub use tested::{Meaning, OperationOf, ReturnedOf, Tested};
pub use timeline::timeline;
