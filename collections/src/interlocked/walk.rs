//! Walks over the lists of a table: iteration, counting, checking, recovery, destruction.

use std::collections::{HashSet, VecDeque};
use std::marker::PhantomData;

use farfield::Error;
use farfield::prelude::*;

#[allow(clippy::wildcard_imports)] // what the table consists of
use super::lists::*;

/// The most slots that are read at once: those of a pointer list below the root.
const MOST_SLOTS: u64 = 2 * ROOT_SLOTS;
/// The most element lists that a chain reads.
const LISTS_PER_CHAIN: usize = 128;

/// Where a slot is: the levels above, and its number in the pointer list of each.
#[derive(Clone, Copy)]
struct Path {
    level: usize,
    slots: [u32; DEEPEST],
}

/// Neighbouring slots that are still to be visited. Pointer lists live as long as the table, so no guard protects them.
#[derive(Clone)]
struct Piece {
    list: RemotePtr<List>,
    path: Path,
    slots: std::ops::Range<u64>,
    /// What slot numbers are made of: those of the root are in several parts.
    first: u64,
    step: u64,
    /// True if the walk comes back for a list that was locked, or changed while it was read.
    is_again: bool,
}

/// An element list, as it was at one moment.
struct Leaf {
    list: RemotePtr<List>,
    path: Path,
    pairs: Vec<(u64, u64)>,
}

/// What the slots of some pieces link to.
#[derive(Default)]
struct Visited {
    leaves: Vec<Leaf>,
    /// The slots of pointer lists.
    below: Vec<Piece>,
    again: Vec<Piece>,
    locked: Vec<Place<'static, Lock>>,
}

/// A walk over slots, each of which it visits at one moment.
pub(super) struct Walk(VecDeque<Piece>);

impl Walk {
    /// Begins at a slot of the root, and ends before it.
    pub(super) fn from(lists: &Lists, slot: u64) -> Self {
        let (parts, slot) = (lists.parts.len() as u64, slot % ROOT_SLOTS);
        let begin = |part: u64| slot.saturating_sub(part).div_ceil(parts);
        // That of the slot comes first.
        let order = || (slot..slot + parts).map(|slot| slot % parts);
        let behind = order().map(|part| lists.root(part, begin(part)..part_len(part, parts)));
        let before = order().map(|part| lists.root(part, 0..begin(part)));
        Self(behind.chain(before).filter(|piece| !piece.slots.is_empty()).collect())
    }

    /// Visits what one of several threads has to visit: of as few memory nodes as possible.
    pub(super) fn share(lists: &Lists, thread: usize, threads: usize) -> Self {
        let parts = lists.parts.len();
        let piece = |part| lists.root(part as u64, share_of(part, parts, thread, threads));
        Self((0..parts).map(piece).filter(|piece| !piece.slots.is_empty()).collect())
    }

    /// Visits the next slots, at most [`MOST_SLOTS`]. `None` at the end. If the future is dropped, they are visited by the next call.
    async fn next(&mut self, lists: &Lists, g: &Guard<'_>) -> Result<Option<Visited>> {
        let mut backoff = g.backoff();
        while !self.0.is_empty() {
            let (mut pieces, mut room) = (Vec::new(), MOST_SLOTS);
            for piece in &self.0 {
                let Piece { slots, .. } = piece;
                let end = slots.end.min(slots.start + room);
                room -= end - slots.start;
                pieces.push(Piece { slots: slots.start..end, ..piece.clone() });
                if room == 0 {
                    break;
                }
            }
            let visited = g.tasks(pieces.len(), async |piece| lists.visit(&pieces[piece], g).await).await?;
            for piece in &pieces {
                let Some(whole) = self.0.pop_front() else { break };
                if piece.slots.end < whole.slots.end {
                    self.0.push_front(Piece { slots: piece.slots.end..whole.slots.end, ..whole });
                }
            }
            let mut all = Visited::default();
            for visited in visited {
                all.leaves.extend(visited.leaves);
                all.below.extend(visited.below);
                all.again.extend(visited.again);
                all.locked.extend(visited.locked);
            }
            let is_waiting = pieces.iter().all(|piece| piece.is_again) && all.again.len() == pieces.len();
            // Depth first, so that few pieces are left to be visited.
            for piece in all.below.iter().rev() {
                self.0.push_front(piece.clone());
            }
            self.0.extend(all.again.drain(..));
            if !is_waiting {
                return Ok(Some(all));
            }
            backoff.wait().await;
        }
        Ok(None)
    }
}

/// Returns the number of the root's slots in a part.
pub(super) fn part_len(part: u64, parts: u64) -> u64 {
    (ROOT_SLOTS - part).div_ceil(parts)
}

/// Returns the slots of a part that a thread visits. A part belongs to the threads whose index has its remainder; with fewer threads than parts, a thread has several
/// parts.
fn share_of(part: usize, parts: usize, thread: usize, threads: usize) -> std::ops::Range<u64> {
    let len = part_len(part as u64, parts as u64);
    let (rank, of) = if threads <= part {
        (if thread == part % threads { 0 } else { return 0..0 }, 1)
    } else {
        (if thread % parts == part { thread / parts } else { return 0..0 }, (threads - part).div_ceil(parts))
    };
    let bound = |rank: usize| len * rank as u64 / of as u64;
    bound(rank)..bound(rank + 1)
}

impl Lists {
    /// Returns slots of the root: those with these indices in a part.
    fn root(&self, part: u64, slots: std::ops::Range<u64>) -> Piece {
        let (list, path) = (self.parts[part as usize], Path { level: 0, slots: [0; DEEPEST] });
        Piece { list, path, slots, first: part, step: self.parts.len() as u64, is_again: false }
    }

    /// Visits the slots of a piece: one round trip for them, and one for their element lists. Those that are locked, or change meanwhile, are put off.
    async fn visit(&self, piece: &Piece, g: &Guard<'_>) -> Result<Visited> {
        let slots = piece.list.slots().read(g, piece.slots.clone()).await?;
        let (mut visited, mut found) = (Visited::default(), Vec::new());
        for (index, slot) in piece.slots.clone().zip(slots) {
            let place: SlotPlace = piece.list.slots().at(index);
            let mut path = piece.path;
            path.slots[path.level] = (piece.first + piece.step * index) as u32;
            if slot.lock.is_held() || slot.lock.is_abandoned() {
                visited.locked.push(place.lock());
            }
            let Some(known) = Known::of(slot.link) else { continue };
            self.cache.put(place, known);
            let again = Piece { slots: index..index + 1, is_again: true, ..piece.clone() };
            if known.is_pointers {
                path.level += 1;
                if path.level == DEEPEST {
                    return Err(Error::other(format!(
                        "{:?} is a pointer list below the last level",
                        known.list
                    )));
                }
                let slots = 0..ROOT_SLOTS << path.level;
                let (first, step) = (0, 1);
                visited.below.push(Piece { list: known.list, path, slots, first, step, is_again: false });
            } else if slot.lock.is_held() && !piece.is_again {
                visited.again.push(again);
            } else {
                found.push((path, known.list, again));
            }
        }
        let chunks: Vec<_> = found.chunks(LISTS_PER_CHAIN).collect();
        let read = g.tasks(chunks.len(), async |chunk| {
            let lists = chunks[chunk].iter().map(|(_, list, _)| {
                let list = list.shared(g);
                (op::load(list.state()), op::read(list), op::load(list.state()))
            });
            g.chain(lists.collect::<Vec<_>>()).submit().await
        });
        for ((path, list, again), (before, seen, after)) in found.iter().zip(read.await?.iter().flatten()) {
            // The list may have been replaced since its slot was read. Then it shows what it had immediately before that.
            if before == after {
                let pairs = seen.pairs(*before).collect();
                visited.leaves.push(Leaf { list: *list, path: *path, pairs });
            } else {
                self.counting.count(|counters| counters.retries += 1);
                visited.again.push(again.clone());
            }
        }
        Ok(visited)
    }

    /// Returns the number of keys.
    pub(super) async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        let (mut walk, mut len) = (Walk::from(self, 0), 0);
        while let Some(visited) = walk.next(self, &ct.pin()).await? {
            len += visited.leaves.iter().map(|leaf| leaf.pairs.len()).sum::<usize>() as u64;
        }
        Ok(len)
    }

    /// Checks the invariants: see [`InterlockedHashTable::check`](super::InterlockedHashTable::check).
    pub(super) async fn check<K: Word, V: Word>(&self, ct: &ComputeThread) -> Result<u64> {
        let (mut walk, mut len) = (Walk::from(self, 0), 0);
        loop {
            let g = &ct.pin();
            let Some(visited) = walk.next(self, g).await? else { return Ok(len) };
            if let Some(lock) = visited.locked.first() {
                return Err(Error::other(format!("the lock at {} is not free", lock.address())));
            }
            let below = &visited.below;
            let lengths = g.tasks(below.len(), async |piece| below[piece].list.slots().len(g).await).await?;
            if let Some((piece, len)) = below.iter().zip(lengths).find(|(piece, len)| piece.slots.end != *len)
            {
                return Err(Error::other(format!(
                    "{:?} has {len} slots, not {}",
                    piece.list, piece.slots.end
                )));
            }
            for Leaf { list, path, pairs } in visited.leaves {
                let mut keys = HashSet::new();
                for (key, value) in pairs {
                    let fault =
                        |what: &str| Err(Error::other(format!("{list:?}: key {key:#x} {what}: {value:#x}")));
                    let is_here = |level: usize| self.slot_of(key, level) == u64::from(path.slots[level]);
                    if !(0..=path.level).all(is_here) {
                        return fault("is in another's list");
                    }
                    if !keys.insert(key) {
                        return fault("is a second one");
                    }
                    if K::from_word(key).is_none() || V::from_word(value).is_none() {
                        return fault("is no key and value");
                    }
                    len += 1;
                }
            }
        }
    }

    /// Releases the locks of dead clients.
    pub(super) async fn recover(&self, ct: &ComputeThread) -> Result<()> {
        let mut walk = Walk::from(self, 0);
        loop {
            let g = &ct.pin();
            let Some(visited) = walk.next(self, g).await? else { return Ok(()) };
            for lock in visited.locked {
                let mut lock = lock.acquire(g).await?;
                lock.recovered();
                lock.release().await?;
            }
        }
    }

    /// Frees all but the root.
    pub(super) async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        let (mut walk, mut lists) = (Walk::from(&self, 0), self.parts.clone());
        while let Some(visited) = walk.next(&self, &ct.pin()).await? {
            lists.extend(visited.leaves.iter().map(|leaf| leaf.list));
            lists.extend(visited.below.iter().map(|piece| piece.list));
        }
        for lists in lists.chunks(LISTS_PER_CHAIN) {
            ct.tasks(lists.len(), async |list| ct.delete(lists[list]).await).await?;
        }
        Ok(())
    }
}

/// Keys of a table and their values: see [`InterlockedHashTable::iter`](super::InterlockedHashTable::iter).
pub struct InterlockedIter<'a, K: Word, V: Word> {
    lists: &'a Lists,
    ct: &'a ComputeThread,
    walk: Walk,
    ready: VecDeque<(u64, u64)>,
    stored: PhantomData<fn() -> (K, V)>,
}

impl<'a, K: Word, V: Word> InterlockedIter<'a, K, V> {
    pub(super) fn new(lists: &'a Lists, ct: &'a ComputeThread, walk: Walk) -> Self {
        Self { lists, ct, walk, ready: VecDeque::new(), stored: PhantomData }
    }

    /// Returns the next key and its value. Two round trips for 2,048 slots, which all memory nodes answer at the same time. If the future is dropped, no key is lost.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn next(&mut self) -> Result<Option<(K, V)>> {
        while self.ready.is_empty() {
            let g = &self.ct.pin();
            let Some(visited) = self.walk.next(self.lists, g).await? else { return Ok(None) };
            self.ready = visited.leaves.into_iter().flat_map(|leaf| leaf.pairs).collect();
        }
        let Some((key, value)) = self.ready.pop_front() else { return Ok(None) };
        let pair = K::from_word(key).zip(V::from_word(value));
        pair.map(Some).ok_or_else(not_of_its_types)
    }
}

#[cold]
pub(super) fn not_of_its_types() -> Error {
    Error::other("a word of the table is no key or value of its types")
}

#[cfg(test)]
mod tests {
    use super::super::InterlockedHashTable;
    use super::*;

    #[test]
    fn an_iterator_comes_back_for_a_list_whose_lock_is_held_and_does_not_wait_for_it() {
        let done = Cluster::connect("local:nodes=2").unwrap().run(1, async |ct| {
            let root = InterlockedHashTable::<u64, u64>::create(ct).await?;
            let table = InterlockedHashTable::attach(root, ct).await?;
            for key in 0..200 {
                table.insert(&key, &key, ct).await?;
            }
            let keys = async |slot: u64| {
                let (mut iter, mut keys) = (table.iter_from(slot, ct), Vec::new());
                while let Some((key, _)) = iter.next().await? {
                    keys.push(key);
                }
                Ok::<_, Error>(keys)
            };
            let slot = table.lists.slot_of(7, 0);
            let first = keys(slot).await?;
            let parts = table.lists.parts.len() as u64;
            let place = table.lists.parts[(slot % parts) as usize].slots().at(slot / parts);
            let lock = place.lock().acquire(ct).await?;
            let last = keys(slot).await?;
            let listed = (0..200).filter(|key| table.lists.slot_of(*key, 0) == slot).count();
            assert!(first[..listed].contains(&7), "{first:?}");
            assert_eq!(last[200 - listed..], first[..listed], "it comes last");
            assert_eq!((first.len(), last.len()), (200, 200));
            let refused = table.check(ct).await.unwrap_err().to_string();
            assert!(refused.contains("is not free"), "{refused}");
            lock.release().await?;
            assert_eq!(table.check(ct).await?, 200);
            table.destroy(ct).await
        });
        done.unwrap();
    }

    #[test]
    fn each_slot_of_the_root_has_one_owner_and_threads_have_equal_shares() {
        for parts in [1, 2, 3, 5, 64] {
            for threads in [1, 2, 3, 4, 7, 64, 100] {
                let mut shares = vec![0; threads];
                for part in 0..parts {
                    let mut next = 0;
                    let mut ranges: Vec<_> =
                        (0..threads).map(|thread| (share_of(part, parts, thread, threads), thread)).collect();
                    ranges.sort_by_key(|(range, _)| (range.start, range.end));
                    for (range, thread) in ranges.into_iter().filter(|(range, _)| !range.is_empty()) {
                        assert_eq!(range.start, next, "part {part} of {parts}, {threads} threads");
                        next = range.end;
                        shares[thread] += range.end - range.start;
                    }
                    assert_eq!(next, part_len(part as u64, parts as u64));
                }
                assert_eq!(shares.iter().sum::<u64>(), ROOT_SLOTS);
                let most = shares.iter().max().unwrap();
                assert!(*most <= 2 * (ROOT_SLOTS / threads as u64 + 1) + 1, "{parts}, {threads}: {shares:?}");
            }
        }
    }
}
