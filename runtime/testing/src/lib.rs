//! Checks a concurrent data structure on Farfield against a sequential model, in the simulator, and shrinks failing runs.
//!
//! | module | contents | look here to |
//! |---|---|---|
//! | `model`: [`Model`], [`Fates`] | sequential specifications; when each value is removed | describe your structure |
//! | `tested`: [`Tested`], [`Meaning`] | how the checker opens, uses and destroys a structure | connect your structure |
//! | `checker`: [`Checker`], [`Summary`] | many seeds in parallel, and the report | run a check, or change the report |
//! | `plan`: [`Plan`], [`Step`], [`Scripted`] | the cluster, faults and operations of a run, drawn from a seed | write a plan by hand, or draw other plans |
//! | `random`: [`Random`] | random numbers from a seed | draw operations |
//! | `strategy` (feature `proptest`) | plans that `proptest` generates and shrinks | check with `proptest` |
//! | `run`: [`run`](fn@run), [`execute`], [`Outcome`]; `check`: [`Check`] | executes a plan and judges it | run one plan, or a program of your own on a plan, or add a check |
//! | `linearizability`: [`check`](fn@check), [`Verdict`] | decides whether a model explains a history | check a recorded history |
//! | `search`, `history` | the search for a linearization; histories as calls | make the search faster |
//! | `contradiction`: [`Contradiction`]; `timeline`: [`timeline`](fn@timeline) | why no linearization exists, in words and as a diagram | change how a failure is shown |
//! | `shrink`: [`shrink`](fn@shrink), [`Shrunk`] | from a failing plan to a small one | add a simplification |
//! | `erased` | [`Tested`] without its type | |
//!
//! # Use
//!
//! A user writes two things:
//!
//! - a [`Model`]: the structure's sequential specification, in a few lines;
//! - a [`Tested`]: how to open the structure, perform an operation, and draw a random one.
//!
//! A [`Checker`] runs seeds, with or without faults. Each seed determines a [`Plan`]: a cluster, its network and faults, and the operations
//! of each client. Each run is judged by several checks ([`Check`]): the simulator's findings (memory errors, leaks, deadlocks, livelocks),
//! errors and panics, and linearizability of the history with respect to the model. The first failing plan is shrunk
//! ([`shrink`](fn@shrink)). The report shows the shrunk plan, its history as a diagram, the result that contradicts the model, and the
//! command that replays it. Histories too hard to decide are counted and shown ([`Undecided`]). They are failures unless
//! [`Checker::most_undecided`] allows them.
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
//! # Cost
//!
//! In an optimised build, a run of a drawn plan takes some 200 us; in others, a millisecond. Shrinking takes at most [`MOST_RUNS`] runs. A
//! search takes at most [`SEARCH_LIMIT`] steps for each part of a history, which is well under a second.
//!
//! # Features
//!
//! `proptest`: the module `strategy`. The major version of `proptest` is then part of this crate's interface.

mod check;
mod checker;
mod contradiction;
mod erased;
mod history;
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

pub use check::{Check, Found};
pub use checker::{Checker, Summary, in_parallel};
pub use contradiction::Contradiction;
pub use linearizability::{SEARCH_LIMIT, Undecided, Verdict, check, check_within};
pub use model::{AT_THE_END, Components, EventOf, Fate, Fates, Model};
pub use plan::{Dead, Faults, Plan, Scripted, Step};
pub use random::Random;
pub use run::{Outcome, execute, judge, run, run_within};
pub use shrink::{MOST_RUNS, SEEDS_TRIED, Shrunk, shrink};
pub use tested::{Meaning, OperationOf, ReturnedOf, Tested};
pub use timeline::timeline;
