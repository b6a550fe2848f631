//! Far memory's life cycle: allocation, retirement, reclamation.
//!
//! | module | what it does |
//! |---|---|
//! | [`heap`] | a thread's blocks: what it allocates from and frees to |
//! | [`classes`] | the sizes that blocks have |
//! | [`block`] | where an object's memory is, and how large |
//! | [`cache`] | a thread's lists of free blocks |
//! | [`pool`] | free blocks that no thread holds, in far memory |
//! | [`grid`] | how a segment is divided into chunks, and what each is for |
//! | [`chunks`] | taking chunks and giving them back |
//! | [`compaction`] | what is tried before memory is said to be out |
//! | [`collect`] | what is left by processes that have died |
//! | [`map`] | what chunks are used for, and which blocks are marked: for both |
//! | [`sweep`] | the same, while others live |
//! | [`sweep_barrier`] | what a process says while another sweeps: which blocks it holds |
//! | [`holdings`] | objects that a thread holds and no root leads to |
//! | [`epoch`] | when a retired object's memory may be used again: the level of one process |
//! | [`global`] | the level of several, in far memory |
//! | [`process`] | what the threads of a process share of memory |
//! | [`eager`] | the simulator's: epochs that advance as soon as the rules allow |
//! | [`local_epoch`] | [`LocalEpoch`](crate::LocalEpoch): the same for boxes, without a cluster |
//! | [`limbo`] | what a thread has retired and not yet freed |
//! | [`guard`] | [`Guard`](crate::Guard): protection for loaded pointers |
//! | [`reclaim`] | retiring an object, and freeing what has expired |
//! | [`registry`] | where objects are, in debug builds: to refuse what is none |
//! | [`site`] | where a new object goes |

pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod candidates;
pub(crate) mod chunks;
pub(crate) mod compaction;
pub(crate) mod eager;
pub(crate) mod global;
pub(crate) mod heap;
pub(crate) mod holdings;
pub(crate) mod map;
pub(crate) mod placement;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod reclaim;
pub(crate) mod registry;
pub(crate) mod sweep_barrier;
pub(crate) mod worker;
