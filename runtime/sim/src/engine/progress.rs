//! Detection of runs that do not end.
//!
//! A run ends when its threads have ended. A run that does not end is
//!
//! - a *deadlock*, if the event queue is empty: every thread is blocked;
//! - a *livelock*, if every thread repeats loops that only another thread's action could end;
//! - *starved*, if a task has failed at one operation many times because other threads were faster, while these completed many operations;
//! - out of time, if it reaches the `limit`.
//!
//! # Livelocks
//!
//! Changes of memory are no evidence of progress: locks are taken and released, epochs advance, nodes are allocated and freed, and no operation ends.
//! So the check examines threads, not words. Every thread must be in one of these states:
//!
//! 1. *In loops.* Each chain and timer that the thread waits for is matched by an [outermost loop](super::loops) that has waited [`MIN_TRIES`] times.
//!    A thread with a future outside of such loops is alive.
//! 2. *Repeating.* For loops that never await a `Backoff`, and those that make a new one for each wait: the thread's operations repeat. Each
//!    operation has a fingerprint of its kind, its field and its words; new objects count by their types, locks by their owners, and the runtime's
//!    own words not at all. A thread repeats if at most [`MAX_DIFFERENT_OPERATIONS`] of its [`MIN_STEPS`] steps were different. It also repeats if
//!    its only future outside of loops has backed off [`MIN_TRIES`] times while no word of far memory changed. A thread that reads the clock may be
//!    waiting for a time, and does not count as repeating.
//! 3. *Lost.* It waits for no operation of the runtime, so the simulator will never poll it again, unless a chain changes a word that it
//!    [hosts](super::hosted). A thread whose hosted words have changed since the suspicion began is alive: it serves others. Threads that wake each
//!    other for ever are therefore found only by the `limit`.
//!
//! The first such check only raises a *suspicion*. Then each thread must repeat as often again, without leaving its loops and without a new
//! operation. So each loop has been tried [`MIN_TRIES`] times after the last thread had entered its own: every thread waits only for the others,
//! which is a livelock. A thread that sleeps, or whose link is cut or node is stalled, waits for an operation that began before the suspicion; it
//! defers the verdict. So does a scripted fault that is still to come.
//!
//! | in every thread | found after |
//! |---|---|
//! | a `Backoff` that lives as long as the loop | 2 x 64 waits of each loop, and at least 10,000 round trips: 20 ms to 0.5 s with `rtt=2us` |
//! | a loop without one, or with a new one each time, and memory does not change | the same |
//! | a loop without one, and memory changes, or it waits for nothing at all | 2 x 100,000 chains and timers of each thread, and an eighth of the `limit`: 0.4 s in tests |
//!
//! The check is a heuristic that prefers to wait. It mistakes one kind of program for a livelock: one whose threads all count to a large number in
//! local memory, with the same few operations for each step.
//!
//! # Starvation
//!
//! Lock-free structures and unfair locks permit starvation, so the bounds are far above what a correct program reaches. The task has failed
//! [`STARVED_TRIES`] times, and more often with more threads, nearly always because a word had changed since its last attempt. Meanwhile others have
//! posted at least [`USEFUL_CHAINS`] chains outside of loops. With `n` threads that take turns at one word, an attempt fails with a probability of at
//! most `1 - 1/n`; `32 n` failures in a row have a probability of `e^-32`. A task that waits for a word to change, and finds it unchanged, is not
//! starved.

use std::collections::HashSet;

use super::loops::{Loop, LoopId, LoopKind, Loops};
use super::world::{Stage, ThreadState, World};
use crate::books::trace::Micros;
use crate::config::{Picos, SimConfig};
use farfield_fabric::error::Finding;

/// The least waits of a loop, or of a thread that backs off.
const MIN_TRIES: u64 = 64;
/// This many `yield_now` count as one wait of a `Backoff`.
const YIELDS_PER_TRY: u64 = 500;
/// The least chains and timers of a thread that does not back off.
const MIN_STEPS: u64 = 100_000;
/// The most different operations of a thread that repeats.
const MAX_DIFFERENT_OPERATIONS: usize = 256;
/// The least round trips of a suspicion, and the part of the `limit` that suffices.
const ROUND_TRIPS: u64 = 10_000;
const PART_OF_LIMIT: u64 = 16;
/// A check of all threads is due after this effort times the number of threads. A chain, a timer or a `yield_now` is an effort of one.
const EFFORTS_PER_LOOK: u32 = 8192;
const EFFORTS_PER_TRY: u32 = 512;

/// The least failures of a starved task, in all and for each thread.
const STARVED_TRIES: u64 = 256;
const STARVED_TRIES_PER_THREAD: u64 = 32;
/// The least chains that others have posted meanwhile, in all and for each thread.
const USEFUL_CHAINS: u64 = 100_000;
const USEFUL_CHAINS_PER_THREAD: u64 = 4_000;

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerPurpose {
    /// A sleep of the program.
    Sleep,
    /// The wait before the next attempt of a retry loop.
    Retry,
    /// A `yield_now`.
    Yield,
}

/// The state of the detection, for all threads.
pub(super) struct ProgressMonitor {
    pub(super) loops: Loops,
    /// The number of changes of far memory so far, without those of epochs.
    changes: u64,
    /// The number of chains that threads have posted while none of their loops had waited.
    useful: u64,
    /// The number of threads whose effort has reached the threshold since the last check, and whether a check is due.
    efforts: usize,
    check_is_due: bool,
    suspicion: Option<Suspicion>,
    limit: Picos,
    /// The time at which the run reaches its limit.
    pub(super) give_up_at: Picos,
}

/// The moment at which all threads seemed to repeat.
#[derive(Clone, Copy)]
struct Suspicion {
    since: Picos,
    /// The table's count of waits at that time: loops with smaller numbers existed then.
    waits: u64,
}

impl ProgressMonitor {
    pub(super) fn new(config: &SimConfig) -> Self {
        Self {
            loops: Loops::default(),
            changes: 0,
            useful: 0,
            efforts: 0,
            check_is_due: false,
            suspicion: None,
            limit: config.limit,
            give_up_at: 0,
        }
    }

    pub(super) fn begin(&mut self, now: Picos) {
        self.loops.clear();
        (self.suspicion, self.check_is_due) = (None, false);
        self.give_up_at = now.saturating_add(self.limit);
    }

    #[inline]
    pub(super) fn memory_changed(&mut self) {
        self.changes += 1;
    }

    /// Returns the beginning of the suspicion, from which on operations are fingerprinted.
    #[inline]
    pub(super) fn suspicious_since(&self) -> Option<Picos> {
        self.suspicion.map(|suspicion| suspicion.since)
    }
}

/// The counts of one thread.
#[derive(Default)]
pub(super) struct ThreadProgress {
    /// The number of chains and timers; the number of `yield_now`, and in the same unit of first waits of loops, since far memory last changed;
    /// and [`ProgressMonitor::changes`] at that time.
    steps: u64,
    waited: u64,
    changes: u64,
    /// The effort since it last reached the threshold.
    efforts: u32,
    /// The number of its loops that have waited.
    pub(super) loops: u32,
    /// The time at which it last read the clock.
    clock_read_at: Option<Picos>,
    /// The time at which others last changed words that it hosts.
    hosted_changed_at: Option<Picos>,
    /// Fingerprints of its operations since the suspicion began: at most one more than a repeating thread has.
    fingerprints: Option<HashSet<u64>>,
    /// By task: the word that its last failed CAS found, and how often that differed from the word before.
    interfered: Vec<(u32, u64, u64)>,
}

impl ThreadProgress {
    /// Resets the counts, when a suspicion begins.
    fn begin(&mut self) {
        (self.steps, self.waited, self.fingerprints) = (0, 0, None);
    }

    /// Records that others have changed words that the thread hosts.
    pub(super) fn hosted_changed(&mut self, now: Picos) {
        self.hosted_changed_at = Some(now);
    }

    /// Records the fingerprint of an operation during a suspicion.
    #[cold]
    pub(super) fn add_fingerprint(&mut self, fingerprint: Option<u64>) {
        let fingerprints = self.fingerprints.get_or_insert_default();
        if fingerprints.len() <= MAX_DIFFERENT_OPERATIONS {
            fingerprints.extend(fingerprint);
        }
    }

    fn does_new_operations(&self) -> bool {
        self.fingerprints.as_ref().is_some_and(|fingerprints| fingerprints.len() > MAX_DIFFERENT_OPERATIONS)
    }

    /// Returns whether its only future outside of `loops` has backed off often while far memory did not change.
    fn is_idle(&self, monitor: &ProgressMonitor, waits: PendingWaits, loops: usize) -> bool {
        self.changes == monitor.changes
            && self.waited >= MIN_TRIES * YIELDS_PER_TRY
            && waits.awaited <= loops + 1
    }

    /// Records a failed CAS of a task.
    pub(super) fn exchange_failed(&mut self, task: u32, found: u64) {
        match self.interfered.iter_mut().find(|(of, ..)| *of == task) {
            Some((_, last, count)) => {
                *count += u64::from(*last != found);
                *last = found;
            }
            None => self.interfered.push((task, found, 1)),
        }
    }

    pub(super) fn interfered(&self, task: u32) -> u64 {
        self.interfered.iter().find(|(of, ..)| *of == task).map_or(0, |(.., count)| *count)
    }
}

/// The chains and timers that a thread waits for.
#[derive(Clone, Copy, Default)]
pub(super) struct PendingWaits {
    /// The number that a future waits for, and the number of the others.
    pub(super) awaited: usize,
    pub(super) background: usize,
    /// The beginning of the oldest that a future waits for.
    oldest: Option<Picos>,
}

impl PendingWaits {
    /// Returns whether it waits for no operation of the runtime: in virtual time it then waits for ever.
    pub(super) fn is_nothing(self) -> bool {
        self.awaited + self.background == 0
    }
}

/// The result of a check, for one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It may make progress.
    Alive,
    /// It repeats, but not often enough yet.
    Repeats,
    /// It has entered its loops after the suspicion began.
    Entered,
    Stuck,
}

impl World {
    /// Counts a posted chain.
    #[inline]
    pub(super) fn count_post(&mut self, thread: u32) {
        let Some(thread) = self.threads.get_mut(thread as usize) else { return };
        let progress = &mut thread.progress;
        self.monitor.useful += u64::from(progress.loops == 0);
        progress.steps += 1;
        progress.efforts += 1;
        if progress.efforts >= EFFORTS_PER_LOOK {
            progress.efforts = 0;
            self.count_effort();
        }
    }

    #[cold]
    fn count_effort(&mut self) {
        self.monitor.efforts += 1;
        // One check of all threads for as many efforts as there are threads.
        if self.monitor.efforts >= self.unfinished {
            (self.monitor.efforts, self.monitor.check_is_due) = (0, true);
        }
    }

    /// Counts a timer.
    pub(super) fn count_wait(&mut self, thread: u32, wait: TimerPurpose) {
        let Some(thread) = self.threads.get_mut(thread as usize) else { return };
        let progress = &mut thread.progress;
        if progress.changes != self.monitor.changes {
            (progress.changes, progress.waited) = (self.monitor.changes, 0);
        }
        let (waited, effort) = match wait {
            TimerPurpose::Sleep => (0, 1),
            // `loop_waits` counts these: it knows how often the loop has waited.
            TimerPurpose::Retry => (0, EFFORTS_PER_TRY),
            TimerPurpose::Yield => (1, 1),
        };
        progress.steps += 1;
        progress.waited += waited;
        progress.efforts += effort;
        if progress.efforts >= EFFORTS_PER_LOOK {
            progress.efforts = 0;
            self.count_effort();
        }
    }

    /// Records a wait of a loop before its next attempt; the first wait enters it in the table.
    pub(super) fn loop_waits(
        &mut self,
        (thread, task): (u32, u32),
        entry: &mut Option<LoopId>,
        purpose: LoopKind,
        until: Picos,
    ) {
        let now = self.clock(thread);
        let Some(state) = self.threads.get_mut(thread as usize) else { return };
        let interfered = state.progress.interfered(task);
        let id = *entry.get_or_insert_with(|| {
            state.progress.loops += 1;
            let before = (interfered, self.monitor.useful);
            self.monitor.loops.begins((thread, task), purpose, now, before)
        });
        let Some(waiting) = self.monitor.loops.waits(id, purpose, until, state.last) else { return };
        if waiting.tries == 1 {
            state.progress.waited += YIELDS_PER_TRY;
        }
        if waiting.tries.is_multiple_of(MIN_TRIES) {
            self.check_for_starvation(&waiting, interfered - waiting.interfered_before);
        }
    }

    /// Removes a loop that has ended.
    pub(super) fn loop_ends(&mut self, thread: u32, id: LoopId) {
        self.monitor.loops.ends(id);
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.progress.loops = thread.progress.loops.saturating_sub(1);
        }
    }

    /// Records that the program reads the clock: it may be waiting for a time.
    pub(super) fn reads_clock(&mut self, thread: u32) {
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.progress.clock_read_at = Some(self.now);
            thread.progress.steps = 0;
        }
    }

    // ---- livelocks ---------------------------------------------------------------------------------------------

    /// Returns the chains and timers that each thread waits for.
    pub(super) fn waits(&self) -> Vec<PendingWaits> {
        let mut waits = vec![PendingWaits::default(); self.threads.len()];
        for flight in &self.flights {
            let Some(of) = waits.get_mut(flight.thread as usize) else { continue };
            match flight.stage {
                Stage::Free | Stage::Forgotten => {}
                _ if flight.in_background => of.background += 1,
                _ => {
                    of.awaited += 1;
                    let begun = flight.posted_at;
                    of.oldest = Some(of.oldest.map_or(begun, |oldest| oldest.min(begun)));
                }
            }
        }
        waits
    }

    /// Checks all threads if a check is due. Called between polls: a thread that is being polled might be about to act.
    #[inline]
    pub(super) fn check_progress_if_due(&mut self) {
        if self.monitor.check_is_due {
            self.check_for_livelock();
        }
    }

    #[cold]
    fn check_for_livelock(&mut self) {
        self.monitor.check_is_due = false;
        if self.expects_fault() {
            self.monitor.suspicion = None;
            return;
        }
        let (waits, loops) = (self.waits(), self.monitor.loops.outermost(self.threads.len()));
        let running = |world: &Self, index: &usize| world.threads[*index].state == ThreadState::Running;
        let indices: Vec<usize> = (0..self.threads.len()).filter(|index| running(self, index)).collect();
        let Some(suspicion) = self.monitor.suspicion else {
            if indices.iter().all(|index| self.is_suspect(*index, waits[*index], &loops[*index])) {
                self.begin_suspicion();
            }
            return;
        };
        let mut worst = Verdict::Stuck;
        for index in indices {
            match self.judge(index, waits[index], &loops[index], suspicion) {
                Verdict::Repeats if worst == Verdict::Stuck => worst = Verdict::Repeats,
                Verdict::Stuck | Verdict::Repeats => {}
                Verdict::Entered => worst = Verdict::Entered,
                Verdict::Alive => {
                    self.monitor.suspicion = None;
                    return self.threads[index].progress.begin();
                }
            }
        }
        let lasted = self.now - suspicion.since;
        if worst == Verdict::Entered {
            self.begin_suspicion();
        } else if worst == Verdict::Stuck && lasted >= self.shortest_suspicion() {
            let report = format!("every thread retries for ever: {}", self.waiting());
            self.report_finding(Finding::Livelock, report);
        }
    }

    fn shortest_suspicion(&self) -> Picos {
        (self.config.rtt.saturating_mul(ROUND_TRIPS)).min(self.monitor.limit / PART_OF_LIMIT)
    }

    /// Begins a suspicion: from now on repetitions count.
    fn begin_suspicion(&mut self) {
        self.monitor.suspicion = Some(Suspicion { since: self.now, waits: self.monitor.loops.waits });
        for each in self.monitor.loops.iter_mut() {
            each.tries_before = each.tries;
        }
        for thread in &mut self.threads {
            thread.progress.begin();
        }
    }

    /// Returns whether this many loops account for all waits of a thread.
    fn cover_waits(loops: usize, waits: PendingWaits) -> bool {
        loops > 0 && loops >= waits.awaited
    }

    /// Returns whether a thread may be stuck, before a suspicion.
    fn is_suspect(&self, index: usize, waits: PendingWaits, loops: &[Loop]) -> bool {
        let progress = &self.threads[index].progress;
        if loops.iter().any(|each| !each.is_endless()) {
            return false;
        }
        let tried = loops.iter().filter(|each| each.tries >= MIN_TRIES).count();
        waits.is_nothing()
            || Self::cover_waits(tried, waits)
            || progress.steps >= MIN_STEPS
            || progress.is_idle(&self.monitor, waits, tried)
    }

    /// Returns the verdict on a thread during a suspicion.
    fn judge(&self, index: usize, waits: PendingWaits, loops: &[Loop], suspicion: Suspicion) -> Verdict {
        let progress = &self.threads[index].progress;
        let Suspicion { since, waits: first } = suspicion;
        let is_recent = |at: Option<Picos>| at.is_some_and(|at| at >= since);
        if loops.iter().any(|each| !each.is_endless())
            || is_recent(progress.clock_read_at)
            || is_recent(progress.hosted_changed_at)
        {
            return Verdict::Alive;
        }
        if waits.is_nothing() {
            return Verdict::Stuck;
        }
        let known = || loops.iter().filter(|each| each.born <= first);
        let tried_again = || known().filter(|each| each.tries >= each.tries_before + MIN_TRIES).count();
        if Self::cover_waits(known().count(), waits) {
            return if Self::cover_waits(tried_again(), waits) { Verdict::Stuck } else { Verdict::Repeats };
        }
        if progress.does_new_operations() {
            return Verdict::Alive;
        }
        let is_long = self.now - since >= self.monitor.limit / PART_OF_LIMIT;
        let has_gone_round =
            progress.is_idle(&self.monitor, waits, tried_again()) || (progress.steps >= MIN_STEPS && is_long);
        let tried = loops.iter().filter(|each| each.tries >= MIN_TRIES).count();
        if has_gone_round && waits.oldest.is_none_or(|oldest| oldest >= since) {
            Verdict::Stuck
        } else if Self::cover_waits(tried, waits) {
            Verdict::Entered
        } else {
            Verdict::Repeats
        }
    }

    // ---- starvation --------------------------------------------------------------------------------------------

    /// Checks whether a task is starved.
    #[cold]
    fn check_for_starvation(&mut self, each: &Loop, interfered: u64) {
        let threads = self.threads.len() as u64;
        let useful = self.monitor.useful - each.useful_before;
        let may_starve = matches!(each.purpose, LoopKind::Attempt | LoopKind::Ownership(_));
        if may_starve
            && each.tries >= STARVED_TRIES.max(STARVED_TRIES_PER_THREAD * threads)
            && interfered >= each.tries - each.tries / 8
            && useful >= USEFUL_CHAINS.max(USEFUL_CHAINS_PER_THREAD * threads)
        {
            let report = format!(
                "task {} of thread {} has failed {} times since {} because other threads were faster, which posted {useful} chains \
                 meanwhile: {}",
                each.task,
                each.thread,
                each.tries,
                Micros(each.since),
                self.waiting()
            );
            self.report_finding(Finding::Starved, report);
        }
    }

    /// Reports a stuck run, with the objects that its threads wait for.
    fn report_finding(&mut self, finding: Finding, report: String) {
        let awaited_objects = self.awaited_objects();
        self.books.add_awaited_objects(awaited_objects);
        self.books.find(finding, self.now, report);
    }

    // ---- other ends --------------------------------------------------------------------------------------------

    /// Reports a deadlock: the event queue is empty although threads wait.
    pub(super) fn report_deadlock(&mut self) {
        let report = format!("every thread is blocked: {}", self.waiting());
        self.report_finding(Finding::Deadlock, report);
    }

    /// Reports that the run has reached its limit.
    pub(super) fn report_out_of_time(&mut self) {
        let limit = Micros(self.monitor.limit);
        let report = format!("not done after {limit} (option `limit`): {}", self.waiting());
        self.report_finding(Finding::OutOfTime, report);
    }
}
