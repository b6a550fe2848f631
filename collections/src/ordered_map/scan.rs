//! Scans: the keys of a range, in order.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Bound;

use farfield::prelude::*;

use super::node::{Header, Node, NodeOf, SLOTS, Value};
use super::tree::{Target, Tree, class};
use crate::Key;
use crate::entry::not_an_entry;

/// The most leaves that a scan reads at once.
const MOST_LEAVES: usize = 16;
/// The keys of a leaf that a scan expects.
const USUAL: usize = SLOTS / 2;

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Up,
    Down,
}

/// The keys of a range that are still to come.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) low: Bound<Vec<u8>>,
    pub(super) high: Bound<Vec<u8>>,
    pub(super) direction: Direction,
}

/// The keys of a range and their values: see [`OrderedMap::range`](super::OrderedMap::range).
pub struct Scan<'a, K: Key, V: Value> {
    tree: &'a Tree<NodeOf<K, V>>,
    ct: &'a ComputeThread,
    /// `None` at the end.
    rest: Option<Rest>,
    leaves: usize,
    ready: VecDeque<(K, V)>,
}

impl<'a, K: Key, V: Value> Scan<'a, K, V> {
    pub(super) fn new(tree: &'a Tree<NodeOf<K, V>>, rest: Rest, ct: &'a ComputeThread) -> Self {
        Self { tree, ct, rest: Some(rest), leaves: 1, ready: VecDeque::new() }
    }

    /// Sets how many pairs are wanted at once. So many leaves are read in one round trip as probably have them, at most 16. By default one leaf, and each time twice as
    /// many.
    #[must_use]
    pub fn in_pages_of(mut self, pairs: usize) -> Self {
        self.leaves = pairs.div_ceil(USUAL).clamp(1, MOST_LEAVES);
        self
    }

    /// Returns the next key and its value. If the future is dropped, no key is lost.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn next(&mut self) -> Result<Option<(K, V)>> {
        while self.ready.is_empty() {
            let Some(rest) = &self.rest else { return Ok(None) };
            let decode = |key: &[u8], value: &[u8]| Some((K::from_ordered(key)?, V::from_bytes(value)?));
            let (pairs, rest) = self.tree.scan(rest.clone(), self.leaves, decode, &self.ct.pin()).await?;
            self.ready.extend(pairs);
            self.rest = rest;
            self.leaves = (2 * self.leaves).min(MOST_LEAVES);
        }
        Ok(self.ready.pop_front())
    }
}

impl<K: Key, V: Value> fmt::Debug for Scan<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("rest", &self.rest)
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}

impl Rest {
    /// Returns whether a key is in the range.
    fn has(&self, key: &[u8]) -> bool {
        let is_above = match &self.low {
            Bound::Included(low) => *key >= **low,
            Bound::Excluded(low) => *key > **low,
            Bound::Unbounded => true,
        };
        let is_below = match &self.high {
            Bound::Included(high) => *key <= **high,
            Bound::Excluded(high) => *key < **high,
            Bound::Unbounded => true,
        };
        is_above && is_below
    }

    /// Returns the leaf in which the range begins.
    fn target(&self) -> Target<'_> {
        match (self.direction, &self.low, &self.high) {
            (Direction::Up, Bound::Included(low) | Bound::Excluded(low), _) => Target::At(low),
            (Direction::Up, Bound::Unbounded, _) => Target::At(&[]),
            (Direction::Down, _, Bound::Included(high)) => Target::At(high),
            (Direction::Down, _, Bound::Excluded(high)) => Target::Below(high),
            (Direction::Down, _, Bound::Unbounded) => Target::Last,
        }
    }

    /// Returns what remains behind a leaf with keys from `low` to `high`.
    fn behind(mut self, low: Vec<u8>, high: Option<Vec<u8>>) -> Option<Self> {
        match self.direction {
            Direction::Up => {
                let low = high?;
                let is_over = match &self.high {
                    Bound::Included(last) => low > *last,
                    Bound::Excluded(end) => low >= *end,
                    Bound::Unbounded => false,
                };
                self.low = Bound::Included(low);
                (!is_over).then_some(self)
            }
            Direction::Down => {
                let is_over = match &self.low {
                    Bound::Included(first) | Bound::Excluded(first) => low <= *first,
                    Bound::Unbounded => low.is_empty(),
                };
                self.high = Bound::Excluded(low);
                (!is_over).then_some(self)
            }
        }
    }
}

impl<N: Node> Tree<N> {
    // ANCHOR: scan
    /// Reads the first leaves of a range, at most `leaves` of one parent. Returns what `decode` makes of their keys and values, and what remains of the range. One round
    /// trip if the leaves are known, one more to find the first if it is not, and one if there are entries.
    pub(super) async fn scan<R>(
        &self,
        rest: Rest,
        leaves: usize,
        decode: impl Fn(&[u8], &[u8]) -> Option<R>,
        g: &Guard<'_>,
    ) -> Result<(Vec<R>, Option<Rest>)> {
        let direction = rest.direction;
        let found = self.find_leaf(rest.target(), 1, g).await?;
        let (parent, mut index) = (&found.parent, found.index);
        // The leaves, each with what remains of the range behind it.
        let mut ahead = Vec::new();
        let mut behind = Some(rest.clone());
        while let Some(rest) = behind.take_if(|_| parent.is_live(index) && ahead.len() < leaves) {
            behind = rest.behind(parent.low(index), parent.high(index));
            ahead.push((index, behind.clone()));
            match direction {
                Direction::Up if index + 1 < parent.children.len() => index += 1,
                Direction::Down if index > 0 => index -= 1,
                _ => break,
            }
        }
        let read =
            |index: usize| (op::load(N::header(parent.children[index])), op::read(parent.children[index]));
        let reads: Vec<_> = ahead.iter().map(|(index, _)| read(*index)).collect();
        let read = g.chain(reads).submit().await?;
        let is_first_frozen = read.first().is_some_and(|(header, _)| header.is_frozen());
        let mut all: Vec<(Header, N::Value<'_>, Option<Rest>)> = Vec::new();
        if is_first_frozen {
            let leaf = self.read_leaf(rest.target(), g).await?;
            let (parent, index) = (&leaf.found.parent, leaf.found.index);
            all.push((leaf.header, leaf.read, rest.clone().behind(parent.low(index), parent.high(index))));
        } else {
            // One that is frozen may have been replaced.
            let current = read.into_iter().zip(ahead).take_while(|((header, _), _)| !header.is_frozen());
            all.extend(current.map(|((header, read), (_, rest))| (header, read, rest)));
        }

        let (mut pairs, mut entries, mut remaining) = (Vec::new(), Vec::new(), Some(rest.clone()));
        for (header, read, behind) in &all {
            let keys = N::keys(read);
            let mut live: Vec<(u64, usize)> = header.live().map(|slot| (keys[slot], slot)).collect();
            live.sort_unstable();
            if !N::INLINE && live.iter().any(|(_, slot)| N::link(N::held(read, *slot)).is_null()) {
                // It was changed between its two READs: the scan goes on with it.
                break;
            }
            if rest.direction == Direction::Down {
                live.reverse();
            }
            for (word, slot) in live {
                let key = word.to_be_bytes();
                if N::INLINE && rest.has(&key) {
                    let value = N::word(N::held(read, slot)).to_le_bytes();
                    pairs.push(decode(&key, &value).ok_or_else(not_an_entry)?);
                } else if !N::INLINE && (!self.words || rest.has(&key)) {
                    let link = N::link(N::held(read, slot));
                    let (split, words) = (self.entries.split, self.words);
                    let (decode, rest) = (&decode, &rest);
                    entries.push(op::read_bytes_with(link.shared(), class(link)?, move |bytes| {
                        let (stored, value) = split(bytes)?;
                        if words {
                            return Some((vec![], Some(decode(&key, value)?)));
                        }
                        let pair = if rest.has(stored) { Some(decode(stored, value)?) } else { None };
                        Some((stored.to_vec(), pair))
                    }));
                }
            }
            remaining.clone_from(behind);
        }
        if !entries.is_empty() {
            let read: Option<Vec<_>> = g.chain(entries).submit().await?.into_iter().collect();
            let mut read = read.ok_or_else(not_an_entry)?;
            if !self.words {
                read.sort_by(|left, right| left.0.cmp(&right.0));
                if rest.direction == Direction::Down {
                    read.reverse();
                }
            }
            pairs.extend(read.into_iter().filter_map(|(_, pair)| pair));
        }
        Ok((pairs, remaining))
    }
    // ANCHOR_END: scan
}
