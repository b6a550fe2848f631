//! The lanes of threads: of their own, or shared.
//!
//! A compute thread uses one lane to each memory node, together a *set*. With the policy one-to-one, a set is in the free list or belongs to one
//! endpoint, by value, until the endpoint is dropped: no other thread can reach it. So it needs no lock. With the other policies the sets
//! stay here, and threads use them under the lock of each lane.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::config::Sharing;
use super::lane::Lane;
use super::wire::Connect;
use crate::stall::lock;

/// The most memory nodes for whose completions a thread can sleep.
const MAX_NAP_LANES: usize = 16;

/// One lane to each memory node.
pub(crate) type OwnSet<C> = Vec<Lane<C>>;
/// The same, for several threads.
pub(crate) type SharedSet<C> = Arc<[Mutex<Lane<C>>]>;

/// The lanes of one thread.
pub(crate) enum Lanes<C: Connect> {
    Own(RefCell<OwnSet<C>>),
    /// The thread's own, too. Its chains in flight are entered in its waits, since stalls are reported.
    Watched(RefCell<OwnSet<C>>),
    Shared(SharedSet<C>),
}

/// A lane in use by the calling thread.
pub(crate) enum Using<'a, C: Connect> {
    Own(RefMut<'a, Lane<C>>),
    Shared(MutexGuard<'a, Lane<C>>),
}

impl<C: Connect> Lanes<C> {
    /// Returns the lanes of a thread whose stalls are reported.
    pub(crate) fn watched(self) -> Self {
        match self {
            Self::Own(set) => Self::Watched(set),
            other => other,
        }
    }

    /// Returns the lane to a memory node.
    #[inline]
    pub(crate) fn lane(&self, node: usize) -> Using<'_, C> {
        match self {
            Self::Own(set) | Self::Watched(set) => {
                Using::Own(RefMut::map(set.borrow_mut(), |set| &mut set[node]))
            }
            Self::Shared(set) => Using::Shared(locked(&set[node])),
        }
    }

    /// Sleeps until a completion, or watched words, may have arrived on a lane of the thread's own, or `other` is readable; at most for `most`. Returns whether it has slept: not
    /// if the network can not wake the thread, or other threads use the lanes.
    #[cold]
    pub(crate) fn nap(&self, most: Duration, other: Option<BorrowedFd<'_>>) -> bool {
        let (Self::Own(set) | Self::Watched(set)) = self else { return false };
        let mut set = set.borrow_mut();
        let mut under_way = set.iter().filter(|lane| lane.is_under_way() || lane.is_watching());
        let Some(first) = under_way.next().and_then(Lane::descriptor) else { return false };
        let mut waits: [PollFd<'_>; MAX_NAP_LANES] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(first, PollFlags::IN));
        let mut count = 1;
        for lane in under_way {
            let (Some(descriptor), Some(wait)) = (lane.descriptor(), waits.get_mut(count)) else {
                return false;
            };
            *wait = PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
            count += 1;
        }
        if let Some(other) = other {
            let Some(wait) = waits.get_mut(count) else { return false };
            *wait = PollFd::from_borrowed_fd(other, PollFlags::IN);
            count += 1;
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
        let has_slept = poll(&mut waits[..count], Some(&timeout)).is_ok();
        set.iter_mut().for_each(Lane::time_has_passed);
        has_slept
    }

    /// Returns the number of lanes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(set) | Self::Watched(set) => set.borrow().len(),
            Self::Shared(set) => set.len(),
        }
    }
}

impl<C: Connect> Deref for Using<'_, C> {
    type Target = Lane<C>;

    #[inline]
    fn deref(&self) -> &Lane<C> {
        match self {
            Self::Own(lane) => lane,
            Self::Shared(lane) => lane,
        }
    }
}

impl<C: Connect> DerefMut for Using<'_, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Lane<C> {
        match self {
            Self::Own(lane) => lane,
            Self::Shared(lane) => lane,
        }
    }
}

#[cold]
fn locked<C: Connect>(lane: &Mutex<Lane<C>>) -> MutexGuard<'_, Lane<C>> {
    // A panic under the lock is a bug; the state it leaves is no worse than a lost connection.
    lock(lane, || "a thread that shares the lane, and posts on it or connects it anew".to_owned())
}

/// Sleeps until a descriptor is readable, at most for `most`, which is less than a second.
#[cold]
pub(crate) fn wait_for(descriptor: BorrowedFd<'_>, most: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    // After an interruption the thread looks again.
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout));
}

/// Makes a set for several threads.
pub(crate) fn shared<C: Connect>(set: OwnSet<C>) -> SharedSet<C> {
    set.into_iter().map(Mutex::new).collect()
}

/// The lanes of a process's compute threads.
pub(crate) struct Pool<C: Connect> {
    /// Sets of which a thread takes one for itself.
    free: Vec<OwnSet<C>>,
    /// Sets that threads share.
    shared: Vec<SharedSet<C>>,
}

impl<C: Connect> Default for Pool<C> {
    fn default() -> Self {
        Self { free: Vec::new(), shared: Vec::new() }
    }
}

impl<C: Connect> Pool<C> {
    /// Returns whether a run of `threads` threads uses more sets than there are.
    pub(crate) fn lacks(&self, sharing: Sharing, threads: usize) -> bool {
        self.free.len() + self.shared.len() < sharing.lanes(threads)
    }

    /// Adds a set.
    pub(crate) fn add(&mut self, sharing: Sharing, set: OwnSet<C>) {
        match sharing {
            Sharing::OneToOne => self.free.push(set),
            _ => self.shared.push(shared(set)),
        }
    }

    /// Returns the lanes of a thread, which is the `turn`th to ask. If runs that began together have taken more sets than each has prepared,
    /// `unconnected` makes one.
    pub(crate) fn take(
        &mut self,
        sharing: Sharing,
        thread: usize,
        turn: u64,
        unconnected: impl FnOnce() -> OwnSet<C>,
    ) -> Lanes<C> {
        match sharing {
            Sharing::OneToOne => Lanes::Own(RefCell::new(self.free.pop().unwrap_or_else(unconnected))),
            _ => Lanes::Shared(Arc::clone(&self.shared[sharing.lane(thread, turn, self.shared.len())])),
        }
    }

    /// Takes a thread's own lanes back.
    pub(crate) fn give_back(&mut self, set: OwnSet<C>) {
        self.free.push(set);
    }
}
