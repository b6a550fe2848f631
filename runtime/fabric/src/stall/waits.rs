//! A thread's waits, published for the watcher.
//!
//! Each compute thread has a table, and the process has one for waits that block a system thread. A wait is *entered* when it begins, with a function
//! that describes it; it is *left* when its [`Waiting`] is dropped. A continuing wait may update its *word*: the token that its last attempt found in
//! a lock.
//!
//! Costs, if stalls are reported: a lock that only the watcher may contend, and a search, for each wait that is entered, updated or left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::watcher::{Watched, watch};
use super::{print_line, setting, shown};

/// Describes a wait, given its word.
pub type DescribeWait = Box<dyn Fn(u64) -> String + Send>;
/// Describes an operation in flight, for a fabric.
pub type DescribeFlight = Box<dyn Fn() -> String + Send>;

/// The clock of a table.
pub enum Clock {
    /// The system's clock.
    Real,
    /// Virtual time in nanoseconds, as the simulation publishes it.
    Virtual(Arc<AtomicU64>),
}

/// The waiting task of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A task by its index, or the thread's own code for 0.
    Number(u32),
    /// No task: a detached chain.
    None,
}

/// The waits of one thread.
pub struct Waits {
    thread_name: Box<str>,
    limit: Duration,
    clock: Clock,
    table: Mutex<Table>,
    /// The start of the current poll, in nanoseconds of `now`; 0 if no poll is under way.
    polls_since: AtomicU64,
    /// The task that is being polled, and the number of tasks.
    task: AtomicU32,
    tasks: AtomicUsize,
    /// True for a thread that serves calls: it may sleep for ever without a call.
    serves: AtomicBool,
}

#[derive(Default)]
struct Table {
    entered: u64,
    waits: BTreeMap<u64, Wait>,
    /// Tasks whose last poll used no operation of this library, by number.
    foreign: BTreeMap<u64, Foreign>,
    /// The poll that was last reported.
    reported_poll: u64,
}

struct Wait {
    since: Duration,
    task: Task,
    word: u64,
    /// `None` once it has been reported.
    what: Option<DescribeWait>,
}

struct Foreign {
    since: Duration,
    task: u32,
    is_reported: bool,
}

/// Returns the time since the first call in this process.
pub(super) fn now() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    // Never 0, which stands for no time.
    BEGAN.get_or_init(Instant::now).elapsed() + Duration::from_nanos(1)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Waits {
    /// Makes the table of the thread `thread_name`.
    pub fn new(thread_name: String, limit: Duration, clock: Clock) -> Arc<Self> {
        let waits = Self {
            thread_name: thread_name.into(),
            limit,
            clock,
            table: Mutex::default(),
            polls_since: AtomicU64::new(0),
            task: AtomicU32::new(0),
            tasks: AtomicUsize::new(0),
            serves: AtomicBool::new(false),
        };
        Arc::new(waits)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every update leaves the table consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the duration from which on a wait is a stall.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the time by the table's clock.
    pub fn now(&self) -> Duration {
        match &self.clock {
            Clock::Real => now(),
            Clock::Virtual(now) => Duration::from_nanos(now.load(Ordering::Relaxed)),
        }
    }

    /// Enters a wait.
    pub fn enter(self: &Arc<Self>, task: Task, about: u64, word: u64, what: DescribeWait) -> Waiting {
        Waiting { key: self.enter_key(task, word, what), about, waits: Arc::clone(self) }
    }

    /// As [`enter`](Self::enter), but returns a key for [`leave`](Self::leave).
    pub fn enter_key(&self, task: Task, word: u64, what: DescribeWait) -> u64 {
        let since = self.now();
        let mut table = self.table();
        table.entered += 1;
        let key = table.entered;
        table.waits.insert(key, Wait { since, task, word, what: Some(what) });
        key
    }

    /// Removes a wait that is over.
    pub fn leave(&self, key: u64) {
        let removed = self.table().waits.remove(&key);
        drop(removed);
    }

    /// Records the start of a poll of the thread's tasks.
    pub fn poll_begins(&self) {
        self.polls_since.store(nanos(now()), Ordering::Relaxed);
    }

    /// Records the end of a poll: the thread polls for completions, or sleeps.
    pub fn poll_ends(&self) {
        self.polls_since.store(0, Ordering::Relaxed);
    }

    /// Records the task that is being polled.
    pub fn polls_task(&self, task: u32) {
        self.task.store(task, Ordering::Relaxed);
    }

    /// Adds to the number of the thread's tasks; subtracts if negative.
    pub fn add_tasks(&self, tasks: isize) {
        self.tasks.fetch_add(tasks.cast_unsigned(), Ordering::Relaxed);
    }

    /// Declares that the thread serves calls.
    pub fn serves(&self) {
        self.serves.store(true, Ordering::Relaxed);
    }

    /// Records that a task was polled and is pending. `is_foreign` is true if it waits for no operation of this library. `number` identifies the
    /// task in its thread.
    pub fn was_polled(&self, number: u64, task: u32, is_foreign: bool) {
        let since = self.now();
        let mut table = self.table();
        if is_foreign {
            table.foreign.entry(number).or_insert(Foreign { since, task, is_reported: false });
        } else {
            table.foreign.remove(&number);
        }
    }

    /// Records that a task has ended.
    pub fn has_ended(&self, number: u64) {
        self.table().foreign.remove(&number);
    }

    fn by(&self, task: Task) -> String {
        match task {
            Task::Number(task) if !self.thread_name.is_empty() => {
                format!("{}, task {task}: ", self.thread_name)
            }
            _ if !self.thread_name.is_empty() => format!("{}: ", self.thread_name),
            _ => String::new(),
        }
    }

    /// Reports stalled waits that have not been reported yet.
    pub fn report(&self) {
        let (now, mut due, mut lines) = (self.now(), Vec::new(), Vec::new());
        let mut table = self.table();
        for wait in table.waits.values_mut() {
            let waited = now.saturating_sub(wait.since);
            if waited >= self.limit
                && let Some(what) = wait.what.take()
            {
                due.push((wait.task, waited, wait.word, what));
            }
        }
        let polls_since = self.polls_since.load(Ordering::Relaxed);
        let is_polling = polls_since > 0 && matches!(self.clock, Clock::Real);
        if is_polling && polls_since != table.reported_poll {
            let (busy, task) =
                (now.saturating_sub(Duration::from_nanos(polls_since)), self.task.load(Ordering::Relaxed));
            let others = self.tasks.load(Ordering::Relaxed).saturating_sub(1);
            if busy >= self.limit && others > 0 {
                table.reported_poll = polls_since;
                lines.push(format!(
                    "{}has not yielded for {}: the other tasks of the thread ({others}) can not run; a long computation should call \
                     `yield_now`, or run on a thread of its own",
                    self.by(Task::Number(task)),
                    shown(busy)
                ));
            }
        }
        let Table { waits, foreign, .. } = &mut *table;
        for (number, foreign) in foreign {
            let waited = now.saturating_sub(foreign.since);
            let waits_too = || waits.values().any(|wait| wait.task == Task::Number(foreign.task));
            let is_server = *number == 0 && self.serves.load(Ordering::Relaxed);
            if waited >= self.limit && !foreign.is_reported && !is_server && !is_polling && !waits_too() {
                foreign.is_reported = true;
                lines.push(format!(
                    "{}has waited for {} for something that this library does not know, and that has not woken it: a channel, a timer or a \
                     future of another crate",
                    self.by(Task::Number(foreign.task)),
                    shown(waited)
                ));
            }
        }
        drop(table);
        for (task, waited, word, what) in due {
            lines.push(format!("{}has waited for {}: {}", self.by(task), shown(waited), what(word)));
        }
        for line in &lines {
            print_line(line);
        }
    }
}

impl Watched for Waits {
    fn check(&self) -> Duration {
        self.report();
        self.limit
    }
}

/// A wait in a table; left when this is dropped.
pub struct Waiting {
    waits: Arc<Waits>,
    key: u64,
    /// The object of the wait, as a number of the caller's: an address, or 0.
    about: u64,
}

impl Waiting {
    /// Returns whether the wait is for this object.
    pub fn is_about(&self, about: u64) -> bool {
        self.about == about
    }

    /// Changes the object of a continuing wait, such as the next of several locks. A reported wait is not reported again.
    pub fn change_target(&mut self, about: u64, word: u64, what: DescribeWait) {
        self.about = about;
        if let Some(wait) = self.waits.table().waits.get_mut(&self.key) {
            wait.word = word;
            wait.what = wait.what.take().map(|_| what);
        }
    }

    /// Records the word that the last attempt has found.
    pub fn set_word(&self, word: u64) {
        if let Some(wait) = self.waits.table().waits.get_mut(&self.key) {
            wait.word = word;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.leave(self.key);
    }
}

/// Enters a wait that blocks a system thread. Returns `None` if stalls are not reported.
pub fn blocked(what: impl FnOnce() -> String) -> Option<Waiting> {
    let limit = setting::last()?;
    let thread = std::thread::current();
    let text = format!("{}, which blocks the thread `{}`", what(), thread.name().unwrap_or("without a name"));
    enter_of_process(limit, Box::new(move |_| text.clone()))
}

/// Locks a mutex that may be held over a wait. Its contents must be consistent at every moment: a poisoned lock is taken as it is.
pub fn lock<T>(mutex: &Mutex<T>, what: impl FnOnce() -> String) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            let _waiting = blocked(what);
            mutex.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// Enters a wait that belongs to no compute thread and blocks none. `what` is called when it has stalled.
pub fn blocked_for(what: impl Fn() -> String + Send + 'static) -> Option<Waiting> {
    enter_of_process(setting::last()?, Box::new(move |_| what()))
}

fn enter_of_process(limit: Duration, what: DescribeWait) -> Option<Waiting> {
    static PROCESS: Mutex<Vec<Arc<Waits>>> = Mutex::new(Vec::new());
    let mut tables = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    // A process has one limit, except in tests of this module.
    let known = tables.iter().find(|waits| waits.limit == limit).cloned();
    let waits = if let Some(waits) = known {
        waits
    } else {
        let waits = Waits::new(String::new(), limit, Clock::Real);
        watch(&waits).ok()?;
        tables.push(Arc::clone(&waits));
        waits
    };
    drop(tables);
    Some(waits.enter(Task::None, 0, 0, what))
}
