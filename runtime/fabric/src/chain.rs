//! Chains: ordered batches of one-sided operations with one completion.
//!
//! A chain owns the words it writes and those that its results arrive in, so the future that waits for it borrows
//! nothing from the network's point of view: dropping the future leaves the chain with the endpoint, which recycles it
//! when the operations are over.

use std::ops::Range;

use crate::prefetch;
use farfield_words::Address;

/// The largest buffer that a thread keeps for its next chain, in words.
const MAX_KEPT_WORDS: usize = 512;

/// A batch under construction, in flight or completed.
#[derive(Debug, Default)]
pub struct Chain {
    ops: Vec<Op>,
    words: Vec<u64>,
    /// Whether addresses in what it writes are no links to objects.
    is_of_allocator: bool,
}

/// What a READ may find: for the simulator, which refuses the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// An object.
    Object,
    /// One that may have been freed: a *peek*, whose poster knows how to tell whether it has.
    MaybeFreed,
    /// Anything.
    Any,
}

/// One operation. `slot` is its first word in the chain's buffer.
#[derive(Clone, Debug)]
pub enum Op {
    /// Copies words of far memory into the buffer.
    Read {
        /// The first word's address.
        at: Address,
        /// Where they go.
        slot: Range<usize>,
        /// What may be found there.
        scope: ReadScope,
    },
    /// Copies words of the buffer into far memory.
    Write {
        /// The first word's address.
        at: Address,
        /// Where they come from.
        slot: Range<usize>,
        /// True if it is a word that the thread knows, because it has put it there. The known word stands in front of the slot: see
        /// [`Chain::replace`].
        replaces: bool,
    },
    /// Replaces a word by another if it is the expected one.
    CompareExchange {
        /// The word's address.
        at: Address,
        /// The word that is replaced.
        expected: u64,
        /// The word that replaces it.
        new: u64,
        /// Where the word goes that was found.
        slot: usize,
    },
    /// Adds to a word, modulo 2^64.
    FetchAdd {
        /// The word's address.
        at: Address,
        /// The number that is added.
        addend: u64,
        /// Where the word goes that was found.
        slot: usize,
    },
}

/// Where an operation's result will be: a range of the chain's words.
#[derive(Clone, Debug, Default)]
pub struct Slot(Range<usize>);

impl Op {
    /// Where it begins.
    pub fn at(&self) -> Address {
        match self {
            Self::Read { at, .. }
            | Self::Write { at, .. }
            | Self::CompareExchange { at, .. }
            | Self::FetchAdd { at, .. } => *at,
        }
    }

    /// How many words it accesses.
    pub fn words(&self) -> usize {
        match self {
            Self::Read { slot, .. } | Self::Write { slot, .. } => slot.len(),
            Self::CompareExchange { .. } | Self::FetchAdd { .. } => 1,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Read { scope: ReadScope::Object, .. } => "READ",
            Self::Read { .. } => "peek",
            Self::Write { .. } => "WRITE",
            Self::CompareExchange { .. } => "CAS",
            Self::FetchAdd { .. } => "FAA",
        }
    }
}

impl Chain {
    /// Whether its buffers are worth keeping: there are some, and they are not those of a rare, large transfer.
    pub fn is_worth_keeping(&self) -> bool {
        (1..=MAX_KEPT_WORDS).contains(&self.words.capacity())
    }

    /// Asks the processor for the operations and the first words.
    pub fn prefetch(&self) {
        prefetch(self.ops.first().as_slice());
        prefetch(self.words.first().as_slice());
    }

    /// Makes it empty, and keeps its buffers.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.words.clear();
        self.is_of_allocator = false;
    }

    /// The addresses in what it writes are no links to objects.
    pub fn set_of_allocator(&mut self) {
        self.is_of_allocator = true;
    }

    /// True if the addresses in what it writes are no links to objects.
    pub fn is_of_allocator(&self) -> bool {
        self.is_of_allocator
    }

    fn reserve(&mut self, words: usize) -> Range<usize> {
        let start = self.words.len();
        self.words.resize(start + words, 0);
        start..start + words
    }

    /// Adds a READ of an object's words.
    pub fn read(&mut self, at: Address, words: usize) -> Slot {
        let slot = self.reserve(words);
        self.ops.push(Op::Read { at, slot: slot.clone(), scope: ReadScope::Object });
        Slot(slot)
    }

    /// A READ of what may not be an object any more.
    pub fn peek(&mut self, at: Address, words: usize) -> Slot {
        let slot = self.reserve(words);
        self.ops.push(Op::Read { at, slot: slot.clone(), scope: ReadScope::MaybeFreed });
        Slot(slot)
    }

    /// A READ of whatever is there.
    pub fn scan(&mut self, at: Address, words: usize) -> Slot {
        let slot = self.reserve(words);
        self.ops.push(Op::Read { at, slot: slot.clone(), scope: ReadScope::Any });
        Slot(slot)
    }

    /// Adds a WRITE.
    pub fn write(&mut self, at: Address, words: &[u64]) {
        let slot = self.words.len()..self.words.len() + words.len();
        self.words.extend_from_slice(words);
        self.ops.push(Op::Write { at, slot, replaces: false });
    }

    /// A WRITE of a word that other threads may try to change by CAS, while it is `own`: a token or a mark of this thread's, so no CAS
    /// of theirs succeeds. As WRITEs and atomics of a device can harm each other, it is a CAS from `own`, which succeeds, or else changes
    /// nothing; so it is on every fabric.
    pub fn replace(&mut self, at: Address, own: u64, new: u64) {
        self.words.extend([own, new]);
        let slot = self.words.len() - 1..self.words.len();
        self.ops.push(Op::Write { at, slot, replaces: true });
    }

    /// Adds a CAS. Its slot will have the word that was found.
    pub fn compare_exchange(&mut self, at: Address, expected: u64, new: u64) -> Slot {
        let slot = self.reserve(1);
        self.ops.push(Op::CompareExchange { at, expected, new, slot: slot.start });
        Slot(slot)
    }

    /// Adds an FAA. Its slot will have the word that was found.
    pub fn fetch_add(&mut self, at: Address, addend: u64) -> Slot {
        let slot = self.reserve(1);
        self.ops.push(Op::FetchAdd { at, addend, slot: slot.start });
        Slot(slot)
    }

    /// The operations and the buffer that their slots index.
    pub fn parts(&mut self) -> (&[Op], &mut [u64]) {
        (&self.ops, &mut self.words)
    }

    /// The operations, in program order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The words that a WRITE writes.
    pub fn written(&self, slot: &Range<usize>) -> &[u64] {
        &self.words[slot.clone()]
    }

    /// The words that an operation of a completed chain brought.
    pub fn words(&self, slot: &Slot) -> &[u64] {
        &self.words[slot.0.clone()]
    }

    /// The one word that a CAS or FAA of a completed chain brought: what was there before.
    pub fn word(&self, slot: &Slot) -> u64 {
        self.words[slot.0.start]
    }

    /// How many CAS operations of a completed chain found something else than they expected.
    pub fn failed_exchanges(&self) -> u64 {
        self.ops
            .iter()
            .filter(|op| matches!(op, Op::CompareExchange { expected, slot, .. } if self.words[*slot] != *expected))
            .count() as u64
    }
}
