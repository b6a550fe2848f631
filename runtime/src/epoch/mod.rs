//! Epochs: when may a retired object's memory be used again?
//!
//! Epoch-based reclamation after Fraser ("Practical lock-freedom", 2004), in two levels. This room is the level of one
//! process, which needs no far memory; `memory/global` is the one above it.
//!
//! An epoch counts upwards. A thread that is about to follow links *pins*: it shows the epoch in its slot. An object that has
//! been unlinked is retired with a *tag*, a bound on the epoch of that moment. Memory tagged `t` may be used again once
//! the epoch is `t + 2`.
//!
//! # Why that is safe
//!
//! The bound: **while a slot shows `m`, the epoch is at most `m + 1`.** A thread that pins shows an epoch and then looks
//! whether it is still the current one; if not, it shows the newer one. Whoever advances from `e` has, in this order, made `e`
//! the current epoch, passed a fence, and found every pinned slot to show `e`. Of the two, pinning and scanning, one comes
//! first: either the scan sees the slot, or the pin sees the epoch that was scanned for.
//!
//! Let a reader reach an object by a link that it loaded while pinned at `m`. The link was unlinked later, by a thread that
//! was pinned then, at `q`, and still is when it retires the object. Let `E` be the epoch when it was unlinked. Epochs only
//! grow, so `m <= E`; by the bound `E <= q + 1`, which is the tag. The reader's slot holds the epoch at `m + 1`, so at
//! `tag + 1` or below, and the memory stays until it unpins.
//!
//! # Unlink first
//!
//! The argument needs that the object is unlinked when it is retired, or at least before the slot moves on. Retire an object while its slot
//! shows `q`, so with the tag `q + 1`, and unlink it later. A reader that still finds it is pinned at `m <= E`, the epoch of that moment.
//! - As long as the slot shows `q`, `E <= q + 1`, which is the tag: the reader is covered. So it does no harm to retire and then unlink under
//!   *the oldest* guard of a thread, as a program with one guard at a time does, if it gets as far.
//! - If another task of the thread has the older guard and drops it in between, the slot moves on to `q + 1` and `E` may be `q + 2`. A reader
//!   pinned then holds the epoch at `q + 3`, in which memory tagged `q + 1` is used again: under its feet.
//! - Likewise if the guard itself is dropped or repinned in between.
//! - If the thread dies in between, or the future is dropped, nothing unlinks the object: its grace period ends, and it is still reachable.
//!
//! The first case is luck of the layout of tasks, and the simulator shows the others (`tests/sim_reclaim.rs`). So the rule is: unlink first.
//!
//! No clocks are compared: the argument holds if the epoch that a thread sees lags behind the true one, as it does where
//! processes hear of it over the network.
//!
//! # Several tasks, one slot
//! The tasks of a thread pin independently and overlap, so a thread may never be without a guard. A slot therefore
//! shows the *oldest* epoch that a guard of its thread was pinned in, and later guards join the current epoch instead
//! of prolonging the old one: when the last guard of the oldest epoch is dropped, the slot moves on. As long as a slot
//! shows `m` the epoch is `m` or `m + 1`, so two counters suffice.
//!
//! # Costs
//! A pin is an exchange and a load of local memory, or a counter's increment if the thread is pinned already; an unpin is a
//! store or a decrement; a tag is an addition. An advance reads every slot; one thread at a time does it and the others
//! return at once.

//!
//! | module | what it has |
//! |---|---|
//! | [`collector`] | the epoch of a process, the slots of its threads, and their pins |
//! | [`limbo`] | blocks that a thread has retired and not freed |
//! | [`local`] | [`LocalEpoch`](crate::LocalEpoch): the same for boxes, without a cluster |

mod collector;
mod limbo;
mod local;
pub(crate) mod primitive;

pub(crate) use collector::{Collector, FIRST_EPOCH, GRACE_EPOCHS, Participant, Pin};
pub(crate) use limbo::{BlockKind, Limbo};
pub use local::{LocalEpoch, LocalGuard, LocalThread};
