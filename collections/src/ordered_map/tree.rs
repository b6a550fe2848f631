//! The way to a leaf: the nodes above the leaves, as far as they are known.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use farfield::PinnedEpoch;
use farfield::op::Operations;
use farfield::prelude::*;

use super::entries::{Entries, class, corrupt};
use super::node::{Head, Header, Node, NodeTag, SLOTS};

/// How often a way is looked for before the client waits. Mostly it is found the first time.
const PATIENCE: u32 = 8;

/// The nodes of a map, as a handle knows them.
pub(super) struct Tree<N: Node> {
    /// The link to the highest node, with its level. A leaf has level 0.
    pub(super) top: Place<'static, TaggedLink<N, NodeTag>>,
    /// True if keys are words: a slot has all of its key.
    pub(super) words: bool,
    pub(super) entries: Entries,
    known: RefCell<Option<Rc<Inner<N>>>>,
    /// The bytes of all known nodes.
    bytes: Rc<Cell<usize>>,
    most_bytes: usize,
    /// Chooses what is forgotten.
    random: Cell<u64>,
}

/// A node above the leaves, as it was read.
pub(super) struct Inner<N: Node> {
    pub(super) at: RemotePtr<N>,
    id: u64,
    pub(super) level: u8,
    /// The memory node of its leaves.
    pub(super) home: u64,
    /// As it was read last. Children that were added since are not known.
    pub(super) header: Cell<Header>,
    pub(super) claims: Cell<u64>,
    /// Guards of this epoch protect the node, and the children that the header has as live.
    epoch: Cell<PinnedEpoch>,
    /// Its keys are at least `low`, and below `high`.
    low: Box<[u8]>,
    high: Option<Box<[u8]>>,
    /// So many first bytes of its separators are those of `low`.
    pub(super) prefix: usize,
    /// What slots have of the separators, in ascending order. The keys of a child are at least its separator, and below the next one.
    words: Vec<u64>,
    /// The separators, unless they are words.
    separators: Vec<Box<[u8]>>,
    pub(super) slots: Vec<u8>,
    pub(super) children: Vec<RemotePtr<N>>,
    known: RefCell<Vec<Option<Rc<Inner<N>>>>>,
    bytes: Rc<Cell<usize>>,
}

/// A node of a path, and the index of the next one.
type Step<N> = (Rc<Inner<N>>, usize);

/// A head, as a READ has found it.
type Peeked<'g> = Result<<Head as farfield::layout::Field>::Value<'g>>;

/// A child that has just been made live.
pub(super) struct Child<'a, N: Node> {
    /// What its slot has of the separator in front of it.
    pub(super) word: u64,
    pub(super) separator: &'a [u8],
    pub(super) slot: usize,
    pub(super) at: RemotePtr<N>,
}

/// Which child is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// The one that has a key.
    At(&'a [u8]),
    /// The one that has the keys immediately below a key.
    Below(&'a [u8]),
    /// The last one.
    Last,
}

/// A child, and its parent, which the guard protects.
pub(super) struct Found<N: Node> {
    pub(super) parent: Rc<Inner<N>>,
    pub(super) index: usize,
}

// ANCHOR: prefix
/// Returns what a slot has of a key or a separator: the 8 bytes behind the prefix that all keys of the node have in common.
#[inline]
pub(super) fn word_of(key: &[u8], prefix: usize) -> u64 {
    let rest = key.get(prefix..).unwrap_or_default();
    if let Some(word) = rest.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(word)
}

/// Returns the length of the prefix that all keys from `low` to `high` have in common.
pub(super) fn prefix_of(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| low.iter().zip(high).take_while(|(low, high)| low == high).count())
}

/// Returns the shortest key of which a slot has this word.
pub(super) fn shortest(prefix: &[u8], word: u64) -> Vec<u8> {
    let rest = word.to_be_bytes();
    let end = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    [prefix, &rest[..end]].concat()
}
// ANCHOR_END: prefix

impl<N: Node> Inner<N> {
    /// Returns the index of a child.
    #[inline]
    pub(super) fn find(&self, target: Target<'_>) -> usize {
        let end = match target {
            Target::At(key) => self.separators_up_to(key, |separator, key| separator <= key),
            Target::Below(key) => self.separators_up_to(key, |separator, key| separator < key),
            Target::Last => self.children.len(),
        };
        end.saturating_sub(1)
    }

    #[inline]
    fn separators_up_to(&self, key: &[u8], is_up_to: impl Fn((u64, &[u8]), (u64, &[u8])) -> bool) -> usize {
        let word = word_of(key, self.prefix);
        if self.separators.is_empty() {
            return self.words.partition_point(|separator| is_up_to((*separator, &[]), (word, &[])));
        }
        let mut end = self.words.partition_point(|separator| *separator <= word);
        while end > 0 && !is_up_to((self.words[end - 1], &self.separators[end - 1]), (word, key)) {
            end -= 1;
        }
        end
    }

    /// Returns what a slot has of the separator in front of a child.
    pub(super) fn word(&self, index: usize) -> u64 {
        self.words[index]
    }

    /// Returns the lowest key that a child may have. `word` has room for one.
    pub(super) fn low_in<'a>(&'a self, index: usize, word: &'a mut [u8; 8]) -> &'a [u8] {
        match (index, self.separators.get(index)) {
            (0, _) => &self.low,
            (_, Some(separator)) => separator,
            (_, None) => {
                *word = self.words[index].to_be_bytes();
                word
            }
        }
    }

    /// Returns the key below which all keys of a child are.
    pub(super) fn high_in<'a>(&'a self, index: usize, word: &'a mut [u8; 8]) -> Option<&'a [u8]> {
        if index + 1 < self.children.len() {
            Some(self.low_in(index + 1, word))
        } else {
            self.high.as_deref()
        }
    }

    pub(super) fn low(&self, index: usize) -> Vec<u8> {
        self.low_in(index, &mut [0; 8]).to_vec()
    }

    pub(super) fn high(&self, index: usize) -> Option<Vec<u8>> {
        self.high_in(index, &mut [0; 8]).map(<[u8]>::to_vec)
    }

    /// Returns the length of the prefix that all keys of a child have in common.
    pub(super) fn prefix(&self, index: usize, words: bool) -> usize {
        if words { 0 } else { prefix_of(self.low_in(index, &mut [0; 8]), self.high_in(index, &mut [0; 8])) }
    }

    /// Returns whether a child is live, as far as is known.
    pub(super) fn is_live(&self, index: usize) -> bool {
        self.header.get().has(usize::from(self.slots[index]))
    }

    /// Returns whether a guard protects the node and its live children.
    #[inline]
    pub(super) fn is_protected(&self, g: &Guard<'_>) -> bool {
        self.epoch.get() == g.epoch()
    }

    #[inline]
    fn known(&self, index: usize) -> Option<Rc<Self>> {
        self.known.borrow()[index].clone()
    }

    /// An operation that reads the node's head, although the guard may not protect it.
    fn peek<'g>(&self) -> impl Operations<'g, Output = Peeked<'g>> + use<'g, N> {
        op::peek(RemotePtr::<Head>::from_address(self.at.address()))
    }

    /// Takes the header from a head that was read, if it is this node's: the guard protects it, then, provided that it was linked to when it was read.
    fn see(&self, head: Peeked<'_>, g: &Guard<'_>) -> bool {
        let head = head.ok().filter(|head| head.id == self.id);
        if let Some(head) = &head {
            self.header.set(head.header);
            self.claims.set(head.claims);
            self.epoch.set(g.epoch());
        }
        head.is_some()
    }

    /// Returns the node as it is after this thread has replaced some of its children. The first new one keeps the separator of the first old one.
    fn with(&self, old: Range<usize>, new: &[Child<'_, N>]) -> Self {
        fn spliced<T: Clone>(all: &[T], old: Range<usize>, new: impl ExactSizeIterator<Item = T>) -> Vec<T> {
            let mut spliced = Vec::with_capacity(all.len() + new.len() - old.len());
            spliced.extend_from_slice(&all[..old.start]);
            spliced.extend(new);
            spliced.extend_from_slice(&all[old.end..]);
            spliced
        }
        let separators = if self.separators.is_empty() {
            vec![]
        } else {
            let first = self.separators[old.start].clone();
            let first_and_rest =
                |number: usize| if number == 0 { first.clone() } else { Box::from(new[number].separator) };
            spliced(&self.separators, old.clone(), (0..new.len()).map(first_and_rest))
        };
        let inner = Self {
            at: self.at,
            id: self.id,
            level: self.level,
            home: self.home,
            header: self.header.clone(),
            claims: self.claims.clone(),
            epoch: self.epoch.clone(),
            low: self.low.clone(),
            high: self.high.clone(),
            prefix: self.prefix,
            words: spliced(&self.words, old.clone(), new.iter().map(|child| child.word)),
            slots: spliced(&self.slots, old.clone(), new.iter().map(|child| child.slot as u8)),
            children: spliced(&self.children, old.clone(), new.iter().map(|child| child.at)),
            known: RefCell::new(spliced(&self.known.borrow(), old, new.iter().map(|_| None))),
            separators,
            bytes: Rc::clone(&self.bytes),
        };
        self.bytes.set(self.bytes.get() + inner.bytes());
        inner
    }

    fn bytes(&self) -> usize {
        let separators: usize = self.separators.iter().map(|separator| separator.len() + 16).sum();
        size_of::<Self>() + self.children.len() * 33 + separators
    }
}

impl<N: Node> Drop for Inner<N> {
    fn drop(&mut self) {
        self.bytes.set(self.bytes.get() - self.bytes());
    }
}

impl<N: Node> Found<N> {
    /// Returns the child.
    #[inline]
    pub(super) fn at(&self) -> RemotePtr<N> {
        self.parent.children[self.index]
    }
}

impl<N: Node> Tree<N> {
    pub(super) fn new(top: Place<'static, TaggedLink<N, NodeTag>>, words: bool, entries: Entries) -> Self {
        Self {
            top,
            words,
            entries,
            known: RefCell::default(),
            bytes: Rc::default(),
            most_bytes: usize::MAX,
            random: Cell::new(1),
        }
    }

    /// Bounds the bytes of the nodes that are remembered.
    pub(super) fn set_bound(&mut self, bytes: usize) {
        self.most_bytes = bytes;
        self.forget_some();
    }

    /// Returns the level of the highest node, as it was read last.
    pub(super) fn height(&self) -> u8 {
        self.known.borrow().as_ref().map_or(0, |top| top.level)
    }

    /// Finds the child that has a key, below a node of a level, from 1 on. Nodes of levels below `fresh` are read anew. `None` if no node has that level.
    ///
    /// No round trip if the parent is known and the guard protects it; one, if its parents are known, to learn that they are current; and one for each node that
    /// is read.
    ///
    /// If a node was found frozen before, and is found again with `fresh` above the level of its parent, it was current in between, with the content that it has.
    #[inline]
    pub(super) async fn find(
        &self,
        key: Target<'_>,
        level: u8,
        fresh: u8,
        g: &Guard<'_>,
    ) -> Result<Option<Found<N>>> {
        if fresh <= level
            && let Some((found, above)) = self.find_known(key, level)
        {
            let parent = &found.parent;
            if !parent.is_protected(g)
                && above.is_some_and(|(above, index)| above.is_protected(g) && above.is_live(index))
            {
                parent.see(g.chain(parent.peek()).submit().await?, g);
            }
            if parent.is_protected(g) && parent.is_live(found.index) {
                return Ok(Some(found));
            }
        }
        Box::pin(self.find_unknown(key, level, fresh, g)).await
    }

    /// Finds a child as far as the nodes are known, and the parent of its parent.
    #[inline]
    fn find_known(&self, key: Target<'_>, level: u8) -> Option<(Found<N>, Option<Step<N>>)> {
        let (mut node, mut above) = (self.known.borrow().clone()?, None);
        while node.level > level {
            let index = node.find(key);
            let child = node.known(index)?;
            above = Some((node, index));
            node = child;
        }
        let found = Found { index: node.find(key), parent: node };
        (found.parent.level == level).then_some((found, above))
    }

    #[cold]
    async fn find_unknown(
        &self,
        key: Target<'_>,
        level: u8,
        mut fresh: u8,
        g: &Guard<'_>,
    ) -> Result<Option<Found<N>>> {
        let (mut rounds, mut backoff) = (0, g.backoff());
        'again: loop {
            rounds += 1;
            if rounds > PATIENCE {
                backoff.wait().await;
            }
            let mut path = Vec::new();
            let mut next = self.known.borrow().clone();
            while let Some(node) = next.filter(|node| node.level >= fresh && node.level >= level) {
                let index = node.find(key);
                next = node.known(index);
                path.push((node, index));
            }
            self.validate(&mut path, g).await?;
            let mut node = match path.pop() {
                Some((node, _)) => node,
                None => self.read_top_again(g).await?,
            };
            loop {
                let index = node.find(key);
                if !node.is_live(index) {
                    // Children were added. If it is not frozen, it is current.
                    let (low, high) = (node.low.to_vec(), node.high.as_deref().map(<[u8]>::to_vec));
                    let again = self.read(node.at, node.level, low, high, g).await?;
                    let Some(again) = again.filter(|again| !again.header.get().is_frozen()) else {
                        fresh = fresh.max(node.level + 2);
                        continue 'again;
                    };
                    node = self.learn(again, path.last());
                    continue;
                }
                if node.level <= level {
                    return Ok((node.level == level).then_some(Found { parent: node, index }));
                }
                let (low, high) = (node.low(index), node.high(index));
                let child = self.read(node.children[index], node.level - 1, low, high, g).await?;
                let parent = (Rc::clone(&node), index);
                let child = child.map(|child| self.learn(child, Some(&parent)));
                self.forget_some();
                match child {
                    // Else its parent may have been read before the child was frozen, and replaced.
                    Some(child) if !child.header.get().is_frozen() || fresh > child.level + 1 => {
                        path.push((std::mem::replace(&mut node, child), index));
                    }
                    Some(child) => {
                        fresh = child.level + 2;
                        continue 'again;
                    }
                    None => continue 'again,
                }
            }
        }
    }

    // ANCHOR: validate
    /// Finds out which nodes of a path are current, and removes the others. One round trip, unless the guard protects them all.
    async fn validate(&self, path: &mut Vec<Step<N>>, g: &Guard<'_>) -> Result<()> {
        let first = path.iter().rposition(|(node, _)| node.is_protected(g)).map_or(0, |last| last + 1);
        if first == path.len() {
            return Ok(());
        }
        let heads = path[first..].iter().map(|(node, _)| node.peek());
        let top = (first == 0).then(|| op::load(self.top));
        let (top, heads) = g.chain((top, heads.collect::<Vec<_>>())).submit().await?;
        let mut valid = first;
        if top.is_none_or(|top| top.shared().as_ptr() == path[0].0.at) {
            for head in heads {
                let is_linked = valid == 0 || path[valid - 1].0.is_live(path[valid - 1].1);
                if !is_linked || !path[valid].0.see(head, g) {
                    break;
                }
                valid += 1;
            }
        }
        path.truncate(valid);
        Ok(())
    }
    // ANCHOR_END: validate

    /// Reads the highest node. Two round trips.
    pub(super) async fn read_top(&self, g: &Guard<'_>) -> Result<Rc<Inner<N>>> {
        let (mut link, mut backoff) = (self.top.load(g).await?, g.backoff());
        loop {
            let at = link.shared().as_ptr();
            if at.is_null() || link.tag().level() == 0 {
                return Err(corrupt("its root has no node"));
            }
            let top = self.read(at, link.tag().level(), vec![], None, g).await?;
            let mut now = link;
            if top.as_ref().is_none_or(|top| top.header.get().is_frozen()) {
                now = self.top.load(g).await?;
            }
            // A frozen one was the highest when it was read.
            match top {
                Some(top) if now == link => return Ok(self.learn(top, None)),
                _ => backoff.wait().await,
            }
            link = now;
        }
    }

    /// Reads the highest node that is known, if it is current still. One round trip, then.
    async fn read_top_again(&self, g: &Guard<'_>) -> Result<Rc<Inner<N>>> {
        let known = self.known.borrow().clone();
        if let Some(top) = known.filter(|top| top.is_protected(g))
            && let Some(top) = self.read(top.at, top.level, vec![], None, g).await?
            && !top.header.get().is_frozen()
        {
            return Ok(self.learn(top, None));
        }
        self.read_top(g).await
    }

    /// Remembers a node below the last one of a path, or as the highest one. Of its children, it takes over what is known.
    fn learn(&self, node: Inner<N>, parent: Option<&Step<N>>) -> Rc<Inner<N>> {
        let node = Rc::new(node);
        let place = |known: &mut Option<Rc<Inner<N>>>| {
            if let Some(old) = known.replace(Rc::clone(&node)).filter(|old| old.level == node.level) {
                let (mut from, mut to) = (old.known.borrow_mut(), node.known.borrow_mut());
                for (child, known) in old.children.iter().zip(from.iter_mut()) {
                    let Some(known) = known.take() else { continue };
                    if let Some(index) = node.children.iter().position(|now| now == child) {
                        to[index] = Some(known);
                    }
                }
            }
        };
        match parent {
            Some((parent, index)) => place(&mut parent.known.borrow_mut()[*index]),
            None => place(&mut self.known.borrow_mut()),
        }
        node
    }

    /// Children of a node, which has this header now, were replaced by this thread: remembers it with the new ones. No round trip.
    pub(super) fn has_replaced(
        &self,
        node: &Rc<Inner<N>>,
        old: Range<usize>,
        new: &[Child<'_, N>],
        g: &Guard<'_>,
    ) {
        // Another task of the thread may have found it current in a later epoch, with a header of then.
        if !node.is_protected(g) {
            return;
        }
        let low = node.low_in(0, &mut [0; 8]).to_vec();
        let mut parent = None::<Step<N>>;
        let mut next = self.known.borrow().clone();
        while let Some(known) = next {
            if Rc::ptr_eq(&known, node) {
                let now = Rc::new(node.with(old, new));
                match parent {
                    Some((parent, index)) => parent.known.borrow_mut()[index] = Some(now),
                    None => *self.known.borrow_mut() = Some(now),
                }
                return self.forget_some();
            }
            let index = known.find(Target::At(&low));
            next = known.known(index);
            parent = Some((known, index));
        }
    }

    /// Reads a node above the leaves, which the guard protects. One round trip, and one if it has long separators. `None` if it was changed meanwhile.
    async fn read(
        &self,
        at: RemotePtr<N>,
        level: u8,
        low: Vec<u8>,
        high: Option<Vec<u8>>,
        g: &Guard<'_>,
    ) -> Result<Option<Inner<N>>> {
        let links = op::load_range(N::children(at), 0..SLOTS as u64);
        let (header, read, links) = g.chain((op::load(N::header(at)), op::read(at), links)).submit().await?;
        let prefix = if self.words { 0 } else { prefix_of(&low, high.as_deref()) };
        let mut live = Vec::with_capacity(header.count());
        let mut long = Vec::new();
        for slot in header.live() {
            let (word, child) = (N::keys(&read)[slot], links[slot].shared().as_ptr());
            if child.is_null() {
                return Ok(None);
            }
            let mut separator = Vec::new();
            if !self.words {
                separator = shortest(&low[..prefix], word);
                let link = N::link(N::held(&read, slot));
                if !link.is_null() {
                    long.push((live.len(), op::read_bytes(link.shared(), class(link)?)));
                }
            }
            live.push((word, separator.into_boxed_slice(), slot as u8, child));
        }
        if live.is_empty() {
            return Err(corrupt("a node has no children"));
        }
        let (indices, reads): (Vec<_>, Vec<_>) = long.into_iter().unzip();
        if !reads.is_empty() {
            for (index, separator) in indices.into_iter().zip(g.chain(reads).submit().await?) {
                live[index].1 = separator.into();
            }
        }
        live.sort_unstable_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
        let (claims, id, home) = N::claims_id_home(&read);
        let inner = Inner {
            at,
            id,
            level,
            home,
            header: Cell::new(header),
            claims: Cell::new(claims),
            epoch: Cell::new(g.epoch()),
            low: low.into(),
            high: high.map(Into::into),
            prefix,
            words: live.iter().map(|child| child.0).collect(),
            slots: live.iter().map(|child| child.2).collect(),
            children: live.iter().map(|child| child.3).collect(),
            known: RefCell::new(vec![None; live.len()]),
            separators: if self.words { vec![] } else { live.into_iter().map(|child| child.1).collect() },
            bytes: Rc::clone(&self.bytes),
        };
        self.bytes.set(self.bytes.get() + inner.bytes());
        Ok(Some(inner))
    }

    /// Forgets nodes until the others are within the bound: each time one without known children, at random.
    fn forget_some(&self) {
        while self.bytes.get() > self.most_bytes {
            let Some(mut node) = self.known.borrow().clone() else { return };
            loop {
                let mut known = node.known.borrow_mut();
                let mut random = self.random.get();
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                self.random.set(random);
                let from = random as usize % known.len();
                let indices = (from..known.len()).chain(0..from);
                let Some(index) = indices.into_iter().find(|index| known[*index].is_some()) else {
                    if node.level == self.height() {
                        return;
                    }
                    break;
                };
                let Some(child) = known[index].clone() else { return };
                let is_lowest = child.known.borrow().iter().all(Option::is_none);
                if is_lowest {
                    known[index] = None;
                    break;
                }
                drop(known);
                node = child;
            }
        }
    }
}
