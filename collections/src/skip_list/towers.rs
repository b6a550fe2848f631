//! The towers of a skip list, how they are read, and what a handle remembers of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use farfield::op::Operations;
use farfield::prelude::*;
use farfield::{Address, CompareExchangeError, Error};

/// The most levels of a tower: enough for 4^16 keys.
pub(super) const LEVELS: usize = 16;
/// A tower has another level with a probability of 1 in 2^BITS.
const BITS: u32 = 2;
/// The most towers that are read in one round trip because the handle remembers the way.
const MOST_GUESSES: usize = 32;
/// Bytes of a remembered tower, with its place in the table.
const BYTES: usize = 96;

/// The tag of a tower's link: the height of the tower that it points to, and whether the tower that has the link is dead at this level.
#[tag(height: 6, dead)]
pub struct TowerTag;

/// A key, its value, and a link for each level.
#[remote]
pub struct Tower<K: Word, V: Word> {
    /// The head's key and value have no meaning.
    pub(super) key: K,
    pub(super) value: V,
    /// Held while levels above the bottom are linked.
    pub(super) raising: Lock,
    /// Those above the bottom are hidden: a stale one may point to a tower that was taken out.
    pub(super) links: Tail<TaggedLink<Tower<K, V>, TowerTag>>,
}

/// The root of a skip list, from which [`SkipList::attach`](super::SkipList::attach) makes a handle.
#[remote]
pub struct SkipListRoot<K: Word, V: Word> {
    /// Stands for the types of keys and values.
    pub(super) types: u64,
    pub(super) head: RemotePtr<Tower<K, V>>,
}

/// The value of a link.
pub(crate) type Next<'g, K, V> = Tagged<'g, Tower<K, V>, TowerTag>;

/// Returns a link in the form in which a tower stores it in a level.
pub(super) fn stored<K: Word, V: Word>(next: Next<'_, K, V>, level: usize) -> Next<'_, K, V> {
    if level == 0 { next } else { next.hidden() }
}

/// The previous link, as `Ok` if it was replaced.
type Exchanged<'g, K, V> = Result<Next<'g, K, V>, CompareExchangeError<Next<'g, K, V>, ()>>;

/// A CAS of a link in a level.
pub(super) fn exchange_link<'g, K: Word, V: Word>(
    tower: &Seen<'g, K, V>,
    level: usize,
    expected: Next<'g, K, V>,
    new: Next<'g, K, V>,
) -> impl Operations<'g, Output = Exchanged<'g, K, V>> + use<'g, K, V> {
    op::compare_exchange_link(tower.link(level), stored(expected, level), stored(new, level))
}

/// A link with, or without, the mark of a dead tower.
pub(super) fn marked<K: Word, V: Word>(next: Next<'_, K, V>, dead: bool) -> Next<'_, K, V> {
    next.with_tag(next.tag().with_dead(dead))
}

/// A tower as it was read. Its links were read before its lock.
pub(crate) struct Seen<'g, K: Word, V: Word> {
    pub(super) at: Shared<'g, Tower<K, V>>,
    pub(crate) key: K,
    pub(crate) value: V,
    pub(super) links: Vec<Next<'g, K, V>>,
    /// True if its levels are being linked.
    pub(super) is_raised: bool,
    /// When it was read in a search.
    pub(super) turn: usize,
    /// True once the search has come to it.
    is_visited: Cell<bool>,
}

impl<'g, K: Word, V: Word> Seen<'g, K, V> {
    /// Returns whether the key was removed, or has another tower.
    pub(super) fn is_dead(&self) -> bool {
        self.links[0].tag().dead()
    }

    /// Returns whether a link is marked. Then all above the bottom are to be: the tower leads nowhere from there any more.
    pub(super) fn is_leaving(&self) -> bool {
        self.links.iter().any(|link| link.tag().dead())
    }

    /// Returns whether all links are marked.
    pub(super) fn is_frozen(&self) -> bool {
        self.links.iter().all(|link| link.tag().dead())
    }

    pub(super) fn link(&self, level: usize) -> Place<'g, TaggedLink<Tower<K, V>, TowerTag>> {
        self.at.links().at(level as u64)
    }
}

/// Where a search ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound<K> {
    /// At the first tower.
    First,
    /// At the first tower whose key is not below this one.
    At(K),
    /// At the first tower whose key is above this one.
    Behind(K),
    /// At the end.
    Last,
}

impl<K: Ord> Bound<K> {
    /// Returns whether a key is in front of it.
    pub(super) fn passes(&self, key: &K) -> bool {
        match self {
            Self::First => false,
            Self::At(bound) => key < bound,
            Self::Behind(bound) => key <= bound,
            Self::Last => true,
        }
    }
}

/// What a handle remembers of a tower. It may be outdated.
struct Known<K> {
    key: K,
    /// Addresses and heights.
    links: Vec<(Address, u8)>,
}

/// The towers that a handle remembers.
struct Cache<K> {
    towers: HashMap<Address, Known<K>>,
    most: usize,
    /// Lower towers are not remembered.
    floor: usize,
}

/// Access to the towers of a skip list.
pub(crate) struct Towers<K: Word, V: Word> {
    pub(super) head: RemotePtr<Tower<K, V>>,
    cache: RefCell<Cache<K>>,
}

/// The towers that a search has read, some of them ahead.
pub(super) struct Path<'g, K: Word, V: Word> {
    read: Vec<Rc<Seen<'g, K, V>>>,
    turns: usize,
}

impl<'g, K: Word, V: Word> Path<'g, K, V> {
    pub(super) fn new() -> Self {
        Self { read: Vec::new(), turns: 0 }
    }

    /// Begins where another search has ended.
    pub(super) fn from(seen: Option<&Seen<'g, K, V>>) -> Self {
        Self { read: Vec::new(), turns: seen.map_or(0, |seen| seen.turn) }
    }
}

impl<K: Word + Ord, V: Word> Towers<K, V> {
    pub(crate) fn new(head: RemotePtr<Tower<K, V>>, cache_bytes: usize) -> Self {
        let cache = Cache { towers: HashMap::new(), most: cache_bytes / BYTES, floor: 0 };
        Self { head, cache: RefCell::new(cache) }
    }

    /// Sets the size of the cache.
    pub(crate) fn with_cache(self, bytes: usize) -> Self {
        Self::new(self.head, bytes)
    }

    /// Makes the head of an empty list.
    pub(crate) async fn create_head(ct: &ComputeThread) -> Result<RemotePtr<Tower<K, V>>> {
        let head = Tower::init(K::initial(), V::initial(), vec![TaggedWord::NULL; LEVELS]);
        Tower::new_in(ct, head).await?.write(ct).await
    }

    /// Returns a link to the head.
    pub(super) fn to_head<'g>(&self, g: &'g Guard<'_>) -> Result<Next<'g, K, V>> {
        linked(self.head.shared(g), LEVELS)
    }

    /// Draws the height of a new tower.
    pub(super) fn height(ct: &ComputeThread) -> usize {
        (1 + (ct.random::<u64>().trailing_zeros() / BITS) as usize).min(LEVELS)
    }

    /// Reads a tower to which a link points. One round trip.
    pub(super) async fn read<'g>(
        &self,
        next: Next<'g, K, V>,
        g: &'g Guard<'_>,
    ) -> Result<Rc<Seen<'g, K, V>>> {
        let (at, height) = (next.shared(), u64::from(next.tag().height()));
        let (links, tower) = g.chain((op::load_range(at.links(), 0..height), op::read(at))).submit().await?;
        seen(at, links, &tower, 0)
    }

    /// Reads the tower to which a link points that was read at `after`: now, or ahead. With it, those that the search for `bound` will probably need next.
    pub(super) async fn visit<'g>(
        &self,
        next: Next<'g, K, V>,
        (level, bound): (usize, &Bound<K>),
        after: usize,
        path: &mut Path<'g, K, V>,
        g: &'g Guard<'_>,
    ) -> Result<Rc<Seen<'g, K, V>>> {
        // It was reachable when a link to it was read, which is before it was read itself.
        let is_it = |seen: &&Rc<Seen<'g, K, V>>| {
            seen.at == next.shared() && (seen.is_visited.get() || seen.turn > after)
        };
        if let Some(seen) = path.read.iter().rev().find(is_it) {
            seen.is_visited.set(true);
            self.remember(seen);
            return Ok(Rc::clone(seen));
        }
        let (at, height) = (next.shared(), u64::from(next.tag().height()));
        let guesses = self.guess(at.address(), level, bound);
        let peeks = guesses.iter().map(|(address, height)| {
            let at = RemotePtr::<Tower<K, V>>::from_address(*address);
            (op::peek_range(at.shared(g).links(), 0..u64::from(*height)), op::peek(at))
        });
        let first = (op::load_range(at.links(), 0..height), op::read(at));
        let ((links, tower), peeked) = g.chain((first, peeks.collect::<Vec<_>>())).submit().await?;
        path.turns += 1;
        let first = seen(at, links, &tower, path.turns)?;
        first.is_visited.set(true);
        self.remember(&first);
        path.read.push(Rc::clone(&first));
        for ((address, _), peeked) in guesses.into_iter().zip(peeked) {
            path.turns += 1;
            if let (Ok(links), Ok(tower)) = peeked {
                let at = RemotePtr::<Tower<K, V>>::from_address(address).shared(g);
                path.read.extend(seen(at, links, &tower, path.turns));
            }
        }
        Ok(first)
    }

    /// Returns the towers that a search will probably visit from a tower on, in order.
    fn guess(&self, from: Address, mut level: usize, bound: &Bound<K>) -> Vec<(Address, u8)> {
        let cache = self.cache.borrow();
        let mut guesses: Vec<(Address, u8)> = Vec::new();
        let Some(mut known) = cache.towers.get(&from) else { return guesses };
        if from != self.head.address() && !bound.passes(&known.key) {
            return guesses;
        }
        let mut behind = Address::NULL;
        while guesses.len() < MOST_GUESSES {
            let next = known.links.get(level).copied().unwrap_or((Address::NULL, 0));
            if !next.0.is_null() && next.0 != behind {
                guesses.push(next);
                if let Some(passed) = cache.towers.get(&next.0).filter(|known| bound.passes(&known.key)) {
                    known = passed;
                    continue;
                }
                behind = next.0;
            }
            if level == 0 {
                break;
            }
            level -= 1;
        }
        guesses
    }

    /// Remembers a tower that a search has visited.
    pub(super) fn remember(&self, seen: &Seen<'_, K, V>) {
        let links = seen.links.iter().map(|link| (link.shared().address(), link.tag().height()));
        self.remember_links(seen.at.address(), (!seen.is_dead()).then_some(seen.key), links);
    }

    /// Remembers the links of a tower; those of a dead one, which has no key any more, are forgotten.
    pub(super) fn remember_links(
        &self,
        at: Address,
        key: Option<K>,
        links: impl ExactSizeIterator<Item = (Address, u8)>,
    ) {
        let mut cache = self.cache.borrow_mut();
        if cache.most == 0 {
            return;
        }
        let Some(key) = key else { return drop(cache.towers.remove(&at)) };
        if links.len() < cache.floor {
            return;
        }
        if cache.towers.len() >= cache.most && !cache.towers.contains_key(&at) {
            // Low towers are forgotten first; at last all, since some may be gone.
            cache.floor = if cache.floor < LEVELS { cache.floor.max(1) + 1 } else { 0 };
            let floor = if cache.floor == 0 { LEVELS } else { cache.floor };
            cache.towers.retain(|_, known| known.links.len() >= floor);
            if links.len() < cache.floor {
                return;
            }
        }
        cache.towers.insert(at, Known { key, links: links.collect() });
    }

    /// Remembers a link that this thread has changed.
    pub(super) fn remember_link(&self, pred: &Seen<'_, K, V>, level: usize, next: Next<'_, K, V>) {
        if let Some(known) = self.cache.borrow_mut().towers.get_mut(&pred.at.address()) {
            known.links[level] = (next.shared().address(), next.tag().height());
        }
    }
}

/// Makes a link of a pointer and a height.
pub(super) fn linked<K: Word, V: Word>(at: Shared<'_, Tower<K, V>>, height: usize) -> Result<Next<'_, K, V>> {
    Tagged::new(at, TowerTag::new(height as u8, false))
}

/// Makes a tower of what was read.
fn seen<'g, K: Word, V: Word>(
    at: Shared<'g, Tower<K, V>>,
    links: Vec<Next<'g, K, V>>,
    tower: &TowerSnapshot<'g, K, V>,
    turn: usize,
) -> Result<Rc<Seen<'g, K, V>>> {
    if links.is_empty() || links.len() as u64 != tower.links.len() {
        return Err(Error::other(format!("the tower {at:?} has another height than links to it say")));
    }
    let links = links.into_iter().map(Tagged::shown).collect();
    let is_raised = tower.raising.is_held();
    let is_visited = Cell::new(false);
    Ok(Rc::new(Seen { at, key: tower.key, value: tower.value, links, is_raised, turn, is_visited }))
}
