//! Hosted memory: words of far memory that lie in the memory of a compute node, as if a process had registered them with its own NIC.
//!
//! A thread *hosts* words: other threads post chains to them as to any word, and the chains go to the host's compute node. The host itself loads and
//! stores the words without the network, and is polled when a chain has changed one. So a request needs one way, not a round trip: it is the basis of
//! delegation, where clients write requests into the memory of the thread that serves them.
//!
//! - A compute node that hosts memory has an entry in [`World::memory_nodes`], behind those of the memory nodes: its number is the number of memory
//!   nodes plus its own. So queues, service times, the order of chains, cuts and slowness are those of a memory node. Connections, errors, traces and
//!   faults name the node by this number.
//! - Its NIC handles arriving chains and the doorbells of its own threads, one at a time: each keeps the other waiting.
//! - A chain goes where its first word lies when it is posted. All its operations must lie there; otherwise the run ends with a
//!   [`WildAccess`](Finding::WildAccess).
//! - Scans, by which sweeps and leak checks read blocks of memory, still go to the memory node: a block is swept although its host is dead.
//! - A chain that is under way when hosting begins or ends is executed by the node that it was posted to. It is not ordered with later chains of its
//!   thread, which go to another node.
//! - The node dies with its threads. Then chains fail at their timeouts as on a dead memory node, even those that wait in the NIC's queue, and a chain
//!   that is being executed breaks off. Its words stay unreachable until a thread hosts them again, or [`Sim::unhost`](super::Sim::unhost) or the end
//!   of the block makes them ordinary memory, with the values that they have.
//!
//! A load or store of the host takes effect at the time of its poll, although the thread's clock may be ahead: a chain can observe a stored word early,
//! by at most the thread's work in that poll.
//!
//! Invariant: no two ranges overlap. Runs without hosted memory pay a test for an empty map for each chain and each burst of words, and are the same
//! as without this module.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::PAUSE;
use super::events::Event;
use super::world::{MemoryNode, ThreadState, World};
use crate::books::trace::{Action, Record, SHOWN_WORDS};
use crate::config::Picos;
use crate::work::Work;
use farfield_fabric::chain::{Op, RawChain, ReadScope};
use farfield_fabric::error::{Error, Finding};
use farfield_words::Address;
use farfield_words::WORD_BYTES;

/// The bytes of a cache line.
const LINE_BYTES: u64 = 64;

/// The hosted ranges of a run.
#[derive(Default)]
pub(super) struct HostedMemory {
    /// By the bits of the first word's address.
    ranges: BTreeMap<u64, HostedRange>,
    /// Hosts of words that chains have changed since hosts were last woken.
    changed: Vec<u32>,
}

/// Consecutive words that a thread hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostedRange {
    pub(super) at: Address,
    pub(super) words: usize,
    pub(super) thread: u32,
    /// The number of its compute node behind those of the memory nodes.
    node: u16,
}

impl HostedRange {
    fn end(&self) -> u64 {
        end(self.at, self.words)
    }
}

/// Returns the bits of the address behind some words.
fn end(at: Address, words: usize) -> u64 {
    at.bits().saturating_add((words * WORD_BYTES) as u64)
}

impl HostedMemory {
    /// Ends all hosting.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.changed.clear();
    }

    /// Returns the range that contains the word.
    fn at(&self, at: Address) -> Option<&HostedRange> {
        let (_, range) = self.ranges.range(..=at.bits()).next_back()?;
        (at.bits() < range.end()).then_some(range)
    }

    /// Returns the ranges that contain any of these words.
    fn overlapping(&self, at: Address, words: usize) -> impl Iterator<Item = &HostedRange> {
        self.ranges.range(self.bits_of_overlapping(at, words)).map(|(_, range)| range)
    }

    /// Returns the bits between which ranges begin that contain any of these words.
    fn bits_of_overlapping(&self, at: Address, words: usize) -> Range<u64> {
        let first = self.at(at).map_or(at.bits(), |range| range.at.bits());
        first..end(at, words).max(first)
    }

    /// Ends the hosting of ranges that begin in this block.
    fn end_within(&mut self, at: Address, words: usize) {
        let block = at.bits()..end(at, words);
        while let Some((&begins, _)) = self.ranges.range(block.clone()).next() {
            self.ranges.remove(&begins);
        }
    }

    /// Ends the hosting of a thread.
    pub(super) fn end_of_thread(&mut self, thread: u32) {
        self.ranges.retain(|_, range| range.thread != thread);
    }

    /// Records that a chain has changed some of these words.
    #[inline]
    pub(super) fn changed(&mut self, at: Address, words: usize) {
        if !self.ranges.is_empty() {
            let range = self.bits_of_overlapping(at, words);
            self.changed.extend(self.ranges.range(range).map(|(_, range)| range.thread));
        }
    }

    /// Returns all ranges.
    pub(super) fn all(&self) -> impl Iterator<Item = &HostedRange> {
        self.ranges.values()
    }

    /// Returns the ranges of a thread.
    pub(super) fn of_thread(&self, thread: u32) -> impl Iterator<Item = &HostedRange> {
        self.ranges.values().filter(move |range| range.thread == thread)
    }

    /// Returns the node that has all words of an operation; `None` is the memory node. `Err` if no single node has them.
    fn node_of(&self, op: &Op) -> Result<Option<u16>, ()> {
        let node = self.at(op.at()).map(|range| range.node);
        let mut reached = op.at().bits();
        for range in self.overlapping(op.at(), op.words()) {
            if Some(range.node) != node || range.at.bits() > reached {
                return Err(());
            }
            reached = range.end();
        }
        if node.is_some() && reached < end(op.at(), op.words()) { Err(()) } else { Ok(node) }
    }
}

impl World {
    /// Returns the number of a compute node behind those of the memory nodes.
    fn node_of_compute(&self, compute: usize) -> Option<u16> {
        u16::try_from(usize::from(self.geometry.nodes()) + compute).ok()
    }

    /// Returns the compute node with this number, if it is none of a memory node.
    pub(super) fn compute_of_node(&self, node: u16) -> Option<usize> {
        node.checked_sub(self.geometry.nodes()).map(usize::from)
    }

    /// Returns a memory node, or the entry of a compute node of the run; `None` if there is no such node.
    pub(super) fn memory_node(&mut self, node: u16) -> Option<&mut MemoryNode> {
        if let Some(compute) = self.compute_of_node(node)
            && compute < self.compute_nodes.len()
            && self.memory_nodes.len() <= usize::from(node)
        {
            self.memory_nodes.resize(usize::from(node) + 1, MemoryNode::default());
        }
        self.memory_nodes.get_mut(usize::from(node))
    }

    /// Declares that words lie in the memory of a thread's compute node.
    pub(super) fn host(&mut self, thread: u32, at: Address, words: usize) {
        if !self.takes_effect(thread) || words == 0 {
            return;
        }
        let compute = self.compute_node_of(thread);
        self.admit_compute_node(compute);
        let Some(node) = self.node_of_compute(compute) else {
            debug_assert!(false, "a run has fewer compute nodes than {compute}");
            return;
        };
        self.memory_node(node);
        let replaced: Vec<HostedRange> = self.hosted.overlapping(at, words).copied().collect();
        for range in replaced {
            debug_assert!(
                range.thread == thread || self.is_dead(range.thread),
                "thread {thread} hosts {words} words at {at}, some of which thread {} hosts",
                range.thread
            );
            self.hosted.ranges.remove(&range.at.bits());
        }
        self.hosted.ranges.insert(at.bits(), HostedRange { at, words, thread, node });
    }

    /// Ends the hosting of the range that begins at `at`.
    pub(super) fn unhost(&mut self, thread: u32, at: Address) {
        if self.takes_effect(thread) {
            self.hosted.ranges.remove(&at.bits());
        }
    }

    /// Ends the hosting of words in a block that is freed: it becomes ordinary memory.
    pub(super) fn unhost_block(&mut self, at: Address) {
        if !self.hosted.ranges.is_empty()
            && let Some(block) = self.books.allocations.at(at)
        {
            self.hosted.end_within(at, block.bytes as usize / WORD_BYTES);
        }
    }

    /// Returns the hosting node that a chain goes to, if its first word is hosted.
    ///
    /// # Errors
    /// The run's finding, if no single node has all words of the chain.
    #[inline]
    pub(super) fn hosting_node(&mut self, thread: u32, chain: &RawChain) -> Result<Option<u16>, Error> {
        if self.hosted.ranges.is_empty() { Ok(None) } else { self.find_hosting_node(thread, chain) }
    }

    fn find_hosting_node(&mut self, thread: u32, chain: &RawChain) -> Result<Option<u16>, Error> {
        let is_scan = |op: &Op| matches!(op, Op::Read { scope: ReadScope::Any, .. });
        let Some(first) = chain.ops().first() else { return Ok(None) };
        if chain.ops().iter().any(is_scan) {
            return Ok(None);
        }
        let node = self.hosted.at(first.at()).map(|range| range.node);
        let Some(op) = chain.ops().iter().find(|op| self.hosted.node_of(op) != Ok(node)) else {
            return Ok(node);
        };
        let host = self.hosted.overlapping(op.at(), op.words()).chain(self.hosted.at(first.at())).next();
        let report = format!(
            "{} of {} words at {} by thread {thread}, in a chain that begins at {}, lies partly in memory that thread {} hosts and \
             partly in other memory: a chain goes to one node",
            op.name(),
            op.words(),
            op.at(),
            first.at(),
            host.map_or(thread, |range| range.thread)
        );
        self.books.find(Finding::WildAccess, self.now, report);
        Err(self.books.finding().expect("just found"))
    }

    /// Returns whether a chain is at the compute node of a dead host.
    pub(super) fn host_has_died(&self, index: u32) -> bool {
        let node = self.flights[index as usize].node;
        node >= self.geometry.nodes() && self.memory_nodes[usize::from(node)].dead
    }

    /// The memory of a compute node dies with its threads.
    pub(super) fn hosting_dies(&mut self, compute: usize) {
        if let Some(node) = self.node_of_compute(compute)
            && let Some(host) = self.memory_nodes.get_mut(usize::from(node))
        {
            host.dead = true;
        }
    }

    // ---- the NIC of a compute node that hosts memory ------------------------------------------------------------------

    /// A doorbell occupies the NIC of a compute node: chains that arrive later wait.
    #[inline]
    pub(super) fn doorbell_delays_arrivals(&mut self, compute: usize) {
        if let Some(host) = self.memory_nodes.get_mut(usize::from(self.geometry.nodes()) + compute) {
            host.free_at = host.free_at.max(self.now) + self.config.doorbell;
        }
    }

    /// A chain that has arrived at a hosting compute node occupies its NIC: later doorbells wait.
    #[inline]
    pub(super) fn arrival_delays_doorbells(&mut self, node: u16, busy: Picos) {
        if let Some(compute) = self.compute_of_node(node)
            && let Some(compute) = self.compute_nodes.get_mut(compute)
        {
            compute.nic_free_at = compute.nic_free_at.max(self.now) + busy;
        }
    }

    // ---- the host's own accesses --------------------------------------------------------------------------------------

    /// Loads a word of the thread's own memory.
    pub(super) fn load_here(&mut self, thread: u32, at: Address) -> u64 {
        if self.takes_effect(thread) {
            self.is_here(thread, at);
            let actor = self.actor(thread, 0);
            if self.books.check_cached(at, 1, actor).is_err() {
                return 0;
            }
        }
        self.peek(at)
    }

    /// Loads words of the thread's own memory. A cache line is one access, as on a processor.
    pub(super) fn copy_here(&mut self, thread: u32, at: Address, into: &mut [u64]) {
        for (index, word) in into.iter_mut().enumerate() {
            let at = at.add((index * WORD_BYTES) as u64);
            if index > 0 && !at.bits().is_multiple_of(LINE_BYTES) {
                *word = self.peek(at);
            } else {
                *word = self.load_here(thread, at);
            }
        }
    }

    /// Stores a word of the thread's own memory.
    pub(super) fn store_here(&mut self, thread: u32, at: Address, word: u64) {
        if !self.takes_effect(thread) {
            return;
        }
        self.is_here(thread, at);
        let (actor, op) = (self.actor(thread, 0), Op::write(at, 1));
        if self.books.check(&op, actor).is_err() {
            return;
        }
        let Ok(cell) = self.arena.word(at) else { return };
        let changed = cell.swap(word, Ordering::Relaxed) != word;
        if changed && !self.books.is_of_epochs(at) {
            self.monitor.memory_changed();
        }
        let mut written = [0; SHOWN_WORDS];
        written[0] = word;
        let record =
            Record { actor, action: Action::Write { words: 1, written }, at, object: self.books.object(at) };
        let since = self.monitor.suspicious_since();
        let mut repeated = false;
        if let Some(thread) = self.threads.get_mut(thread as usize) {
            repeated = thread.last.is_some_and(|last| last.is_repeated_by(&record));
            if repeated {
                thread.repeats += 1;
            } else {
                (thread.last, thread.repeats) = (Some(record), 0);
            }
            if let Some(since) = since {
                thread.progress.add_fingerprint(self.books.fingerprint(&op, &[word], since));
            }
        }
        self.books.executed(record, repeated);
        if changed
            && let Some(host) = self.hosted.at(at).map(|range| range.thread).filter(|host| *host != thread)
        {
            // Of another thread of the same compute node: a cache line's way from one processor to the other.
            self.wake_host(host, self.now + PAUSE);
        }
    }

    /// Accounts for an access of a thread to its own memory.
    fn is_here(&mut self, thread: u32, at: Address) {
        debug_assert!(
            self.hosted.at(at).map(|range| range.node) == self.node_of_compute(self.compute_node_of(thread)),
            "{at} is not in memory that a thread of the compute node of thread {thread} hosts"
        );
        let cost = self.config.compute.of(Work::CachedAccess);
        self.spend(thread, cost);
    }

    // ---- waking the host ----------------------------------------------------------------------------------------------

    /// Schedules polls of the hosts whose words chains have changed.
    #[inline]
    pub(super) fn wake_hosts(&mut self) {
        while let Some(host) = self.hosted.changed.pop() {
            self.wake_host(host, self.now);
        }
    }

    /// Schedules a poll of a host. Changes until the poll share it.
    fn wake_host(&mut self, host: u32, at: Picos) {
        let now = self.now;
        let Some(thread) = self.threads.get_mut(host as usize) else { return };
        thread.progress.hosted_changed(now);
        if !std::mem::replace(&mut thread.has_changes, true) {
            self.events.push(at, Event::Changed(host));
        }
    }

    /// Returns a host whose words have changed, if it is to be polled now. A poll for another reason has shown it the changes.
    pub(super) fn poll_host(&mut self, number: u32) -> Option<u32> {
        let stalled_until = self.compute_nodes.get(self.compute_node_of(number))?.stalled_until;
        let thread = self.threads.get_mut(number as usize)?;
        let free_at = thread.busy_until.max(stalled_until);
        let is_due = thread.has_changes && thread.state == ThreadState::Running;
        if is_due && free_at > self.now {
            self.events.push(free_at, Event::Changed(number));
            return None;
        }
        thread.has_changes = false;
        is_due.then_some(number)
    }
}
