//! Chains: ordered batches of one-sided operations with one completion.
//!
//! A chain owns the words that it writes and the words of its results, so the network borrows nothing from the future that waits for it. If the
//! future is dropped, the endpoint keeps the chain until its operations are over, and then recycles it.

use std::ops::Range;

use crate::prefetch;
use farfield_words::Address;

/// The largest buffer that a thread keeps for its next chain, in words.
const MAX_KEPT_WORDS: usize = 512;

/// The most words of an operation that a fabric may keep in place of a chain of one.
pub const SINGLE_WORDS: usize = 16;

/// A chain under construction, in flight or completed. Its words have no types.
#[derive(Debug, Default)]
pub struct RawChain {
    ops: Vec<Op>,
    words: Vec<u64>,
    counts: Counts,
    /// True if the words that it writes contain no links to objects.
    is_of_allocator: bool,
}

/// The numbers of a chain's operations and of their words, counted as they are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// READs.
    pub reads: u32,
    /// Words that READs request.
    pub read_words: u32,
    /// WRITEs.
    pub writes: u32,
    /// Words that WRITEs carry.
    pub write_words: u32,
    /// CAS operations.
    pub cas: u32,
    /// FAA operations.
    pub faa: u32,
}

/// The memory that a READ may access. The simulator refuses other accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// An allocated object.
    Object,
    /// An object that may have been freed, and its memory reused: a *peek*, whose result the program validates.
    MaybeFreed,
    /// Any memory.
    Any,
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Copies words of far memory into the buffer.
    Read {
        /// The first word's address.
        at: Address,
        /// The words of the buffer that receive them.
        slot: Slot,
        /// The memory that the READ may access.
        scope: ReadScope,
    },
    /// Copies words of the buffer into far memory.
    Write {
        /// The first word's address.
        at: Address,
        /// The words of the buffer that are written.
        slot: Slot,
        /// True if the WRITE replaces a word of known value, which only this thread changes. The known word precedes the slot: see
        /// [`RawChain::replace`].
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
        /// The index of the buffer's word that receives the previous value.
        slot: u32,
    },
    /// Adds to a word, modulo 2^64.
    FetchAdd {
        /// The word's address.
        at: Address,
        /// The number that is added.
        addend: u64,
        /// The index of the buffer's word that receives the previous value.
        slot: u32,
    },
}

const _: () = assert!(size_of::<Op>() == 32, "an operation is half a cache line");

/// A range of the chain's words: the location of an operation's result, or of the words that it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    start: u32,
    len: u32,
}

impl Slot {
    /// Returns the slot of one word.
    #[inline]
    pub fn of_word(index: u32) -> Self {
        Self { start: index, len: 1 }
    }

    /// Returns the index of its first word.
    #[inline]
    pub fn start(self) -> usize {
        self.start as usize
    }

    /// Returns the number of its words.
    #[inline]
    pub fn words(self) -> usize {
        self.len as usize
    }

    /// Returns the indices of its words.
    #[inline]
    pub fn range(self) -> Range<usize> {
        self.start()..self.start() + self.words()
    }
}

impl Op {
    /// Makes a READ of an object's words, into the beginning of the buffer.
    #[inline]
    pub fn read(at: Address, words: usize) -> Self {
        Self::Read { at, slot: Slot { start: 0, len: words as u32 }, scope: ReadScope::Object }
    }

    /// Makes a WRITE of the words at the beginning of the buffer.
    #[inline]
    pub fn write(at: Address, words: usize) -> Self {
        Self::Write { at, slot: Slot { start: 0, len: words as u32 }, replaces: false }
    }

    /// Makes a CAS. The previous value becomes the buffer's first word.
    #[inline]
    pub fn compare_exchange(at: Address, expected: u64, new: u64) -> Self {
        Self::CompareExchange { at, expected, new, slot: 0 }
    }

    /// Makes an FAA. The previous value becomes the buffer's first word.
    #[inline]
    pub fn fetch_add(at: Address, addend: u64) -> Self {
        Self::FetchAdd { at, addend, slot: 0 }
    }

    /// Returns the address of its first word.
    #[inline]
    pub fn at(&self) -> Address {
        match self {
            Self::Read { at, .. }
            | Self::Write { at, .. }
            | Self::CompareExchange { at, .. }
            | Self::FetchAdd { at, .. } => *at,
        }
    }

    /// Returns the number of words that it accesses.
    #[inline]
    pub fn words(&self) -> usize {
        match self {
            Self::Read { slot, .. } | Self::Write { slot, .. } => slot.words(),
            Self::CompareExchange { .. } | Self::FetchAdd { .. } => 1,
        }
    }

    /// Returns its name.
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

impl RawChain {
    /// Returns whether its buffers should be reused: they are allocated, and not as large as those of a rare transfer.
    #[inline]
    pub fn is_worth_keeping(&self) -> bool {
        (1..=MAX_KEPT_WORDS).contains(&self.words.capacity())
    }

    /// Prefetches the operations and the first words.
    pub fn prefetch(&self) {
        prefetch(self.ops.first().as_slice());
        prefetch(self.words.first().as_slice());
    }

    /// Empties the chain, and keeps its buffers.
    #[inline]
    pub fn clear(&mut self) {
        self.ops.clear();
        self.words.clear();
        self.counts = Counts::default();
        self.is_of_allocator = false;
    }

    /// Declares that the words that it writes contain no links to objects.
    pub fn set_of_allocator(&mut self) {
        self.is_of_allocator = true;
    }

    /// Returns whether the words that it writes contain no links to objects.
    #[inline]
    pub fn is_of_allocator(&self) -> bool {
        self.is_of_allocator
    }

    /// Returns the slot of `words` words at the end of the buffer, before they are added.
    #[inline]
    fn slot(&self, words: usize) -> Slot {
        let end = u32::try_from(self.words.len() + words).expect("a chain has less than 32 GiB of words");
        Slot { start: self.words.len() as u32, len: end - self.words.len() as u32 }
    }

    #[inline]
    fn reserve(&mut self, words: usize) -> Slot {
        let slot = self.slot(words);
        if words == 1 {
            self.words.push(0);
        } else {
            self.words.resize(self.words.len() + words, 0);
        }
        slot
    }

    #[inline]
    fn add_read(&mut self, at: Address, words: usize, scope: ReadScope) -> Slot {
        let slot = self.reserve(words);
        self.counts.reads += 1;
        self.counts.read_words += slot.len;
        self.ops.push(Op::Read { at, slot, scope });
        slot
    }

    /// Adds a READ of an object's words.
    #[inline]
    pub fn read(&mut self, at: Address, words: usize) -> Slot {
        self.add_read(at, words, ReadScope::Object)
    }

    /// Adds a READ of an object that may have been freed.
    pub fn peek(&mut self, at: Address, words: usize) -> Slot {
        self.add_read(at, words, ReadScope::MaybeFreed)
    }

    /// Adds a READ of any memory.
    pub fn scan(&mut self, at: Address, words: usize) -> Slot {
        self.add_read(at, words, ReadScope::Any)
    }

    /// Adds a WRITE.
    #[inline]
    pub fn write(&mut self, at: Address, words: &[u64]) {
        let slot = self.slot(words.len());
        self.words.extend_from_slice(words);
        self.counts.writes += 1;
        self.counts.write_words += slot.len;
        self.ops.push(Op::Write { at, slot, replaces: false });
    }

    /// Adds a WRITE of a word that has the value `own`: a token or a mark of this thread, so that no CAS of another thread succeeds meanwhile.
    /// WRITEs and atomics of a device are not atomic with respect to each other, so every fabric executes it as a CAS from `own`, which succeeds,
    /// or else changes nothing.
    #[inline]
    pub fn replace(&mut self, at: Address, own: u64, new: u64) {
        let Slot { start, .. } = self.slot(2);
        self.words.extend([own, new]);
        self.counts.writes += 1;
        self.counts.write_words += 1;
        self.ops.push(Op::Write { at, slot: Slot { start: start + 1, len: 1 }, replaces: true });
    }

    /// Adds a CAS. Its slot will hold the previous value.
    #[inline]
    pub fn compare_exchange(&mut self, at: Address, expected: u64, new: u64) -> Slot {
        let slot = self.reserve(1);
        self.counts.cas += 1;
        self.ops.push(Op::CompareExchange { at, expected, new, slot: slot.start });
        slot
    }

    /// Adds an FAA. Its slot will hold the previous value.
    #[inline]
    pub fn fetch_add(&mut self, at: Address, addend: u64) -> Slot {
        let slot = self.reserve(1);
        self.counts.faa += 1;
        self.ops.push(Op::FetchAdd { at, addend, slot: slot.start });
        slot
    }

    /// Returns the operations and the buffer that their slots index.
    #[inline]
    pub fn parts(&mut self) -> (&[Op], &mut [u64]) {
        (&self.ops, &mut self.words)
    }

    /// Adds the first operation of the chain, with the beginning of its buffer: the words that it writes or has read.
    pub fn add_first(&mut self, op: &Op, words: &[u64]) {
        debug_assert!(self.ops.is_empty(), "slots of the operation begin at 0");
        match *op {
            Op::Read { at, slot, scope } => {
                self.add_read(at, slot.words(), scope);
            }
            Op::Write { at, slot, .. } => self.write(at, &words[slot.range()]),
            Op::CompareExchange { at, expected, new, .. } => {
                self.compare_exchange(at, expected, new);
            }
            Op::FetchAdd { at, addend, .. } => {
                self.fetch_add(at, addend);
            }
        }
        let known = self.words.len().min(words.len());
        self.words[..known].copy_from_slice(&words[..known]);
    }

    /// Returns the buffer that the operations' slots index.
    #[inline]
    pub fn buffer(&self) -> &[u64] {
        &self.words
    }

    /// Returns the numbers of operations and of their words.
    #[inline]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the operations, in program order.
    #[inline]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Returns the words that a WRITE writes.
    #[inline]
    pub fn written(&self, words: Range<usize>) -> &[u64] {
        &self.words[words]
    }

    /// Returns the words that an operation of a completed chain has read.
    #[inline]
    pub fn words(&self, slot: Slot) -> &[u64] {
        &self.words[slot.range()]
    }

    /// Returns the previous value that a CAS or FAA of a completed chain found.
    #[inline]
    pub fn word(&self, slot: Slot) -> u64 {
        self.words[slot.start()]
    }

    /// Returns the previous value that a CAS of a completed chain found, if the chain has that CAS.
    pub fn found(&self, exchanged: Address, from: u64, to: u64) -> Option<u64> {
        self.ops.iter().find_map(|op| match *op {
            Op::CompareExchange { at, expected, new, slot }
                if (at, expected, new) == (exchanged, from, to) =>
            {
                Some(self.words[slot as usize])
            }
            _ => None,
        })
    }

    /// Returns how many CAS operations of a completed chain have failed.
    #[inline]
    pub fn failed_exchanges(&self) -> u64 {
        self.ops
            .iter()
            .filter(|op| matches!(op, Op::CompareExchange { expected, slot, .. } if self.words[*slot as usize] != *expected))
            .count() as u64
    }
}
