//! Alarms: they wake a waker at a time, independently of any async runtime.
//!
//! A background thread, started with the first alarm, sleeps until the earliest alarm. Setting an alarm wakes the thread only if it would wake too
//! late; a cancelled alarm is removed, and the thread finds nothing when it wakes. So of many alarms with the same delay, one per delay costs a
//! system call.
//!
//! Costs: a lock and a search for each alarm that is set or cancelled; memory for those that are set.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::spawn::BackgroundThread;
use crate::error::Result;

/// A point of real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Instant);

impl Moment {
    /// Returns the moment after a duration; `None` if that can not be represented.
    pub fn after(duration: Duration) -> Option<Self> {
        Instant::now().checked_add(duration).map(Self)
    }

    /// Returns whether the moment has passed.
    pub fn has_come(self) -> bool {
        Instant::now() >= self.0
    }
}

/// Alarms, and the thread that wakes them.
#[derive(Default)]
pub struct Alarms {
    clock: Arc<AlarmClock>,
    thread: Mutex<Option<BackgroundThread>>,
}

#[derive(Default)]
struct AlarmClock {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Default)]
struct AlarmState {
    alarms: BTreeMap<(Moment, u64), Waker>,
    /// The number of alarms that have been set.
    set: u64,
    /// The time until which the thread sleeps; `None` if it sleeps without a timeout.
    wakes: Option<Moment>,
    has_ended: bool,
}

/// An alarm; cancelled when it is dropped.
pub struct Alarm {
    clock: Arc<AlarmClock>,
    key: (Moment, u64),
}

impl AlarmClock {
    fn state(&self) -> MutexGuard<'_, AlarmState> {
        // No code under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.state();
        while !state.has_ended {
            let first = state.alarms.first_key_value().map(|((at, _), _)| *at);
            state.wakes = first;
            let now = Instant::now();
            match first {
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) if at.0 > now => {
                    let waited = self.changed.wait_timeout(state, at.0 - now);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {
                    let (_, waker) = state.alarms.pop_first().expect("there is a first one");
                    // A waker is foreign code, so the lock is released.
                    drop(state);
                    waker.wake();
                    state = self.state();
                }
            }
        }
    }
}

impl Alarms {
    /// Wakes `waker` at a moment.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if the system starts no more threads.
    pub fn set(&self, at: Moment, waker: &Waker) -> Result<Alarm> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let clock = Arc::clone(&self.clock);
            *thread = Some(BackgroundThread::start("alarms", move |_| clock.run())?);
        }
        drop(thread);
        let mut state = self.clock.state();
        state.set += 1;
        let key = (at, state.set);
        state.alarms.insert(key, waker.clone());
        if state.wakes.is_none_or(|wakes| at < wakes) {
            state.wakes = Some(at);
            self.clock.changed.notify_one();
        }
        drop(state);
        Ok(Alarm { clock: Arc::clone(&self.clock), key })
    }
}

impl Alarm {
    /// Replaces the waker.
    pub fn reset(&self, waker: &Waker) {
        let mut state = self.clock.state();
        let replaced = state.alarms.get_mut(&self.key).map(|old| std::mem::replace(old, waker.clone()));
        drop(state);
        drop(replaced);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let mut state = self.clock.state();
        let removed = state.alarms.remove(&self.key);
        drop(state);
        drop(removed);
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        self.clock.state().has_ended = true;
        self.clock.changed.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::park::Parker;

    fn after(milliseconds: u64) -> Moment {
        Moment::after(Duration::from_millis(milliseconds)).expect("it is near")
    }

    #[test]
    fn an_alarm_that_is_set_later_may_come_earlier() {
        let (alarms, late, early) = (Alarms::default(), Parker::new(), Parker::new());
        let at = after(3_600_000);
        let first = alarms.set(at, late.waker()).unwrap();
        let second = alarms.set(after(1), early.waker()).unwrap();
        early.park(None);
        assert!(!at.has_come(), "the first alarm is not due");
        drop((first, second));
    }

    #[test]
    fn an_alarm_wakes_the_waker_that_it_was_reset_to_and_no_other() {
        let (alarms, before, now) = (Alarms::default(), Parker::new(), Parker::new());
        let at = after(5);
        let alarm = alarms.set(at, before.waker()).unwrap();
        alarm.reset(now.waker());
        now.park(None);
        assert!(at.has_come());
        assert!(!before.was_woken());
    }

    #[test]
    fn a_cancelled_alarm_is_removed() {
        let alarms = Alarms::default();
        let parker = Parker::new();
        for _ in 0..100 {
            drop(alarms.set(after(1), parker.waker()).unwrap());
        }
        assert!(alarms.clock.state().alarms.is_empty());
        // No earlier alarm remains for the thread to wake.
        let last = alarms.set(after(3), parker.waker()).unwrap();
        parker.park(None);
        assert!(last.key.0.has_come());
    }
}
