//! Putting a thread to sleep until it is woken.
//!
//! A thread has one [`Parker`]. Its wakers may be cloned, sent and used anywhere. A wake that arrives while the thread is awake is kept, once, until
//! the thread checks it or sleeps. So a thread that checks for work, finds none and then sleeps misses no wake for work that its check did not see.
//!
//! `crossbeam_utils` does the blocking. The flag is separate, because a `crossbeam_utils` parker can not be queried. No wake is lost: a wake sets the
//! flag, and unparks the thread if the flag was not set before. The thread sleeps only after an exchange that found the flag clear. So the next wake
//! that sets the flag has not unparked yet, and its permit ends the sleep, now or when it begins. A stale permit of an earlier wake ends a sleep too
//! soon; the thread then checks the flag and sleeps again.
//!
//! A thread that polls for completions wakes itself once a round. It need not unpark itself, so it has a flag of its own, which no
//! other thread writes. That flag is only a hint to check again: a wake by another thread always sets the shared flag.
//!
//! A thread that others may wake from another process sleeps on a word of shared memory instead ([`Parker::sleep_elsewhere`]), and its wakers wake it there, too.
//!
//! Costs: a thread's wake of itself is a store; one by another thread an atomic exchange or two, and a system call if the thread sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::sync;

/// The sleep and wake state of one thread.
pub struct Parker {
    blocking: sync::Parker,
    bell: Arc<Bell>,
    waker: Waker,
}

/// The shared flags of a parker.
struct Bell {
    was_rung: AtomicBool,
    /// Set and cleared by the thread itself.
    was_rung_here: AtomicBool,
    /// The thread that checks the flags and sleeps.
    thread: usize,
    unparker: sync::Unparker,
    /// What wakes the thread while it sleeps [elsewhere](Parker::sleep_elsewhere).
    elsewhere: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// Returns a number that no other live thread has.
#[inline]
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if this_thread() == self.thread {
            return self.was_rung_here.store(true, Ordering::Relaxed);
        }
        if !self.was_rung.swap(true, Ordering::SeqCst) {
            self.unparker.unpark();
            let elsewhere = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(wake) = &*elsewhere {
                wake();
            }
        }
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl Parker {
    /// Makes the parker of the calling thread.
    pub fn new() -> Self {
        let blocking = sync::Parker::new();
        let bell = Arc::new(Bell {
            was_rung: AtomicBool::new(false),
            was_rung_here: AtomicBool::new(false),
            thread: this_thread(),
            unparker: blocking.unparker().clone(),
            elsewhere: Mutex::default(),
        });
        Self { blocking, waker: Waker::from(Arc::clone(&bell)), bell }
    }

    /// Returns a waker of the thread, which any thread may use.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Wakes the thread, which is the calling one, if this is its waker. Returns whether it is.
    #[inline]
    pub fn wake_here(&self, waker: &Waker) -> bool {
        let is_own = self.waker.will_wake(waker);
        if is_own {
            self.bell.was_rung_here.store(true, Ordering::Relaxed);
        }
        is_own
    }

    /// Returns whether the thread has been woken since it last looked or slept, as [`was_woken`](Self::was_woken) will find.
    #[inline]
    pub fn is_woken(&self) -> bool {
        self.bell.was_rung_here.load(Ordering::Relaxed) || self.bell.was_rung.load(Ordering::SeqCst)
    }

    /// Returns whether the thread has been woken since it last looked or slept.
    #[inline]
    pub fn was_woken(&self) -> bool {
        if self.bell.was_rung_here.load(Ordering::Relaxed) {
            self.bell.was_rung_here.store(false, Ordering::Relaxed);
            return true;
        }
        self.bell.was_rung.swap(false, Ordering::SeqCst)
    }

    /// Sleeps by `sleep`, which other processes may end, unless the thread has been woken since it last looked. `wake` ends it, too: wakers call it, also
    /// between this call and the sleep, so it must end a sleep that begins after it.
    pub fn sleep_elsewhere(&self, wake: impl Fn() + Send + 'static, sleep: impl FnOnce()) {
        let elsewhere = || self.bell.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        *elsewhere() = Some(Box::new(wake));
        // A wake that set its flag before this look may not have seen the function; a later one does.
        if !self.is_woken() {
            sleep();
        }
        *elsewhere() = None;
    }

    /// Sleeps until the thread is woken, for `most` at most. Returns immediately if it has been woken since it last looked or slept.
    pub fn park(&self, most: Option<Duration>) {
        // A deadline that is too far away to be represented counts as none.
        let until = most.and_then(|most| Instant::now().checked_add(most));
        while !self.was_woken() {
            match until {
                Some(until) if Instant::now() >= until => return,
                Some(until) => self.blocking.park_deadline(until),
                None => self.blocking.park(),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_sleep_is_kept_once() {
        let parker = Parker::new();
        assert!(!parker.was_woken());
        parker.waker().wake_by_ref();
        parker.waker().wake_by_ref();
        parker.park(None);
        assert!(!parker.was_woken());
    }

    #[test]
    fn a_thread_wakes_itself_by_its_own_waker_only() {
        let (parker, other) = (Parker::new(), Parker::new());
        assert!(!parker.wake_here(other.waker()));
        assert!(!parker.was_woken() && !other.was_woken());
        assert!(parker.wake_here(&parker.waker().clone()));
        assert!(parker.was_woken());
    }

    #[test]
    fn a_stale_permit_does_not_end_a_sleep() {
        let parker = Parker::new();
        std::thread::scope(|scope| {
            scope.spawn(|| parker.bell.wake_by_ref());
        });
        assert!(parker.was_woken());
        let most = Duration::from_millis(2);
        let began = Instant::now();
        parker.park(Some(most));
        assert!(began.elapsed() >= most);
    }

    #[test]
    fn no_wake_from_another_thread_is_lost() {
        let here = Parker::new();
        let first = here.waker().clone();
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            scope.spawn(move || {
                let there = Parker::new();
                tell.send(there.waker().clone()).unwrap();
                for _ in 0..10_000 {
                    there.park(None);
                    first.wake_by_ref();
                }
            });
            let second = told.recv().unwrap();
            for _ in 0..10_000 {
                second.wake_by_ref();
                here.park(None);
            }
        });
    }
}
