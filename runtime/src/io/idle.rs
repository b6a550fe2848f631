//! Idle compute threads: polling, and then sleeping, while no task can make progress.
//!
//! A thread has one waker for all its tasks. A future that waits for far memory, a lock or another thread wakes it in the same poll, because only
//! another poll can find the change. A future that waits for a time, for a call of a [`Client`](crate::Client), or in another crate stores the waker
//! and wakes it once. If the waker is not woken during a round of polls, no task can make progress. Then the thread
//! 1. polls its detached chains until they have completed, because no other thread finds these completions;
//! 2. polls for [`LONGEST_LOOK`] more, yielding to other threads, because waking a sleeping thread takes the system longer than that;
//! 3. sleeps until it is woken, or until the first timer of a task.
//!
//! # Requests of other threads
//!
//! A sleeping thread with a guard holds the epoch back, as a computing one does. Other threads may request that it returns free memory, or that it
//! reports its references to a sweep. They wake all sleeping threads of the process ([`Sleepers`]), which serve the request before they sleep again.
//!
//! # Cost
//!
//! A round of polls: two atomic exchanges. A sleeping thread: nothing, and one system call of the thread that wakes it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::hint::spin_loop;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::detached::Detaching;
use super::posting::{Operations, Thread};
use farfield_fabric::Parker;
use farfield_words::ThreadId;

/// The time for which an idle thread polls before it sleeps: about the time of falling asleep and being woken. Polling for longer takes a processor
/// from the thread that is waited for, if there are few: with 50 us a call took 27 us instead of 6.
const LONGEST_LOOK: Duration = Duration::from_micros(4);
/// The same for a thread that other processes wake: it looks for longer, since clients that are served again and again would else wake it each time.
const LONGEST_LOOK_FOR_OTHERS: Duration = Duration::from_micros(100);
/// The thread polls, and does not sleep, until a timer that is closer than this: the system wakes a sleeping thread up to 60 us late.
const NEAR: Duration = Duration::from_micros(100);

/// How often a thread looks for the work of others before it gives way to other threads of the system.
const LOOKS_FOR_OTHERS: u32 = 64;

/// How many rounds with work a thread makes before it looks at its timers.
const MOST_SERVED: u32 = 256;

/// The threads of a process that may be asleep, with their wakers. Simulated threads never sleep.
#[derive(Default)]
pub(crate) struct Sleepers(Mutex<Vec<(ThreadId, Waker)>>);

impl Sleepers {
    fn list(&self) -> MutexGuard<'_, Vec<(ThreadId, Waker)>> {
        // No panic leaves the list inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all threads, so that they serve requests.
    pub(crate) fn wake(&self) {
        self.list().iter().for_each(|(_, waker)| waker.wake_by_ref());
    }
}

/// A thread's waker, and the timers of its tasks.
pub(crate) struct Idle {
    parker: Parker,
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    /// The number of timers that were ever set.
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

    /// Returns the thread's waker.
    pub(crate) fn waker(&self) -> &Waker {
        self.parker.waker()
    }

    /// Sleeps by `sleep`, until that ends or the thread is woken, which calls `wake`.
    pub(crate) fn sleep_elsewhere(&self, wake: impl Fn() + Send + 'static, sleep: impl FnOnce()) {
        self.parker.sleep_elsewhere(wake, sleep);
    }

    /// Wakes the thread, which is the calling one, if this is its waker. Returns whether it is.
    #[inline]
    pub(super) fn wake_here(&self, waker: &Waker) -> bool {
        self.parker.wake_here(waker)
    }

    /// Wakes the tasks whose timers have expired.
    fn fire_timers(&self, now: impl FnOnce() -> Duration) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = now();
        loop {
            let mut timers = self.timers.borrow_mut();
            let due = timers.first_entry().filter(|first| first.key().0 <= now);
            let Some(waker) = due.map(|due| due.remove()) else { return };
            // A waker may be code of another crate, which may set a timer.
            drop(timers);
            waker.wake();
        }
    }

    /// Returns the time of the first timer.
    fn next_timer(&self) -> Option<Duration> {
        self.timers.borrow().first_key_value().map(|((at, _), _)| *at)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.sleepers.list().retain(|(thread, _)| *thread != self.thread);
    }
}

/// The future of a timer.
pub(super) struct Timer<'a, T: Thread> {
    ct: &'a T,
    at: Duration,
    /// Its key among the thread's timers, once it was polled.
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

/// Idling and sleeping.
pub(crate) trait Sleeping: Detaching {
    /// Called after a round of polls in which the thread's future did not complete. Returns when it is to be polled again.
    fn wait_for_wake(&self) {
        let idle = self.idle_state();
        idle.fire_timers(|| self.time());
        let attends = self.attends();
        if attends && self.looks_for_others() {
            return;
        }
        if idle.parker.was_woken() {
            return self.io().endpoint.idle();
        }
        let mut began = self.time();
        loop {
            self.io().endpoint.idle();
            if attends && self.looks_for_others() {
                return;
            }
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
            let longest = if attends { LONGEST_LOOK_FOR_OTHERS } else { LONGEST_LOOK };
            if now.saturating_sub(began) < longest || left.is_some_and(|left| left < NEAR) {
                continue;
            }
            // Requests are served after the parker was armed: a later request wakes the thread.
            self.serves_requests();
            if self.is_underway() {
                continue;
            }
            if !attends {
                idle.parker.park(left);
            } else if !self.sleeps_for_others(left) {
                continue;
            }
            self.serves_requests();
            return idle.fire_timers(|| self.time());
        }
    }

    /// Looks for requests and answers of other threads, and serves them, until none has come for less than the time of a system call, or for [`MOST_SERVED`] of
    /// them. Returns whether there were any, or the thread was woken.
    #[inline(never)]
    fn looks_for_others(&self) -> bool {
        let parker = &self.idle_state().parker;
        // On a network only the endpoint's own look finds something.
        let endpoint = &self.io().endpoint;
        let is_network = endpoint.mapped().is_none() && endpoint.virtual_time().is_none();
        let looks = if is_network { 1 } else { LOOKS_FOR_OTHERS };
        let (mut left, mut served) = (looks, 0);
        while left > 0 && served < MOST_SERVED {
            if self.serves_others() {
                // Clients that are served again and again need no poll of this thread's own future.
                served += 1;
                left = looks;
                if parker.is_woken() {
                    break;
                }
            } else {
                spin_loop();
                left -= 1;
            }
        }
        served > 0
    }

    /// Polls the thread's detached chains and background operations. Returns `true` if some are in flight.
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
