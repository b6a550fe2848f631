//! Faults: drawn from the seed with the odds of the options, or injected by a script.

use rand::{Rng, RngExt};

use super::events::Event;
use super::world::{ThreadState, World};
use crate::books::trace::What;
use crate::config::{Odds, Picos, picos};
use crate::fault::{Fault, FaultKind, When};
use crate::plant::Plant;
use farfield_fabric::error::{self, Error};
use farfield_words::Address;

/// How many times slower a slow memory node is.
const SLOWNESS: u64 = 10;
/// How long stalls and cuts last at most, in round trips.
const LONGEST_RTTS: u64 = 100;

/// A link that loses everything.
pub(super) struct Cut {
    compute: usize,
    memory: u16,
    until: Picos,
}

/// Faults that were injected and have not happened yet.
#[derive(Default)]
pub(super) struct Script {
    faults: Vec<Option<Fault>>,
    /// How many of them wait for an operation.
    counting: usize,
}

impl Script {
    /// Whether no fault waits for an operation.
    pub(super) fn is_empty(&self) -> bool {
        self.counting == 0
    }

    fn take(&mut self, index: usize) -> Option<Fault> {
        let fault = self.faults[index].take()?;
        self.counting -= usize::from(matches!(fault.when, When::AfterChains(_)));
        Some(fault)
    }
}

/// Why a thread may have died while it posted a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Befallen {
    Nothing,
    ByScript,
    ByChance,
}

impl World {
    /// Takes a fault into the script; one that is due at once happens, if a run is under way.
    pub fn inject(&mut self, fault: Fault) {
        self.script.counting += usize::from(matches!(fault.when, When::AfterChains(_)));
        self.script.faults.push(Some(fault));
        if self.running {
            self.schedule(self.script.faults.len() - 1);
        }
    }

    /// Puts the script's timed faults on the agenda, when a run begins; those that are due at once happen.
    pub(super) fn schedule_script(&mut self) {
        for index in 0..self.script.faults.len() {
            self.schedule(index);
        }
    }

    /// Whether a fault of the script is to come, which may bring on a run that goes round.
    pub(super) fn expects_fault(&self) -> bool {
        let runs = |compute| {
            self.threads_of(compute).any(|thread| self.threads[thread as usize].state == ThreadState::Running)
        };
        self.script.faults.iter().flatten().any(|fault| match fault.when {
            When::Now => false,
            When::At(time) => picos(time) < self.patience.give_up_at,
            When::AfterChains(_) => fault.compute().is_some_and(runs),
        })
    }

    fn schedule(&mut self, index: usize) {
        match self.script.faults[index].map(|fault| fault.when) {
            Some(When::Now) => self.befall_by_script(index as u32),
            Some(When::At(time)) => self.agenda.push(picos(time).max(self.now), Event::Fault(index as u32)),
            Some(When::AfterChains(_)) | None => {}
        }
    }

    /// A fault of the script is due.
    pub(super) fn befall_by_script(&mut self, index: u32) {
        if let Some(fault) = self.script.take(index as usize) {
            self.happen(fault.kind);
        }
    }

    /// What goes wrong as a thread posts a chain to memory node `node`.
    pub(super) fn befall(&mut self, thread: u32, node: u16) -> Befallen {
        let compute = self.compute_of(thread);
        let mut befallen = Befallen::Nothing;
        if !self.script.is_empty() {
            let posted = self.computes[compute].posted;
            for index in 0..self.script.faults.len() {
                let due = self.script.faults[index].is_some_and(|fault| {
                    fault.compute() == Some(compute)
                        && matches!(fault.when, When::AfterChains(chains) if posted > chains)
                });
                if due {
                    self.befall_by_script(index as u32);
                    befallen = Befallen::ByScript;
                }
            }
        }
        if self.chance(self.config.crash) && self.computes_alive() > 1 {
            self.happen(FaultKind::Crash { compute });
            befallen = Befallen::ByChance;
        }
        if self.chance(self.config.stall) {
            let until = self.now + self.some_round_trips();
            self.stall(compute, until);
        }
        if self.chance(self.config.cut) {
            let until = self.now + self.some_round_trips();
            self.cut(compute, node, until);
        }
        if self.chance(self.config.memory_crash) {
            self.happen(FaultKind::MemoryCrash { memory: node });
        }
        befallen
    }

    fn chance(&mut self, odds: Odds) -> bool {
        odds > 0 && self.agenda.rng.next_u32() <= odds
    }

    fn some_round_trips(&mut self) -> Picos {
        self.config.rtt * self.agenda.rng.random_range(1..=LONGEST_RTTS)
    }

    /// Makes some memory nodes slow from the start.
    pub(super) fn slow_some_down(&mut self) {
        for node in 0..self.memories.len() {
            if self.chance(self.config.slow) {
                self.slow(node as u16, SLOWNESS);
            }
        }
    }

    fn happen(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Crash { compute } => self.crash(compute),
            FaultKind::Stall { compute, duration } => self.stall(compute, self.now + picos(duration)),
            FaultKind::Cut { compute, memory, duration } => {
                self.cut(compute, memory, self.now + picos(duration));
            }
            FaultKind::MemoryCrash { memory } => {
                if let Some(node) = self.memories.get_mut(usize::from(memory)) {
                    node.dead = true;
                    self.books.note(None, self.now, What::MemoryDied { node: memory });
                }
            }
            FaultKind::Slow { memory, factor } => self.slow(memory, factor.into()),
        }
    }

    fn slow(&mut self, memory: u16, factor: u64) {
        if let Some(node) = self.memories.get_mut(usize::from(memory)) {
            node.slowness = factor;
            self.books.note(None, self.now, What::Slowed { node: memory, factor: factor as u32 });
        }
    }

    fn crash(&mut self, compute: usize) {
        for thread in self.threads_of(compute) {
            if self.threads[thread as usize].state == ThreadState::Running {
                self.threads[thread as usize].state = ThreadState::Dead(self.now);
                self.unfinished -= 1;
                self.dying.push(thread);
                self.books.died(thread, self.now);
                self.break_off(thread);
            }
        }
    }

    /// Breaks off what a dead thread has posted, on each connection at any word: what was behind that had not left yet.
    fn break_off(&mut self, thread: u32) {
        for pending in self.underway(thread) {
            let words = |flight: &u32| u64::from(self.flights[*flight as usize].words_left);
            let all: u64 = pending.iter().map(words).sum();
            let mut left = self.agenda.rng.random_range(0..=all);
            for flight in pending {
                let words = u64::from(self.flights[flight as usize].words_left).min(left);
                self.shorten(flight, words as u32);
                left -= words;
            }
        }
    }

    /// Breaks a chain off after so many further words. Nobody learns what it brought.
    pub(super) fn shorten(&mut self, flight: u32, words: u32) {
        let timeout_us = self.config.timeout / 1_000_000;
        let flight = &mut self.flights[flight as usize];
        if words < flight.words_left {
            let (node, operation, address) = (flight.node, "wait", Address::NULL);
            let error = error::NodeUnreachable { node, timeout_us, operation, address };
            (flight.words_left, flight.result) = (words, Err(Error::from(error)));
        }
    }

    /// Announces the deaths of threads whose last chains have been executed. Nobody may take over from a thread that may
    /// still write: so a real cluster closes a dead node's connections first.
    pub(super) fn announce_deaths(&mut self) {
        if self.dying.is_empty() {
            return;
        }
        let dying = std::mem::take(&mut self.dying);
        for thread in dying {
            let is_underway = self.is_underway(thread) && self.config.plant != Plant::HastyDeath;
            let list = if is_underway { &mut self.dying } else { &mut self.died };
            list.push(thread);
        }
    }

    fn stall(&mut self, compute: usize, until: Picos) {
        let Some(node) = self.computes.get_mut(compute) else { return };
        node.stalled_until = node.stalled_until.max(until);
        let thread = self.threads_of(compute).start;
        self.books.note(Some(thread), self.now, What::Stalled { until });
    }

    fn cut(&mut self, compute: usize, memory: u16, until: Picos) {
        let now = self.now;
        self.cuts.retain(|cut| cut.until > now);
        self.cuts.push(Cut { compute, memory, until });
        let thread = self.threads_of(compute).start;
        self.books.note(Some(thread), self.now, What::Cut { node: memory, until });
    }

    /// When the link between a thread and a memory node heals, if it is cut.
    pub(super) fn cut_until(&self, thread: u32, memory: u16) -> Option<Picos> {
        if self.cuts.is_empty() {
            return None;
        }
        let compute = self.compute_of(thread);
        let cut = |cut: &&Cut| cut.compute == compute && cut.memory == memory && cut.until > self.now;
        self.cuts.iter().filter(cut).map(|cut| cut.until).max()
    }

    fn threads_of(&self, compute: usize) -> std::ops::Range<u32> {
        let each = u64::from(self.config.threads_per_node);
        let threads = self.threads.len() as u64;
        let start = (compute as u64).saturating_mul(each).min(threads);
        start as u32..(start + each).min(threads) as u32
    }

    fn computes_alive(&self) -> usize {
        let alive = |compute: &usize| {
            self.threads_of(*compute)
                .any(|thread| self.threads[thread as usize].state == ThreadState::Running)
        };
        (0..self.computes.len()).filter(alive).count()
    }
}
