//! Data structures over far memory, as a user of Farfield writes them.
//!
//! | structure | description | after |
//! |---|---|---|
//! | [`LazyList`] | ordered set; `get` takes no lock, updates lock two nodes | Heller et al., 2005 |
//! | [`LazyListNaive`] | the same with a round trip for each step, for comparison | |
//! | [`HarrisList`] | ordered set without locks | Harris, 2001; Michael, 2002 |
//! | [`HashSet`] | hash set of lazy lists, on all memory nodes | |
//! | [`TreiberStack`] | stack without locks | Treiber, 1986 |
//! | [`MsQueue`] | queue without locks | Michael and Scott, 1996 |
//! | [`Counter`] | a number | |
//! | [`delegated_counter`] | a number that one thread adds to on behalf of others, and its peers | Ahmad et al., 2024 |
//! | [`bank`] | accounts that belong to several threads, and transfers between them | |
//! | [`job_board`] | jobs that belong to one thread, for processes of several builds | |
//!
//! Each module's page has the paper, the invariants, and a table of the operations: their round trips, and where each takes
//! effect. The program `intset` measures the sets and verifies their contents; `hello` is a minimal program.

pub mod bank;
pub mod counter;
pub mod delegated_counter;
pub mod harris_list;
pub mod hash_set;
pub mod int_set;
pub mod job_board;
pub mod lazy_list;
pub mod lazy_list_naive;
pub mod ms_queue;
pub mod program;
pub mod treiber_stack;
pub mod zipf;

pub use counter::Counter;
pub use harris_list::HarrisList;
pub use hash_set::HashSet;
pub use int_set::IntSet;
pub use lazy_list::LazyList;
pub use lazy_list_naive::LazyListNaive;
pub use ms_queue::MsQueue;
pub use treiber_stack::TreiberStack;
