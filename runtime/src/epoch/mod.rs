//! Epochs: the time at which the memory of a retired object may be reused.
//!
//! Epoch-based reclamation after Fraser ("Practical lock-freedom", 2004), in two levels. This room is the level of one process, which needs no far
//! memory; `memory/global` is the level of the cluster.
//!
//! An epoch is a counter that only grows. A thread *pins* before it follows links: it shows the epoch in its slot. An object that has been unlinked
//! is retired with a *tag*, an upper bound on the epoch of that moment. Memory tagged `t` may be reused once the epoch is `t + 2`.
//!
//! # Why that is safe
//!
//! The bound: **while a slot shows `m`, the epoch is at most `m + 1`.** A thread that pins shows an epoch and then loads the epoch again; if it has
//! changed, the thread shows the new one. A thread that advances from `e` has, in this order, observed `e` as the current epoch, executed a fence,
//! and found that every pinned slot shows `e`. Of pinning and scanning one comes first: either the scan sees the slot, or the pin sees the epoch of
//! the scan.
//!
//! Let a reader reach an object through a link that it loaded while pinned at `m`. The link was removed later, by a thread that was pinned then, at
//! `q`, and is still pinned when it retires the object. Let `E` be the epoch of the removal. Epochs only grow, so `m <= E`; by the bound `E <= q +
//! 1`, which is the tag. The reader's slot holds the epoch at `m + 1`, so at `tag + 1` or below, and the memory is not reused until it unpins.
//!
//! # Unlink first
//!
//! The argument requires that the object is unlinked when it is retired, or at least before the slot moves on. Suppose an object is retired while the
//! thread's slot shows `q`, so with the tag `q + 1`, and unlinked later. A reader that still reaches it is pinned at `m <= E`, the epoch of the
//! unlinking.
//! - As long as the slot shows `q`, `E <= q + 1`, which is the tag: the reader is protected. So retiring before unlinking is harmless under *the
//!   oldest* guard of a thread, which is the only one in a program with one guard at a time, if the thread does unlink.
//! - If another task of the thread has the older guard and drops it in between, the slot moves on to `q + 1` and `E` may be `q + 2`. A reader pinned
//!   then holds the epoch at `q + 3`, in which memory tagged `q + 1` is reused: a use after free.
//! - The same happens if the guard itself is dropped or repinned in between.
//! - If the thread dies in between, or the future is dropped, the object is never unlinked: its grace period ends while it is reachable.
//!
//! The first case depends on the schedule of tasks, and the simulator shows the others (`tests/all/sim_reclaim.rs`). So the rule is: unlink first.
//!
//! No clocks are compared. The argument also holds if a thread's view of the epoch lags behind, as in processes that read it over the network.
//!
//! # Several tasks, one slot
//! The tasks of a thread pin independently and overlap, so a thread may always have a guard. A slot therefore shows the *oldest* epoch in which a
//! guard of its thread was pinned, and later guards join the current epoch instead of prolonging the old one. When the last guard of the oldest epoch
//! is dropped, the slot moves on. While a slot shows `m` the epoch is `m` or `m + 1`, so two counters suffice.
//!
//! # Costs
//! A pin is an exchange and a load of local memory, or a counter's increment if the thread is pinned already; an unpin is a store or a decrement; a
//! tag is an addition. An advance reads every slot; one thread at a time does it and the others return immediately.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | `collector` | the epoch of a process, the slots of its threads, and their pins |
//! | `limbo` | blocks that a thread has retired and not freed |
//! | `local` | [`LocalEpoch`]: the same for boxes, without a cluster |

mod collector;
mod limbo;
mod local;
pub(crate) mod primitive;

pub(crate) use collector::{Collector, FIRST_EPOCH, GRACE_EPOCHS, Participant, Pin};
pub(crate) use limbo::{BlockKind, Limbo, Run};
pub use local::{LocalEpoch, LocalGuard, LocalThread};
