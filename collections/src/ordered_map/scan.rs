//! Scans: the keys of a range, in order.
//!
//! A scan reads several leaves at once, and puts the keys of a leaf in order when it comes to that: of the last ones it may need none.

use std::fmt;
use std::ops::{Bound, RangeInclusive};

use farfield::prelude::*;

use super::entries::class;
use super::node::{Header, Node, NodeOf, SLOTS, Value};
use super::tree::{Inner, Target, Tree, word_of};
use crate::Key;
use crate::entry::not_an_entry;

/// The most leaves that a scan reads at once.
const MOST_LEAVES: usize = 16;
/// The keys of a leaf that a scan expects.
const USUAL: usize = SLOTS / 2;

/// No word.
#[allow(clippy::reversed_empty_ranges)]
const NONE: RangeInclusive<u64> = 1..=0;

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
pub struct Scan<'a, K: Key + Value, V: Value> {
    tree: &'a Tree<NodeOf<K, V>>,
    ct: &'a ComputeThread,
    direction: Direction,
    /// `None` at the end.
    rest: Option<Rest>,
    leaves: usize,
    page: Page<(K, V)>,
}

/// What a scan has read, and not returned yet.
pub(super) struct Page<R> {
    /// The words of keys and values, where leaves have both: in order up to `sorted`, and then leaf by leaf.
    words: Vec<(u64, u64)>,
    next: usize,
    sorted: usize,
    /// Where the words of each leaf end.
    ends: std::vec::IntoIter<usize>,
    /// What was made of entries.
    decoded: std::vec::IntoIter<R>,
}

impl<R> Page<R> {
    fn new(words: Vec<(u64, u64)>, ends: Vec<usize>, decoded: Vec<R>) -> Self {
        Self { words, next: 0, sorted: 0, ends: ends.into_iter(), decoded: decoded.into_iter() }
    }

    /// Returns the number of keys.
    fn len(&self) -> usize {
        self.words.len() - self.next + self.decoded.len()
    }

    /// Returns the next words.
    #[inline]
    fn next_words(&mut self, direction: Direction) -> Option<(u64, u64)> {
        while self.next == self.sorted {
            self.sorted = self.ends.next()?;
            let leaf = &mut self.words[self.next..self.sorted];
            // Those that the leaf had when it was made are in order, which the stable sort makes use of.
            leaf.sort_by_key(|(word, _)| *word);
            if direction == Direction::Down {
                leaf.reverse();
            }
        }
        let words = self.words[self.next];
        self.next += 1;
        Some(words)
    }
}

impl<'a, K: Key + Value, V: Value> Scan<'a, K, V> {
    pub(super) fn new(tree: &'a Tree<NodeOf<K, V>>, rest: Rest, ct: &'a ComputeThread) -> Self {
        let page = Page::new(Vec::new(), Vec::new(), Vec::new());
        Self { tree, ct, direction: rest.direction, rest: Some(rest), leaves: 1, page }
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
        loop {
            if let Some((word, value)) = self.page.next_words(self.direction) {
                let pair = Self::decode(&word.to_be_bytes(), &value.to_le_bytes());
                return pair.map(Some).ok_or_else(not_an_entry);
            }
            if let Some(pair) = self.page.decoded.next() {
                return Ok(Some(pair));
            }
            let Some(rest) = &self.rest else { return Ok(None) };
            let (page, rest) = self.tree.scan(rest, self.leaves, Self::decode, &self.ct.pin()).await?;
            if page.len() == 0 {
                // There may be many leaves without keys.
                self.ct.yield_now().await;
            }
            self.page = page;
            self.rest = rest;
            self.leaves = (2 * self.leaves).min(MOST_LEAVES);
        }
    }

    fn decode(key: &[u8], value: &[u8]) -> Option<(K, V)> {
        Some((K::from_ordered(key)?, V::from_bytes(value)?))
    }
}

impl<K: Key + Value, V: Value> fmt::Debug for Scan<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("rest", &self.rest)
            .field("read", &self.page.len())
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

    /// Returns whether nothing remains behind a leaf with keys from `low` to `high`.
    fn is_over(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        match (self.direction, &self.low, &self.high) {
            (Direction::Up, _, Bound::Included(last)) => high.is_none_or(|high| *high > **last),
            (Direction::Up, _, Bound::Excluded(end)) => high.is_none_or(|high| *high >= **end),
            (Direction::Up, _, Bound::Unbounded) => high.is_none(),
            (Direction::Down, Bound::Included(first) | Bound::Excluded(first), _) => *low <= **first,
            (Direction::Down, Bound::Unbounded, _) => low.is_empty(),
        }
    }

    /// Returns what remains behind a leaf with keys from `low` to `high`.
    fn behind<N: Node>(&self, parent: &Inner<N>, index: usize) -> Option<Self> {
        let (low, high) = (parent.low(index), parent.high(index));
        if self.is_over(&low, high.as_deref()) {
            return None;
        }
        let mut rest = self.clone();
        match self.direction {
            Direction::Up => rest.low = Bound::Included(high?),
            Direction::Down => rest.high = Bound::Excluded(low),
        }
        Some(rest)
    }

    /// Returns the words of the keys in the range, where keys are words.
    fn words(&self) -> RangeInclusive<u64> {
        let word = |key: &Vec<u8>| word_of(key, 0);
        let first = match &self.low {
            Bound::Included(low) => word(low),
            Bound::Excluded(low) => match word(low).checked_add(1) {
                Some(first) => first,
                None => return NONE,
            },
            Bound::Unbounded => 0,
        };
        let last = match &self.high {
            Bound::Included(high) => word(high),
            Bound::Excluded(high) => match word(high).checked_sub(1) {
                Some(last) => last,
                None => return NONE,
            },
            Bound::Unbounded => u64::MAX,
        };
        first..=last
    }
}

impl<N: Node> Tree<N> {
    // ANCHOR: scan
    /// Reads the first leaves of a range, at most `leaves` of one parent. Returns their keys and values, of entries what `decode` makes of them; and what remains of the range. One round
    /// trip if the leaves are known, one more to find the first if it is not, and one if there are entries.
    pub(super) async fn scan<R>(
        &self,
        rest: &Rest,
        leaves: usize,
        decode: impl Fn(&[u8], &[u8]) -> Option<R>,
        g: &Guard<'_>,
    ) -> Result<(Page<R>, Option<Rest>)> {
        let found = self.find_leaf(rest.target(), 1, g).await?;
        let (parent, mut index) = (&found.parent, found.index);
        let mut ahead = Vec::with_capacity(leaves);
        while parent.is_live(index) && ahead.len() < leaves {
            ahead.push(index);
            if rest.is_over(parent.low_in(index, &mut [0; 8]), parent.high_in(index, &mut [0; 8])) {
                break;
            }
            match rest.direction {
                Direction::Up if index + 1 < parent.children.len() => index += 1,
                Direction::Down if index > 0 => index -= 1,
                _ => break,
            }
        }
        let read = |index: usize| {
            op::read_with(parent.children[index], |leaf| (N::header_of(&leaf), Box::new(leaf)))
        };
        let reads: Vec<_> = ahead.iter().map(|index| read(*index)).collect();
        let mut read = g.chain(reads).submit().await?;
        // One that is frozen may have been replaced; one that is not whole is read again, as the first one.
        let is_usable = |(header, leaf): &(Header, Box<N::Value<'_>>)| {
            !header.is_frozen() && (g.is_immediate() || N::is_whole(leaf))
        };
        read.truncate(read.iter().take_while(|leaf| is_usable(leaf)).count());
        let first;
        let mut parent = parent;
        if read.is_empty() {
            first = self.read_leaf(rest.target(), g).await?;
            parent = &first.found.parent;
            ahead[0] = first.found.index;
            read.push((first.header, Box::new(first.read.clone())));
        }

        let (mut pairs, mut entries, mut last) = (Vec::new(), Vec::new(), None);
        let (range, mut live) = (rest.words(), Vec::new());
        let inline_leaves = if N::INLINE { read.len() } else { 0 };
        let mut words = Vec::with_capacity(inline_leaves * SLOTS);
        let mut ends = Vec::with_capacity(inline_leaves);
        for ((header, read), index) in read.iter().zip(&ahead) {
            let keys = N::keys(read);
            if N::INLINE {
                last = Some(*index);
                let live = header.live().filter(|slot| range.contains(&keys[*slot]));
                words.extend(live.map(|slot| (keys[slot], N::word(N::held(read, slot)))));
                ends.push(words.len());
                continue;
            }
            live.clear();
            live.extend(header.live().map(|slot| (keys[slot], slot)));
            if live.iter().any(|(_, slot)| N::link(N::held(read, *slot)).is_null()) {
                // It was changed between its two READs: the scan goes on with it.
                break;
            }
            last = Some(*index);
            if self.words {
                live.retain(|(word, _)| range.contains(word));
            }
            // Most are in order, which the stable sort makes use of.
            live.sort_by_key(|(word, _)| *word);
            if rest.direction == Direction::Down {
                live.reverse();
            }
            for (word, slot) in &live {
                let (key, link) = (word.to_be_bytes(), N::link(N::held(read, *slot)));
                let (split, words) = (self.entries.split, self.words);
                let decode = &decode;
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
        let remaining = last.map_or(Some(rest.clone()), |last| rest.behind(parent, last));
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
        Ok((Page::new(words, ends, pairs), remaining))
    }
    // ANCHOR_END: scan
}
