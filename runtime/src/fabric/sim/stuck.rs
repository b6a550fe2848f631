//! When to give a run up, and what to say then.
//!
//! A run ends by itself when its threads have ended. If it does not, it is
//!
//! - a *deadlock*, if nothing is on the agenda: all threads wait for what nobody will do;
//! - a *livelock*, if every thread only tries again and again ([`Backoff`](crate::Backoff), `yield_now`) and no word of
//!   far memory has changed for a long while: so nothing ever will;
//! - out of time, if it reaches the `limit`.
//!
//! The second is a judgement, and errs towards patience: each thread must have waited [`RETRIES`] times in vain, with
//! little else done in between, and each of its tasks must have tried since the last change. That epochs advance is none.

use super::config::{Picos, SimConfig};
use super::world::{ThreadState, World};
use crate::error::Finding;
use crate::sim::trace::Time;

/// How often every thread must have backed off in vain.
const RETRIES: u64 = 64;
/// How many times giving way counts as one backing off.
const YIELDS_PER_RETRY: u64 = 5000;
/// A thread that posts so many chains between two waits does something else.
const BUSY_CHAINS: u64 = 10_000;
/// How many threads a report names.
const NAMED: usize = 4;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The program wants to wait for so long.
    Sleep,
    /// It wants to try again.
    Retry,
    /// It gives way.
    Yield,
}

/// Knows how long nothing has changed.
pub(super) struct Patience {
    /// Changes of far memory so far.
    changes: u64,
    /// Waits of threads that had waited so often before, since the last look at all threads.
    hopeless_waits: usize,
    limit: Picos,
    /// When the run is out of time.
    pub(super) give_up_at: Picos,
}

impl Patience {
    pub(super) fn new(config: &SimConfig) -> Self {
        Self { changes: 0, hopeless_waits: 0, limit: config.limit, give_up_at: 0 }
    }

    pub(super) fn begin(&mut self, now: Picos) {
        self.give_up_at = now.saturating_add(self.limit);
    }

    #[inline]
    pub(super) fn memory_changed(&mut self) {
        self.changes += 1;
    }
}

/// How often a thread has waited in vain.
#[derive(Default)]
pub(super) struct InVain {
    /// In units of giving way once.
    waited: u64,
    /// [`Patience::changes`] at the time.
    changes: u64,
    chains_since: u64,
    sleeps_until: Picos,
    /// When the last of its waits so far ends, and the last of those that began before the last change or soon after: what comes
    /// after such a one has not been tried yet.
    waits_until: Picos,
    tries_by: Picos,
}

impl InVain {
    pub(super) fn waits(&mut self, wait: Wait, until: Picos, patience: &Patience) {
        if self.changes != patience.changes || self.chains_since > BUSY_CHAINS {
            (self.changes, self.waited) = (patience.changes, 0);
        }
        self.chains_since = 0;
        self.waits_until = self.waits_until.max(until);
        if self.waited < RETRIES / 2 * YIELDS_PER_RETRY {
            self.tries_by = self.waits_until;
        }
        match wait {
            Wait::Sleep => self.sleeps_until = self.sleeps_until.max(until),
            Wait::Retry => self.waited += YIELDS_PER_RETRY,
            Wait::Yield => self.waited += 1,
        }
    }

    #[inline]
    pub(super) fn posts(&mut self) {
        self.chains_since += 1;
    }

    fn is_hopeless(&self, now: Picos, patience: &Patience) -> bool {
        self.changes == patience.changes
            && self.waited >= RETRIES * YIELDS_PER_RETRY
            && self.chains_since <= BUSY_CHAINS
            && self.sleeps_until.max(self.tries_by) <= now
    }
}

impl World {
    /// A thread waits; notes a livelock, if this is one.
    pub(super) fn waits_for(&mut self, thread: u32, wait: Wait, until: Picos) {
        let Some(thread) = self.threads.get_mut(thread as usize) else { return };
        thread.in_vain.waits(wait, until, &self.patience);
        if thread.in_vain.is_hopeless(self.now, &self.patience) {
            self.patience.hopeless_waits += 1;
            // One look at all threads for as many waits as there are threads.
            if self.patience.hopeless_waits >= self.unfinished {
                self.patience.hopeless_waits = 0;
                self.look_for_livelock();
            }
        }
    }

    fn look_for_livelock(&mut self) {
        let (now, patience) = (self.now, &self.patience);
        let mut running =
            self.threads.iter().filter(|thread| thread.state == ThreadState::Running).peekable();
        if running.peek().is_some() && running.all(|thread| thread.in_vain.is_hopeless(now, patience)) {
            let report = format!("every thread tries again for ever: {}", self.waiting());
            self.books.find(Finding::Livelock, now, report);
        }
    }

    /// Notes that the agenda is empty though threads wait.
    pub(super) fn is_deadlocked(&mut self) {
        let report = format!("nothing will ever happen: {}", self.waiting());
        self.books.find(Finding::Deadlock, self.now, report);
    }

    /// Notes that the run is out of time.
    pub(super) fn is_out_of_time(&mut self) {
        let limit = Time(self.patience.limit);
        let report = format!("not done after {limit} (option `limit`): {}", self.waiting());
        self.books.find(Finding::OutOfTime, self.now, report);
    }

    /// Who waits, and what each last did: `thread 2 after "CAS 0:0x4150 Node.lock …"`.
    fn waiting(&self) -> String {
        let names = self.books.names();
        let mut parts = Vec::new();
        let mut unnamed = 0;
        for (index, thread) in self.threads.iter().enumerate() {
            if thread.state != ThreadState::Running {
                continue;
            }
            if parts.len() == NAMED {
                unnamed += 1;
                continue;
            }
            let did = thread.last.map_or("no operation".to_owned(), |last| {
                let action = names.action(&last);
                format!(
                    "`{}` at {}",
                    action.split_whitespace().collect::<Vec<_>>().join(" "),
                    Time(last.who.at)
                )
            });
            parts.push(format!("thread {index} waits after {did}"));
        }
        if unnamed > 0 {
            parts.push(format!("and {unnamed} more"));
        }
        for (index, thread) in self.threads.iter().enumerate() {
            if let ThreadState::Dead(at) = thread.state {
                parts.push(format!("thread {index} died at {}", Time(at)));
            }
        }
        parts.join("; ")
    }
}
