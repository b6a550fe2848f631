//! What a compute thread does while none of its tasks can go on.
//!
//! A thread has one waker for all its tasks. What waits for far memory, for a lock or for other threads wakes it at once: only looking
//! again tells whether that has come, so the thread looks again. What waits for a time, for a call of a
//! [`Client`](crate::Client), or for a future of another crate keeps the waker, and uses it once. If after a round of polls the waker
//! was not used, no task can go on. Then the thread
//! 1. finishes what it has posted without waiting, since nobody else would find those completions;
//! 2. looks again for [`LONGEST_LOOK`], giving way to other threads, since what comes at once need not wait for the system to wake a
//!    thread;
//! 3. sleeps until it is woken, or until the first time that a task waits for.
//!
//! # What others wait for from it
//!
//! A thread that sleeps with a guard holds the epoch back, as one that computes does; without one it holds nothing back. Others may
//! need it to give back free memory, or to say what it holds of what is being swept: they wake all sleeping threads of the process
//! ([`Sleepers`]), which answer before they sleep again.
//!
//! # Costs
//!
//! A round of polls that goes on: two atomic exchanges. Sleeping costs nothing; to be woken, a system call of the waker's.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::detached::Detaching;
use super::posting::{Operations, Thread};
use farfield_fabric::Parker;
use farfield_words::ThreadId;

/// How long a thread that can not go on looks before it sleeps: about as long as it takes to put it to sleep and wake it. Looking for
/// longer keeps a processor from the thread that is waited for where there are few: with 50 us a call took 27 us instead of 6.
const LONGEST_LOOK: Duration = Duration::from_micros(4);
/// A time that is nearer than this is waited for awake: the system wakes a sleeping thread up to 60 us late.
const NEAR: Duration = Duration::from_micros(100);

/// The threads of a process that may be asleep: those that poll their tasks themselves, which simulated ones do not.
#[derive(Default)]
pub(crate) struct Sleepers(Mutex<Vec<(ThreadId, Waker)>>);

impl Sleepers {
    fn list(&self) -> MutexGuard<'_, Vec<(ThreadId, Waker)>> {
        // A list of wakers is whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has all look at what they are asked for.
    pub(crate) fn wake(&self) {
        self.list().iter().for_each(|(_, waker)| waker.wake_by_ref());
    }
}

/// A thread's waker, and the times that its tasks wait for.
pub(crate) struct Idle {
    parker: Parker,
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    /// How many timers have been set.
    timers_set: Cell<u64>,
    thread: ThreadId,
    sleepers: Arc<Sleepers>,
}

impl Idle {
    pub(crate) fn new(thread: ThreadId, sleepers: &Arc<Sleepers>) -> Self {
        let parker = Parker::new();
        sleepers.list().push((thread, parker.waker().clone()));
        Self {
            parker,
            timers: RefCell::default(),
            timers_set: Cell::new(0),
            thread,
            sleepers: Arc::clone(sleepers),
        }
    }

    /// What wakes the thread.
    pub(crate) fn waker(&self) -> &Waker {
        self.parker.waker()
    }

    /// Wakes the tasks whose time has come.
    fn fire_timers(&self, now: impl FnOnce() -> Duration) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = now();
        loop {
            let mut timers = self.timers.borrow_mut();
            let due = timers.first_entry().filter(|first| first.key().0 <= now);
            let Some(waker) = due.map(|due| due.remove()) else { return };
            // A waker is a stranger's code.
            drop(timers);
            waker.wake();
        }
    }

    /// The first time that a task waits for.
    fn next_timer(&self) -> Option<Duration> {
        self.timers.borrow().first_key_value().map(|((at, _), _)| *at)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.sleepers.list().retain(|(thread, _)| *thread != self.thread);
    }
}

/// Waits for a time, asleep.
pub(super) struct Timer<'a, T: Thread> {
    ct: &'a T,
    at: Duration,
    /// Its key among the thread's timers, once it has been polled.
    key: Option<(Duration, u64)>,
}

impl<'a, T: Thread> Timer<'a, T> {
    pub(super) fn new(ct: &'a T, at: Duration) -> Self {
        Self { ct, at, key: None }
    }
}

impl<T: Thread> Future for Timer<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (ct, at) = (self.ct, self.at);
        ct.serves_requests();
        if ct.time() >= at {
            return Poll::Ready(());
        }
        let idle = ct.idle_state();
        let key = *self.key.get_or_insert_with(|| {
            idle.timers_set.set(idle.timers_set.get() + 1);
            ct.io().task_stack.sleeps(idle.timers_set.get());
            (at, idle.timers_set.get())
        });
        let replaced = idle.timers.borrow_mut().insert(key, context.waker().clone());
        drop(replaced);
        Poll::Pending
    }
}

impl<T: Thread> Drop for Timer<'_, T> {
    fn drop(&mut self) {
        let key = self.key.take();
        if let Some((_, wait)) = key {
            self.ct.io().task_stack.awakes(wait);
        }
        let removed = key.and_then(|key| self.ct.idle_state().timers.borrow_mut().remove(&key));
        drop(removed);
    }
}

/// Sleeping.
pub(crate) trait Sleeping: Detaching {
    /// Called after a round of polls in which the thread's future did not become ready: returns when it should be polled again.
    fn wait_for_wake(&self) {
        let idle = self.idle_state();
        idle.fire_timers(|| self.time());
        if idle.parker.was_woken() {
            return self.io().endpoint.idle();
        }
        let mut began = self.time();
        loop {
            self.io().endpoint.idle();
            idle.fire_timers(|| self.time());
            if idle.parker.was_woken() {
                return;
            }
            let now = self.time();
            if self.is_underway() {
                began = now;
                continue;
            }
            let left = idle.next_timer().map(|at| at.saturating_sub(now));
            if now.saturating_sub(began) < LONGEST_LOOK || left.is_some_and(|left| left < NEAR) {
                continue;
            }
            // The second look at what the thread is asked for: whoever asks after this wakes it.
            self.serves_requests();
            if self.is_underway() {
                continue;
            }
            idle.parker.park(left);
            self.serves_requests();
            return idle.fire_timers(|| self.time());
        }
    }

    /// Looks after what this thread has posted without waiting; returns whether any of it is under way.
    fn is_underway(&self) -> bool {
        if !self.io().endpoint.is_underway() {
            return false;
        }
        self.drives_background();
        self.poll_detached();
        self.io().endpoint.is_underway()
    }
}

impl<T: Thread> Sleeping for T {}
