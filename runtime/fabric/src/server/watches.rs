//! Watched words: a memory node forwards what is written to them.
//!
//! A connection *watches* a range of words, under a number of its own. What operations of other connections write there, the memory node sends it, after
//! the answers to all frames that were executed before. So a READ that follows the WATCH, and what is forwarded after it, miss no change.
//!
//! The thread that executes operations does all this, so there is one order. Changes by processes that map the memory are not seen, and those by the connection itself
//! are not forwarded. Ranges of several connections should not overlap: a word is certain to be forwarded only for the last range that begins before it.
//!
//! An operation costs one comparison more without watches, and with them a search by its address.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::host::Host;
use farfield_words::{Address, WORD_BYTES};

/// The most words of a range.
const MAX_WORDS: usize = 1024;
/// The most ranges of all connections.
const MAX_RANGES: usize = 1 << 20;
/// The words of one message from which on another is begun.
const MESSAGE_WORDS: usize = 4 * MAX_WORDS;

/// The watched ranges of a memory node, and what is to be forwarded.
#[derive(Default)]
pub(crate) struct Watches {
    /// The connection whose operations are executed.
    current: usize,
    /// By the bits of the first word's address.
    ranges: BTreeMap<u64, Range>,
    /// For connections: the number of the watch, the address, the number of words, and the words; of one change after the other.
    changes: Vec<(usize, Vec<u64>)>,
}

struct Range {
    /// The address behind it.
    end: u64,
    number: u64,
    connection: usize,
}

impl Watches {
    /// Operations of this connection are executed next.
    pub(super) fn serve(&mut self, connection: usize) {
        self.current = connection;
    }

    /// The connection watches valid words from now on.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub(crate) fn add(&mut self, at: Address, words: usize, number: u64) -> Result<(), &'static str> {
        if words > MAX_WORDS {
            return Err("a watch has at most 1024 words");
        }
        if self.ranges.len() >= MAX_RANGES {
            return Err("too many watches");
        }
        let end = at.bits() + (words * WORD_BYTES) as u64;
        self.ranges.insert(at.bits(), Range { end, number, connection: self.current });
        Ok(())
    }

    /// The connection watches the range that begins here no more; or none, if the address is null.
    pub(crate) fn remove(&mut self, at: Address) {
        let current = self.current;
        if at.is_null() {
            self.retain(|connection| connection != current);
        } else if self.ranges.get(&at.bits()).is_some_and(|range| range.connection == self.current) {
            self.ranges.remove(&at.bits());
        }
    }

    /// Keeps only the ranges of these connections.
    pub(super) fn retain(&mut self, is_open: impl Fn(usize) -> bool) {
        self.ranges.retain(|_, range| is_open(range.connection));
    }

    /// Valid words were changed.
    #[inline]
    pub(crate) fn changed(&mut self, host: &Host, at: Address, words: usize) {
        if !self.ranges.is_empty() {
            self.forward(host, at, words);
        }
    }

    fn forward(&mut self, host: &Host, at: Address, words: usize) {
        let Self { current, ranges, changes } = self;
        let (from, to) = (at.bits(), at.bits() + (words * WORD_BYTES) as u64);
        let touched = ranges.range(..to).rev().take_while(|(_, range)| range.end > from);
        for (begin, range) in touched.filter(|(_, range)| range.connection != *current) {
            let (from, to) = (from.max(*begin), to.min(range.end));
            let words = ((to - from) / WORD_BYTES as u64) as usize;
            let Ok(now) = host.words(Address::from_bits(from), words) else { continue };
            let has_room = |(connection, kept): &&mut (usize, Vec<u64>)| {
                *connection == range.connection && kept.len() < MESSAGE_WORDS
            };
            let head = [range.number, from, words as u64];
            let change = head.into_iter().chain(now.iter().map(|word| word.load(Ordering::SeqCst)));
            match changes.iter_mut().rev().find(has_room) {
                Some((_, message)) => message.extend(change),
                None => changes.push((range.connection, change.collect())),
            }
        }
    }

    /// Returns whether something is to be forwarded.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Takes what is to be forwarded, and to whom.
    pub(super) fn take_changes(&mut self) -> Vec<(usize, Vec<u64>)> {
        std::mem::take(&mut self.changes)
    }
}
