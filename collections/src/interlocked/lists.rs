//! The table in far memory, and operations on keys and values, which are words here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use farfield::op::Replacement;
use farfield::prelude::*;
use farfield::{Address, Error};
use siphasher::sip::SipHasher13;

use super::super::hash_map::counters::Counting;

/// The pairs of an element list.
pub(super) const PAIRS: usize = 8;
/// The bits of a state that say which pairs are present.
const PRESENT: u64 = (1 << PAIRS) - 1;
/// The version that a change of the keys adds.
const VERSION: u64 = 1 << PAIRS;
/// Set in each state: without it a sweep could take a small one for an address, and leave the memory of a dead client that is there.
const NO_ADDRESS: u64 = 1 << 63;
/// The slots of the root. A pointer list has twice as many as its parent.
pub(super) const ROOT_SLOTS: u64 = 1024;
/// The most pointer lists on a path. Their slots number 2^75 together, so 9 keys share such a path only if their hashes are equal.
pub(super) const DEEPEST: usize = 6;
/// What the seeds of two levels differ by: 2^64 over the golden ratio.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The tag of the link to a list: whether it is a pointer list.
#[tag(pointers)]
pub(super) struct ListTag;

/// The root of a table, from which [`InterlockedHashTable::attach`](super::InterlockedHashTable::attach) makes a handle.
#[remote]
pub struct InterlockedHashTableRoot<K: Word, V: Word> {
    /// Of the keyed hash of the first level.
    pub(super) seed: [u64; 2],
    /// The bits of hashes that are used: all, but for tests.
    pub(super) mask: u64,
    /// Stands for the types of keys and values.
    pub(super) types: u64,
    /// The root's slots: slot `s` is in part `s mod n`, and each part on another memory node.
    pub(super) parts: Tail<RemotePtr<List>>,
    #[local]
    pub(super) stored: PhantomData<fn() -> (K, V)>,
}

/// A list: an element list has no slots, and a pointer list does not use its pairs.
#[remote]
pub(super) struct List {
    pub(super) state: Atomic<State>,
    pub(super) keys: [Atomic<u64>; PAIRS],
    pub(super) values: [Atomic<u64>; PAIRS],
    pub(super) slots: Tail<Slot>,
}

/// A slot of a pointer list. Its lock guards the element list to which it links.
#[remote]
pub(super) struct Slot {
    pub(super) lock: Lock,
    pub(super) link: TaggedLink<List, ListTag>,
}

/// The state of an element list, as a READ of it alone finds it.
#[remote]
pub(super) struct StateWord {
    state: Atomic<State>,
}

/// Which pairs of an element list are present, and a version that each change of that increases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Word)]
pub(super) struct State(u64);

pub(super) type ListLink<'g> = Tagged<'g, List, ListTag>;
pub(super) type SlotPlace = Place<'static, Slot>;

impl State {
    /// Returns the state of a new list, in which the first pairs are present.
    fn of(pairs: usize) -> Self {
        Self(NO_ADDRESS | ((1 << pairs) - 1))
    }

    /// Returns the pairs that are present.
    pub(super) fn present(self) -> impl Iterator<Item = usize> {
        (0..PAIRS).filter(move |pair| self.0 >> pair & 1 == 1)
    }

    /// Returns a pair that is not present.
    fn vacant(self) -> Option<usize> {
        let pair = (self.0 & PRESENT).trailing_ones() as usize;
        (pair < PAIRS).then_some(pair)
    }

    /// Returns the state after a pair was added or removed.
    fn toggled(self, pair: usize) -> Self {
        Self((self.0 ^ 1 << pair).wrapping_add(VERSION))
    }
}

impl ListSnapshot<'_> {
    /// Returns the pair of a key, if the list has a state.
    #[inline]
    fn find(&self, state: State, key: u64) -> Option<usize> {
        state.present().find(|pair| self.keys[*pair] == key)
    }

    /// Returns keys and values, if the list has a state.
    pub(super) fn pairs(&self, state: State) -> impl Iterator<Item = (u64, u64)> {
        state.present().map(|pair| (self.keys[pair], self.values[pair]))
    }
}

/// A list to which a slot was seen to link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) list: RemotePtr<List>,
    pub(super) is_pointers: bool,
}

impl Known {
    /// `None` for a slot without a list.
    pub(super) fn of(link: ListLink<'_>) -> Option<Self> {
        let known = Self { list: link.shared().as_ptr(), is_pointers: link.tag().pointers() };
        (!link.is_null()).then_some(known)
    }
}

/// The lists of slots that were seen lately: each slot has one place.
pub(super) struct Cache(RefCell<Vec<Option<(Address, Known)>>>);

impl Cache {
    /// Makes a cache of about so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let places =
            (bytes / size_of::<Option<(Address, Known)>>()).checked_ilog2().map_or(0, |bits| 1 << bits);
        Self(RefCell::new(vec![None; places]))
    }

    fn place(slot: Address, places: usize) -> Option<usize> {
        let mixed = slot.bits().wrapping_mul(SEED_STEP) >> 32;
        Some(mixed as usize & places.checked_sub(1)?)
    }

    #[inline]
    fn get(&self, slot: SlotPlace) -> Option<Known> {
        let places = self.0.borrow();
        let (of, known) = places[Self::place(slot.address(), places.len())?]?;
        (of == slot.address()).then_some(known)
    }

    /// Remembers a list. A pointer list leaves its place only to another one: it stays what it is, and is on the path of many keys.
    pub(super) fn put(&self, slot: SlotPlace, known: Known) {
        let mut places = self.0.borrow_mut();
        let Some(place) = Self::place(slot.address(), places.len()) else { return };
        let is_pointers = |(of, old): (Address, Known)| of != slot.address() && old.is_pointers;
        if known.is_pointers || !places[place].is_some_and(is_pointers) {
            places[place] = Some((slot.address(), known));
        }
    }
}

/// A handle's view of a table.
pub(super) struct Lists {
    pub(super) seed: [u64; 2],
    pub(super) mask: u64,
    pub(super) parts: Vec<RemotePtr<List>>,
    pub(super) cache: Cache,
    pub(super) counting: Counting,
}

/// A slot on the path of a key.
#[derive(Clone, Copy)]
struct Spot {
    level: usize,
    /// The pointer list of the slot.
    list: RemotePtr<List>,
    slot: SlotPlace,
    /// What it was seen to link to: an element list may have been replaced since, a pointer list not.
    known: Option<Known>,
}

/// What becomes of a key.
pub(super) enum Change {
    Keep,
    Remove,
    /// It has this value.
    Store(u64),
}

impl Lists {
    /// Returns the slot of a key in pointer lists of a level. Each level has a seed of its own.
    #[inline]
    pub(super) fn slot_of(&self, key: u64, level: usize) -> u64 {
        let seed = self.seed[0].wrapping_add(SEED_STEP.wrapping_mul(level as u64));
        let hash = SipHasher13::new_with_keys(seed, self.seed[1]).hash(&key.to_le_bytes());
        hash & self.mask & ((ROOT_SLOTS << level) - 1)
    }

    /// Returns the place of a key in the root.
    fn start(&self, key: u64) -> Spot {
        let (slot, parts) = (self.slot_of(key, 0), self.parts.len() as u64);
        let list = self.parts[(slot % parts) as usize];
        Spot { level: 0, list, slot: list.slots().at(slot / parts), known: None }
    }

    /// Follows the path of a key through remembered pointer lists. No round trip.
    #[inline]
    fn follow(&self, key: u64, spot: &mut Spot) -> Result<()> {
        loop {
            if spot.known.is_none() {
                spot.known = self.cache.get(spot.slot);
            }
            let Some(Known { list, is_pointers: true }) = spot.known else { return Ok(()) };
            let level = spot.level + 1;
            if level == DEEPEST {
                return Err(Error::other(format!("{list:?} is a pointer list below the last level")));
            }
            *spot = Spot { level, list, slot: list.slots().at(self.slot_of(key, level)), known: None };
        }
    }

    /// Remembers what a slot links to.
    fn learn(&self, spot: &mut Spot, known: Option<Known>) {
        spot.known = known;
        if let Some(known) = known {
            self.cache.put(spot.slot, known);
        }
    }

    // ANCHOR: get
    /// Returns the value of a key.
    pub(super) async fn get(&self, key: u64, g: &Guard<'_>) -> Result<Option<u64>> {
        let (mut spot, mut backoff) = (self.start(key), g.backoff());
        loop {
            self.follow(key, &mut spot)?;
            let Some(known) = spot.known else {
                self.counting.count(|counters| counters.directory_misses += 1);
                let link = spot.slot.link().load(g).await?;
                self.learn(&mut spot, Known::of(link));
                if spot.known.is_none() {
                    return Ok(None);
                }
                continue;
            };
            let state = RemotePtr::<StateWord>::from_address(known.list.state().address());
            let list = (op::peek(state), op::peek(known.list), op::peek(state));
            let (link, (before, seen, after)) = g.chain((op::load(spot.slot.link()), list)).submit().await?;
            if Known::of(link) != Some(known) {
                self.counting.count(|counters| counters.stale += 1);
                self.learn(&mut spot, Known::of(link));
                continue;
            }
            let (state, seen) = (before?.state, seen?);
            if after?.state == state {
                return Ok(seen.find(state, key).map(|pair| seen.values[pair]));
            }
            self.counting.count(|counters| counters.retries += 1);
            backoff.wait().await;
        }
    }
    // ANCHOR_END: get

    /// Makes of a key what `decide` makes of its value, under the lock of its element list; or by one CAS, if its slot has none yet. Returns the old value.
    /// It decides again if another client was faster, or the list has to grow twice.
    pub(super) async fn change(
        &self,
        key: u64,
        mut decide: impl FnMut(Option<u64>) -> Change,
        g: &Guard<'_>,
    ) -> Result<Option<u64>> {
        let mut spot = self.start(key);
        loop {
            self.follow(key, &mut spot)?;
            let Some(known) = spot.known else {
                self.counting.count(|counters| counters.directory_misses += 1);
                let link = spot.slot.link().load(g).await?;
                self.learn(&mut spot, Known::of(link));
                if spot.known.is_some() {
                    continue;
                }
                let Change::Store(value) = decide(None) else { return Ok(None) };
                if self.add_first(&mut spot, (key, value), g).await? {
                    return Ok(None);
                }
                continue;
            };
            let read = || (op::load(spot.slot.link()), op::peek(known.list));
            let (tried, mut seen) = g.chain((op::try_lock(spot.slot.lock()), read())).submit().await?;
            let mut lock = if let Some(lock) = tried {
                lock
            } else {
                self.counting.count(|counters| counters.waits += 1);
                let lock = spot.slot.lock().acquire(g).await?;
                seen = g.chain(read()).submit().await?;
                lock
            };
            let (link, list) = seen;
            // A dead owner leaves nothing to repair.
            lock.recovered();
            if Known::of(link) != Some(known) {
                self.counting.count(|counters| counters.stale += 1);
                self.learn(&mut spot, Known::of(link));
                continue;
            }
            let (list, place) = (list?, known.list);
            let pair = list.find(list.state, key);
            let old = pair.map(|pair| list.values[pair]);
            match (decide(old), pair) {
                (Change::Keep, _) | (Change::Remove, None) => {}
                (Change::Remove, Some(pair)) => {
                    let state = op::store(place.state(), list.state.toggled(pair));
                    g.chain((state, op::release(lock))).submit().await?;
                }
                (Change::Store(value), Some(pair)) => {
                    let value = op::store(place.values().at(pair), value);
                    g.chain((value, op::release(lock))).submit().await?;
                }
                (Change::Store(value), None) => {
                    let Some(pair) = list.state.vacant() else {
                        let pairs = list.pairs(list.state).collect();
                        if self.expand(&mut spot, link, pairs, (key, value), lock, g).await? {
                            return Ok(None);
                        }
                        continue;
                    };
                    // The state last: it makes the key visible.
                    let key = op::store(place.keys().at(pair), key);
                    let value = op::store(place.values().at(pair), value);
                    let state = op::store(place.state(), list.state.toggled(pair));
                    g.chain((key, value, state, op::release(lock))).submit().await?;
                }
            }
            return Ok(old);
        }
    }

    /// Links a new element list with one pair to a slot, unless that has a list by now. Returns whether it did.
    async fn add_first(&self, spot: &mut Spot, pair: (u64, u64), g: &Guard<'_>) -> Result<bool> {
        let list = elements(spot.list, &[pair], g).await?;
        let known = Known { list: list.as_ptr(), is_pointers: false };
        let new = Replacement::of(list, ListTag::new(false))?;
        match g.chain(op::replace(spot.slot.link(), ListLink::NULL, 0, new)).submit().await? {
            Ok(replaced) => {
                // There was none.
                replaced.retire(g).await?;
                self.learn(spot, Some(known));
                Ok(true)
            }
            Err(refused) => {
                self.counting.count(|counters| counters.retries += 1);
                self.learn(spot, Known::of(refused.current));
                Ok(false)
            }
        }
    }

    // ANCHOR: expand
    /// Replaces a full element list by a pointer list with its pairs, and a new one; the lock is held. Returns `false` if all pairs have one slot there too, where
    /// the new one has no room.
    #[cold]
    async fn expand(
        &self,
        spot: &mut Spot,
        link: ListLink<'_>,
        pairs: Vec<(u64, u64)>,
        new: (u64, u64),
        lock: LockGuard<'_>,
        g: &Guard<'_>,
    ) -> Result<bool> {
        let (level, near) = (spot.level + 1, spot.list);
        if level == DEEPEST {
            return Err(too_many_equal());
        }
        let mut groups = BTreeMap::<u64, Vec<(u64, u64)>>::new();
        for pair in pairs {
            groups.entry(self.slot_of(pair.0, level)).or_default().push(pair);
        }
        let group = groups.entry(self.slot_of(new.0, level)).or_default();
        let has_room = group.len() < PAIRS;
        if has_room {
            group.push(new);
        }
        let mut slots: Vec<_> = (0..ROOT_SLOTS << level).map(|_| Slot::init()).collect();
        let mut lists = Vec::new();
        for (slot, pairs) in groups {
            let list = elements(near, &pairs, g).await?;
            slots[slot as usize] = Slot::init().link(TaggedWord::new(list.as_ptr(), ListTag::new(false))?);
            lists.push(list);
        }
        let pointers = List::new_in(g.near(near), List::init(slots)).await?;

        // All that may fail for want of memory has been done.
        let lists: Vec<_> = lists.into_iter().map(op::stage).collect();
        let (lists, pointers) = g.chain((lists, op::stage(pointers))).submit().await?;
        let known = Known { list: pointers.as_ptr(), is_pointers: true };
        let new = pointers.tagged(ListTag::new(true))?.with(lists);
        let replace = op::replace(spot.slot.link(), link, 0, new);
        match g.chain((replace, op::release(lock))).submit().await? {
            (Ok(replaced), ()) => {
                self.counting.count(|counters| counters.growths += 1);
                self.learn(spot, Some(known));
                replaced.retire(g).await?;
                Ok(has_room)
            }
            (Err(refused), ()) => Err(Error::other(format!(
                "the slot of {link:?} has changed to {:?}, though its lock was held: the table is corrupted",
                refused.current
            ))),
        }
    }
    // ANCHOR_END: expand
}

/// Makes an element list near a pointer list.
async fn elements(near: RemotePtr<List>, pairs: &[(u64, u64)], ct: &ComputeThread) -> Result<Owned<List>> {
    let pair = |number: usize| pairs.get(number).copied().unwrap_or_default();
    let init = List::init(Vec::new())
        .state(State::of(pairs.len()))
        .keys(std::array::from_fn(|number| pair(number).0))
        .values(std::array::from_fn(|number| pair(number).1));
    List::new_in(ct.near(near), init).await
}

#[cold]
fn too_many_equal() -> Error {
    Error::other(
        "more than 8 keys of the table have hashes that no pointer list separates: none has room for one more",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_inserted_and_removed_change_the_version() {
        let mut state = State::of(0);
        for pair in 0..PAIRS {
            assert_eq!(state.vacant(), Some(pair));
            state = state.toggled(pair);
        }
        assert_eq!((state.vacant(), state.present().count()), (None, PAIRS));
        let again = state.toggled(3).toggled(3);
        assert!(again != state && again.0 & PRESENT == state.0 & PRESENT);
    }

    #[test]
    fn a_pointer_list_leaves_its_place_in_the_cache_only_to_another_one() {
        let slot = |number: u64| SlotPlace::from_address(Address::new(0, 64 + 16 * number));
        let known = |number: u64, is_pointers| Known {
            list: RemotePtr::from_address(Address::new(1, 8 * number)),
            is_pointers,
        };
        // Of one place.
        let cache = Cache::new(size_of::<Option<(Address, Known)>>());
        cache.put(slot(1), known(1, false));
        cache.put(slot(2), known(2, true));
        assert!(cache.get(slot(1)).is_none());
        cache.put(slot(1), known(1, false));
        assert!(cache.get(slot(1)).is_none() && cache.get(slot(2)) == Some(known(2, true)));
        cache.put(slot(1), known(3, true));
        assert!(cache.get(slot(1)) == Some(known(3, true)) && cache.get(slot(2)).is_none());
        assert!(Cache::new(0).get(slot(1)).is_none());
    }
}
