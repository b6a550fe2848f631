//! Faults: drawn from the seed with the options' probabilities, or injected by a script.

use rand::{Rng, RngExt};

use super::events::Event;
use super::world::{ThreadState, World};
use crate::books::trace::Action;
use crate::config::{Odds, Picos, picos};
use crate::fault::{Fault, FaultKind, FaultTime};
use crate::plant::Plant;
use farfield_fabric::error::{self, Error};
use farfield_words::Address;

/// The factor by which a slow memory node is slower.
const SLOWNESS: u64 = 10;
/// The longest random stall or cut, in round trips.
const MAX_RTTS: u64 = 100;

/// A link that loses all packets.
pub(super) struct Cut {
    compute: usize,
    memory: u16,
    until: Picos,
}

/// Injected faults that have not happened yet.
#[derive(Default)]
pub(super) struct Script {
    faults: Vec<Option<Fault>>,
    /// The number of faults that wait for an operation.
    waiting_for_chains: usize,
}

impl Script {
    /// Returns whether no fault waits for an operation.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting_for_chains == 0
    }

    fn take(&mut self, index: usize) -> Option<Fault> {
        let fault = self.faults[index].take()?;
        self.waiting_for_chains -= usize::from(matches!(fault.when, FaultTime::AfterChains(_)));
        Some(fault)
    }
}

/// The origin of a fault that may have killed a thread while it posted a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultOrigin {
    NoFault,
    Scripted,
    Drawn,
}

impl World {
    /// Adds a fault to the script. An immediate fault happens now if a run is under way.
    pub fn inject(&mut self, fault: Fault) {
        self.script.waiting_for_chains += usize::from(matches!(fault.when, FaultTime::AfterChains(_)));
        self.script.faults.push(Some(fault));
        if self.run_state.is_running() {
            self.schedule(self.script.faults.len() - 1);
        }
    }

    /// At the start of a run, schedules the script's timed faults, and applies the immediate ones.
    pub(super) fn schedule_script(&mut self) {
        for index in 0..self.script.faults.len() {
            self.schedule(index);
        }
    }

    /// Returns whether a scripted fault is still to come, which may end a loop of the run.
    pub(super) fn expects_fault(&self) -> bool {
        let runs = |compute| {
            self.threads_of(compute).any(|thread| self.threads[thread as usize].state == ThreadState::Running)
        };
        self.script.faults.iter().flatten().any(|fault| match fault.when {
            FaultTime::Now => false,
            FaultTime::At(time) => picos(time) < self.monitor.give_up_at,
            FaultTime::AfterChains(_) => fault.compute().is_some_and(runs),
        })
    }

    fn schedule(&mut self, index: usize) {
        match self.script.faults[index].map(|fault| fault.when) {
            Some(FaultTime::Now) => self.apply_scripted_fault(index as u32),
            Some(FaultTime::At(time)) => {
                self.events.push(picos(time).max(self.now), Event::Fault(index as u32));
            }
            Some(FaultTime::AfterChains(_)) | None => {}
        }
    }

    /// Applies a scripted fault that is due.
    pub(super) fn apply_scripted_fault(&mut self, index: u32) {
        if let Some(fault) = self.script.take(index as usize) {
            self.apply_fault(fault.kind);
        }
    }

    /// Applies the faults that are due, or drawn, when a thread posts a chain to memory node `node`.
    pub(super) fn apply_faults_of_post(&mut self, thread: u32, node: u16) -> FaultOrigin {
        let compute = self.compute_node_of(thread);
        let mut origin = FaultOrigin::NoFault;
        if !self.script.is_empty() {
            let posted = self.compute_nodes[compute].posted;
            for index in 0..self.script.faults.len() {
                let due = self.script.faults[index].is_some_and(|fault| {
                    fault.compute() == Some(compute)
                        && matches!(fault.when, FaultTime::AfterChains(chains) if posted > chains)
                });
                if due {
                    self.apply_scripted_fault(index as u32);
                    origin = FaultOrigin::Scripted;
                }
            }
        }
        if self.draw(self.config.crash) && self.compute_nodes_alive() > 1 {
            self.apply_fault(FaultKind::Crash { compute });
            origin = FaultOrigin::Drawn;
        }
        if self.draw(self.config.stall) {
            let until = self.now + self.random_duration();
            self.stall(compute, until);
        }
        if self.draw(self.config.cut) {
            let until = self.now + self.random_duration();
            self.cut(compute, node, until);
        }
        if self.draw(self.config.memory_crash) {
            self.apply_fault(FaultKind::MemoryCrash { memory: node });
        }
        origin
    }

    fn draw(&mut self, odds: Odds) -> bool {
        odds > 0 && self.events.rng.next_u32() <= odds
    }

    fn random_duration(&mut self) -> Picos {
        self.config.rtt * self.events.rng.random_range(1..=MAX_RTTS)
    }

    /// Makes randomly chosen memory nodes slow from the start.
    pub(super) fn slow_random_nodes(&mut self) {
        for node in 0..self.memory_nodes.len() {
            if self.draw(self.config.slow) {
                self.slow(node as u16, SLOWNESS);
            }
        }
    }

    fn apply_fault(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::Crash { compute } => self.crash(compute),
            FaultKind::Stall { compute, duration } => self.stall(compute, self.now + picos(duration)),
            FaultKind::Cut { compute, memory, duration } => {
                self.cut(compute, memory, self.now + picos(duration));
            }
            FaultKind::MemoryCrash { memory } => {
                // The memory of a compute node dies with its threads, not alone.
                if self.compute_of_node(memory).is_none()
                    && let Some(node) = self.memory_node(memory)
                {
                    node.dead = true;
                    self.books.note(None, self.now, Action::MemoryDied { node: memory });
                }
            }
            FaultKind::Slow { memory, factor } => self.slow(memory, factor.into()),
        }
    }

    fn slow(&mut self, memory: u16, factor: u64) {
        if let Some(node) = self.memory_node(memory) {
            node.slowness = factor;
            self.books.note(None, self.now, Action::Slowed { node: memory, factor: factor as u32 });
        }
    }

    fn crash(&mut self, compute: usize) {
        self.hosting_dies(compute);
        for thread in self.threads_of(compute) {
            if self.threads[thread as usize].state == ThreadState::Running {
                self.threads[thread as usize].state = ThreadState::Dead(self.now);
                self.unfinished -= 1;
                self.dying.push(thread);
                self.books.died(thread, self.now);
                self.truncate_posted(thread);
            }
        }
    }

    /// Truncates the posted chains of a dead thread, on each connection at a random word: later words had not left yet.
    fn truncate_posted(&mut self, thread: u32) {
        for pending in self.underway(thread) {
            let words = |flight: &u32| u64::from(self.flights[*flight as usize].remaining_words);
            let all: u64 = pending.iter().map(words).sum();
            let mut remaining = self.events.rng.random_range(0..=all);
            for flight in pending {
                let words = u64::from(self.flights[flight as usize].remaining_words).min(remaining);
                self.truncate_chain(flight, words as u32);
                remaining -= words;
            }
        }
    }

    /// Truncates a chain after `words` further words. Its result is an error.
    pub(super) fn truncate_chain(&mut self, flight: u32, words: u32) {
        let timeout_us = self.config.timeout / 1_000_000;
        let flight = &mut self.flights[flight as usize];
        if words < flight.remaining_words {
            let (node, operation, address) = (flight.node, "wait", Address::NULL);
            let error = error::NodeUnreachable { node, timeout_us, operation, address };
            (flight.remaining_words, flight.result) = (words, Err(Error::from(error)));
        }
    }

    /// Announces the deaths of threads whose last chains have been executed. A thread's locks must not be taken over while it may still write: a
    /// real cluster closes a dead node's connections first.
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
        let Some(node) = self.compute_nodes.get_mut(compute) else { return };
        node.stalled_until = node.stalled_until.max(until);
        let thread = self.threads_of(compute).start;
        self.books.note(Some(thread), self.now, Action::Stalled { until });
    }

    fn cut(&mut self, compute: usize, memory: u16, until: Picos) {
        let now = self.now;
        self.cuts.retain(|cut| cut.until > now);
        self.cuts.push(Cut { compute, memory, until });
        let thread = self.threads_of(compute).start;
        self.books.note(Some(thread), self.now, Action::Cut { node: memory, until });
    }

    /// Returns when the link between a thread and a memory node heals, if it is cut.
    pub(super) fn cut_until(&self, thread: u32, memory: u16) -> Option<Picos> {
        if self.cuts.is_empty() {
            return None;
        }
        let compute = self.compute_node_of(thread);
        let cut = |cut: &&Cut| cut.compute == compute && cut.memory == memory && cut.until > self.now;
        self.cuts.iter().filter(cut).map(|cut| cut.until).max()
    }

    fn threads_of(&self, compute: usize) -> std::ops::Range<u32> {
        let each = u64::from(self.config.threads_per_node);
        let threads = self.threads.len() as u64;
        let start = (compute as u64).saturating_mul(each).min(threads);
        start as u32..(start + each).min(threads) as u32
    }

    fn compute_nodes_alive(&self) -> usize {
        let alive = |compute: &usize| {
            self.threads_of(*compute)
                .any(|thread| self.threads[thread as usize].state == ThreadState::Running)
        };
        (0..self.compute_nodes.len()).filter(alive).count()
    }
}
