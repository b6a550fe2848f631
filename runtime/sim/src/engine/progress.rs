//! When to give a run up.
//!
//! A run ends by itself when its threads have ended. If it does not, it is
//!
//! - a *deadlock*, if nothing is on the agenda: all threads wait for what nobody will do;
//! - a *livelock*, if every thread goes round and round in loops that end only if another thread does something;
//! - *starved*, if a task has tried one operation again and again, and failed because others were faster, while these did a lot;
//! - out of time, if it reaches the `limit`.
//!
//! # Livelocks
//!
//! That memory changes is no progress: locks are taken and given back, epochs advance, nodes come and go, and no operation ends. So
//! threads are judged, not words. At a look every thread must be one of these:
//!
//! 1. *In loops.* Each chain and timer that the thread waits for is matched by an [outermost loop](super::loops) that has waited
//!    [`MIN_TRIES`] times. A thread with a future outside of such loops is at work.
//! 2. *Going round.* For loops that never await a `Backoff`, and those that make a new one for each wait: what the thread does repeats
//!    itself. Each operation has a fingerprint of its kind, its place and its words; new objects count by their types,
//!    locks by their owners, and the runtime's own words not at all. A thread that has done [`MIN_STEPS`] things, of which no more than
//!    [`MAX_DIFFERENT_OPERATIONS`] were different, goes round; so does one whose only future outside of loops has backed off [`MIN_TRIES`] times while no
//!    word of far memory changed. A thread that asks for the time may be waiting for it, and does not.
//! 3. *Lost.* It waits for nothing of the runtime's: nobody will ever poll it again.
//!
//! The first such look only raises a *suspicion*. If, from then on, no thread leaves its loops or does something new, and
//! all have gone round as often once more, no thread has anything to wait for but the others: it is a livelock. So each loop has been
//! tried [`MIN_TRIES`] times after the last thread had entered its own. A thread that sleeps, or whose link is cut or whose node is stalled,
//! waits for what was begun before the suspicion, and is not judged; nor is a run whose script has a fault to come.
//!
//! | in every thread | found after |
//! |---|---|
//! | a `Backoff` that lives as long as the loop | 2 x 64 waits of each loop, and at least 10,000 round trips: 20 ms to 0.5 s with `rtt=2us` |
//! | a loop without one, or with a new one each time, and memory does not change | the same |
//! | a loop without one, and memory changes, or it waits for nothing at all | 2 x 100,000 chains and timers of each thread, and an eighth of the `limit`: 0.4 s in tests |
//!
//! It is a judgement, and errs towards patience. What it can not tell from a livelock is a program whose threads all count up to a large
//! number in memory of their own, and do the same few operations for each.
//!
//! # Starvation
//!
//! Lock-free structures and locks that nobody queues for permit it, so the bounds are far from what an honest one reaches: the task has failed
//! [`STARVED_TRIES`] times, and more where there are more threads, nearly always because a word had changed since its last attempt; meanwhile
//! others have posted [`USEFUL_CHAINS`] chains, or more, in no loop. With `n` threads that take turns at one word, each failing
//! attempt has a chance of at most `1 - 1/n`; `32 n` in a row are as likely as `e^-32`. Who waits for a word to become something, and sees it
//! unchanged, is not starved.

use std::collections::HashSet;

use super::loops::{Loop, LoopId, LoopKind, Loops};
use super::world::{Stage, ThreadState, World};
use crate::books::trace::Micros;
use crate::config::{Picos, SimConfig};
use farfield_fabric::error::Finding;

/// How often a loop must have waited, or a thread backed off, at least.
const MIN_TRIES: u64 = 64;
/// How many times giving way counts as one backing off.
const YIELDS_PER_TRY: u64 = 500;
/// How many chains and timers are many, for a thread that does not back off.
const MIN_STEPS: u64 = 100_000;
/// How many different things one does that goes round.
const MAX_DIFFERENT_OPERATIONS: usize = 256;
/// How many round trips a suspicion lasts at least, and the part of the `limit` that is enough.
const ROUND_TRIPS: u64 = 10_000;
const PART_OF_LIMIT: u64 = 16;
/// All threads are looked at for as many times this effort as there are threads. A chain, a timer or giving way is an effort of one.
const EFFORTS_PER_LOOK: u32 = 8192;
const EFFORTS_PER_TRY: u32 = 512;

/// How often one must have failed to be starved, and how often for each thread.
const STARVED_TRIES: u64 = 256;
const STARVED_TRIES_PER_THREAD: u64 = 32;
/// How many chains others must have posted meanwhile, and how many for each thread.
const USEFUL_CHAINS: u64 = 100_000;
const USEFUL_CHAINS_PER_THREAD: u64 = 4_000;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerPurpose {
    /// The program wants to wait for so long.
    Sleep,
    /// It wants to try again.
    Retry,
    /// It gives way.
    Yield,
}

/// Knows how long nothing has come of what threads do.
pub(super) struct ProgressMonitor {
    pub(super) loops: Loops,
    /// Changes of far memory so far, but for those of epochs.
    changes: u64,
    /// Chains that threads have posted while none of their loops had waited.
    useful: u64,
    /// Threads whose effort has been worth a look since the last, and whether one is due.
    efforts: usize,
    check_is_due: bool,
    suspicion: Option<Suspicion>,
    limit: Picos,
    /// When the run is out of time.
    pub(super) give_up_at: Picos,
}

/// All threads seemed to go round.
#[derive(Clone, Copy)]
struct Suspicion {
    since: Picos,
    /// The loops' count of waits at the time: loops that are older were there.
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

    /// Since when what threads do is compared with what they did.
    #[inline]
    pub(super) fn suspicious_since(&self) -> Option<Picos> {
        self.suspicion.map(|suspicion| suspicion.since)
    }
}

/// How often a thread has waited in vain, and how little else it did.
#[derive(Default)]
pub(super) struct ThreadProgress {
    /// Chains and timers; and, while `changes` was [`ProgressMonitor::changes`], how often it gave way, and in units of that how often it
    /// waited in loops that had not waited before.
    steps: u64,
    waited: u64,
    changes: u64,
    /// Since all threads were looked at on its behalf.
    efforts: u32,
    /// Its loops that have waited.
    pub(super) loops: u32,
    /// When it last asked for the time.
    clock_read_at: Option<Picos>,
    /// Fingerprints of what it has done since the suspicion began, up to one too many.
    fingerprints: Option<HashSet<u64>>,
    /// By task: what its last exchange in vain found, and how often that was not what the one before had found.
    interfered: Vec<(u32, u64, u64)>,
}

impl ThreadProgress {
    /// What it does from now on counts.
    fn begin(&mut self) {
        (self.steps, self.waited, self.fingerprints) = (0, 0, None);
    }

    /// The thread has done something, with this fingerprint, while it is suspected of doing nothing new.
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

    /// Whether a future of it, the only one outside of so many loops, has backed off often, and far memory is as it was.
    fn is_idle(&self, monitor: &ProgressMonitor, waits: PendingWaits, loops: usize) -> bool {
        self.changes == monitor.changes
            && self.waited >= MIN_TRIES * YIELDS_PER_TRY
            && waits.awaited <= loops + 1
    }

    /// An exchange of a task has failed.
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

/// What a thread waits for, as far as it is the runtime's.
#[derive(Clone, Copy, Default)]
pub(super) struct PendingWaits {
    /// Chains and timers that a future waits for, and the others.
    pub(super) awaited: usize,
    pub(super) background: usize,
    /// When the oldest that is awaited was begun.
    oldest: Option<Picos>,
}

impl PendingWaits {
    /// Whether it waits for nothing that the runtime knows of: if it waits at all, then for ever.
    pub(super) fn is_nothing(self) -> bool {
        self.awaited + self.background == 0
    }
}

/// What a look finds of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It may get on.
    Alive,
    /// It is as it was, but has not been so for long.
    Repeats,
    /// It has entered its loops since the suspicion began.
    Entered,
    Stuck,
}

impl World {
    /// A thread posts a chain.
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
        // One look at all threads for the efforts of as many.
        if self.monitor.efforts >= self.unfinished {
            (self.monitor.efforts, self.monitor.check_is_due) = (0, true);
        }
    }

    /// A thread waits for a time.
    pub(super) fn count_wait(&mut self, thread: u32, wait: TimerPurpose) {
        let Some(thread) = self.threads.get_mut(thread as usize) else { return };
        let progress = &mut thread.progress;
        if progress.changes != self.monitor.changes {
            (progress.changes, progress.waited) = (self.monitor.changes, 0);
        }
        let (waited, effort) = match wait {
            TimerPurpose::Sleep => (0, 1),
            // Counted below, where it is known for how long the loop has waited.
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

    /// A loop waits before its next attempt; the first time it enters the table.
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

    /// A loop has ended.
    pub(super) fn loop_ends(&mut self, thread: u32, id: LoopId) {
        self.monitor.loops.ends(id);
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.progress.loops = thread.progress.loops.saturating_sub(1);
        }
    }

    /// The program asks for the time: it may be waiting for it.
    pub(super) fn reads_clock(&mut self, thread: u32) {
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            thread.progress.clock_read_at = Some(self.now);
            thread.progress.steps = 0;
        }
    }

    // ---- livelocks ---------------------------------------------------------------------------------------------

    /// What each thread waits for.
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

    /// Looks at all threads, if that is due. Not while one is polled: it might be about to do something.
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
            let report = format!("every thread tries again for ever: {}", self.waiting());
            self.report_finding(Finding::Livelock, report);
        }
    }

    fn shortest_suspicion(&self) -> Picos {
        (self.config.rtt.saturating_mul(ROUND_TRIPS)).min(self.monitor.limit / PART_OF_LIMIT)
    }

    /// All threads have gone round for a while: from now on it counts.
    fn begin_suspicion(&mut self) {
        self.monitor.suspicion = Some(Suspicion { since: self.now, waits: self.monitor.loops.waits });
        for each in self.monitor.loops.iter_mut() {
            each.tries_before = each.tries;
        }
        for thread in &mut self.threads {
            thread.progress.begin();
        }
    }

    /// Whether everything that a thread waits for is in so many loops.
    fn cover_waits(loops: usize, waits: PendingWaits) -> bool {
        loops > 0 && loops >= waits.awaited
    }

    /// Whether a thread may be stuck.
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

    /// What has become of a suspicion.
    fn judge(&self, index: usize, waits: PendingWaits, loops: &[Loop], suspicion: Suspicion) -> Verdict {
        let progress = &self.threads[index].progress;
        let Suspicion { since, waits: first } = suspicion;
        if loops.iter().any(|each| !each.is_endless()) || progress.clock_read_at.is_some_and(|at| at >= since)
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

    /// Looks whether a task fails for ever, because others are faster.
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
                "task {} of thread {} has failed {} times since {} because others were faster, which posted {useful} chains \
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

    /// The run does not get on: notes it, and what its threads wait for.
    fn report_finding(&mut self, finding: Finding, report: String) {
        let awaited_objects = self.awaited_objects();
        self.books.add_awaited_objects(awaited_objects);
        self.books.find(finding, self.now, report);
    }

    // ---- other ends --------------------------------------------------------------------------------------------

    /// Notes that the agenda is empty though threads wait.
    pub(super) fn report_deadlock(&mut self) {
        let report = format!("nothing will ever happen: {}", self.waiting());
        self.report_finding(Finding::Deadlock, report);
    }

    /// Notes that the run is out of time.
    pub(super) fn report_out_of_time(&mut self) {
        let limit = Micros(self.monitor.limit);
        let report = format!("not done after {limit} (option `limit`): {}", self.waiting());
        self.report_finding(Finding::OutOfTime, report);
    }
}
