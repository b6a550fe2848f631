//! Far memory's life cycle: allocation, retirement, reclamation.
//!
//! | module | contents |
//! |---|---|
//! | [`worker`] | a compute thread without its run |
//! | [`process`] | the memory that the threads of a process share |
//! | [`member`] | a process's membership in a cluster of several |
//! | [`placement`] | the memory node of a new object |
//! | [`heap`] | a thread's free blocks, and freeing |
//! | [`allocation`] | allocating, and the order in which memory is searched |
//! | [`block`] | from an object's address to its block |
//! | [`cache`] | a thread's lists of free blocks |
//! | [`pool`] | free blocks in far memory that no thread holds |
//! | [`chunks`] | taking and returning chunks |
//! | [`known`] | the uses of chunks that a process knows |
//! | [`compaction`] | attempts to free memory before an allocation fails |
//! | [`usage`] | how many bytes are live, cached and free |
//! | [`far`] | long reads and writes; blocks for the library's own data |
//! | [`reclaim`] | retiring an object, and freeing expired ones |
//! | [`global`] | the epoch of several processes, in far memory |
//! | [`eager`] | the simulator's epochs, which advance as soon as the rules allow |
//! | [`map`] | the uses of all chunks, and marks of blocks: for collections and sweeps |
//! | [`candidates`] | the blocks that a sweep may find lost |
//! | [`sweep_barrier`] | the vetoes of a process during a sweep: the blocks that it holds |
//! | [`image`] | the words of objects before they are in far memory |
//! | [`holdings`] | a thread's objects that may not be reachable from any root |
//! | [`registry`] | addresses of live objects, in debug builds: for the refusal of invalid pointers |

pub(crate) mod allocation;
pub(crate) mod block;
pub(crate) mod cache;
pub(crate) mod candidates;
pub(crate) mod chunks;
pub(crate) mod compaction;
pub(crate) mod eager;
pub(crate) mod far;
pub(crate) mod global;
pub(crate) mod heap;
pub(crate) mod holdings;
pub(crate) mod image;
pub(crate) mod known;
pub(crate) mod map;
pub(crate) mod member;
pub(crate) mod placement;
pub(crate) mod pool;
pub(crate) mod process;
pub(crate) mod reclaim;
pub(crate) mod registry;
pub(crate) mod sweep_barrier;
pub(crate) mod usage;
pub(crate) mod worker;

#[cfg(test)]
mod tests;
