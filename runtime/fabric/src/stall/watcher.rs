//! The watcher: a thread that checks the tables of all other threads.
//!
//! The first watched table starts it, and it lives as long as the process. It sleeps for a quarter of the shortest limit, a second at most. So a
//! stall is reported at most a quarter of the limit late.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::waits::{Waits, now};
use super::{print_line, shown};
use crate::error::{self, Error, Result};

/// The longest and the shortest sleep of the watcher.
const LONGEST: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(1);

/// An object that the watcher checks.
pub(super) trait Watched: Send + Sync {
    /// Reports stalled waits. Returns the limit.
    fn check(&self) -> Duration;
}

#[derive(Default)]
struct Watcher {
    is_started: bool,
    watched: Vec<Weak<dyn Watched>>,
}

static WATCHER: Mutex<Watcher> = Mutex::new(Watcher { is_started: false, watched: Vec::new() });
static CHANGED: Condvar = Condvar::new();

/// Adds a thread's waits to the watcher.
///
/// # Errors
/// [`Error::System`] if the system starts no more threads.
pub fn watch(waits: &Arc<Waits>) -> Result<()> {
    let waits: Arc<dyn Watched> = Arc::<Waits>::clone(waits);
    add(Arc::downgrade(&waits))
}

/// Adds a simulation to the watcher, which checks that virtual time passes.
///
/// # Errors
/// As for [`watch`].
pub fn watch_simulation(simulated: &Arc<WatchedSimulation>) -> Result<()> {
    let simulated: Arc<dyn Watched> = Arc::<WatchedSimulation>::clone(simulated);
    add(Arc::downgrade(&simulated))
}

fn add(one: Weak<dyn Watched>) -> Result<()> {
    let mut watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
    watcher.watched.push(one);
    if !watcher.is_started {
        let started = thread::Builder::new().name("farfield-stalls".to_owned()).spawn(run);
        started.map_err(|cause| Error::from(error::System { action: "start a thread", cause }))?;
        watcher.is_started = true;
    }
    CHANGED.notify_one();
    Ok(())
}

fn run() {
    loop {
        let mut watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
        watcher.watched.retain(|one| one.strong_count() > 0);
        let all: Vec<_> = watcher.watched.iter().filter_map(Weak::upgrade).collect();
        drop(watcher);
        let shortest = all.iter().map(|one| one.check()).min();
        drop(all);
        let watcher = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
        match shortest {
            // A table that was added since the first lock is in this list, so its notification is not missed.
            None if watcher.watched.iter().all(|one| one.strong_count() == 0) => {
                drop(CHANGED.wait(watcher));
            }
            shortest => {
                let rest = (shortest.unwrap_or_default() / 4).clamp(SHORTEST, LONGEST);
                drop(CHANGED.wait_timeout(watcher, rest));
            }
        }
    }
}

/// A simulation, as the watcher sees it: its progress, and the thread that it polls.
pub struct WatchedSimulation {
    limit: Duration,
    /// Virtual time in nanoseconds, for the tables of its threads.
    pub now: Arc<AtomicU64>,
    /// The number of its polls, and the thread that it polls.
    poll_count: AtomicU64,
    thread: AtomicU32,
    is_running: AtomicBool,
    /// The number of polls at the last change, the time of that, and whether the stall was reported.
    last_check: Mutex<(u64, Duration, bool)>,
    tables: Mutex<Vec<Weak<Waits>>>,
}

impl WatchedSimulation {
    /// Makes the view of a simulation in which waits are stalls from `limit` of virtual time on.
    pub fn new(limit: Duration) -> Arc<Self> {
        let simulated = Self {
            limit,
            now: Arc::default(),
            poll_count: AtomicU64::new(0),
            thread: AtomicU32::new(0),
            is_running: AtomicBool::new(false),
            // The first check may fall into the first poll.
            last_check: Mutex::new((0, now(), false)),
            tables: Mutex::default(),
        };
        Arc::new(simulated)
    }

    /// The duration from which a wait is a stall.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Adds a thread's table, which is checked as virtual time passes.
    pub fn add(&self, waits: &Arc<Waits>) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|waits| waits.strong_count() > 0);
        tables.push(Arc::downgrade(waits));
    }

    /// Sets the virtual time.
    pub fn set_time(&self, now: Duration) {
        self.now.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Records that the simulation polls a thread at a virtual time.
    pub fn set_polled_thread(&self, thread: u32, now: Duration) {
        self.set_time(now);
        self.thread.store(thread, Ordering::Relaxed);
        self.poll_count.fetch_add(1, Ordering::Relaxed);
        self.is_running.store(true, Ordering::Relaxed);
    }

    /// Records the end of the run.
    pub fn run_ended(&self) {
        self.is_running.store(false, Ordering::Relaxed);
    }

    /// Checks the threads' tables after virtual time has passed. `lines` report stalled chains.
    pub fn report(&self, lines: &[String]) {
        for line in lines {
            print_line(line);
        }
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let tables: Vec<_> = tables.iter().filter_map(Weak::upgrade).collect();
        for waits in tables {
            waits.report();
        }
    }
}

impl Watched for WatchedSimulation {
    fn check(&self) -> Duration {
        let poll_count = self.poll_count.load(Ordering::Relaxed);
        let mut last_check = self.last_check.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, since, is_reported) = *last_check;
        if poll_count != last || !self.is_running.load(Ordering::Relaxed) {
            *last_check = (poll_count, now(), false);
        } else if !is_reported && now().saturating_sub(since) >= self.limit {
            last_check.2 = true;
            print_line(&format!(
                "the simulation has stood at {} for {} of real time: thread {} computes without yielding, or blocks",
                shown(Duration::from_nanos(self.now.load(Ordering::Relaxed))),
                shown(now().saturating_sub(since)),
                self.thread.load(Ordering::Relaxed)
            ));
        }
        self.limit
    }
}
