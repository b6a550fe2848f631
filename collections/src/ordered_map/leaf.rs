//! Operations on one key: in its leaf.

use farfield::op::Operations;
use farfield::prelude::*;
use farfield::{Error, error};

use super::entries::{DEAD_ENTRY, EntryLink, NewEntry, Sought, capacity, class, corrupt};
use super::node::{Front, Header, Node, SLOTS};
use super::restructure::{PATIENCE, Pending, Why};
use super::tree::{Found, Target, Tree, word_of};

/// What an operation makes of a key.
pub(super) enum Decision<B> {
    Keep,
    Put(B),
    Remove,
}

/// A leaf, as it was read.
pub(super) struct Leaf<'g, N: Node> {
    pub(super) found: Found<N>,
    pub(super) header: Header,
    pub(super) read: N::Value<'g>,
}

/// The leaf with a slot that an operation has claimed, and the value that it has put there.
type Claimed<N, B> = (RemotePtr<N>, usize, Option<B>);

/// The slot of a key, and what was made of its value.
type Slot<R> = (usize, Option<R>);

impl<N: Node> Tree<N> {
    /// Finds the leaf of a key: see [`find`](Self::find).
    pub(super) async fn find_leaf(&self, key: Target<'_>, fresh: u8, g: &Guard<'_>) -> Result<Found<N>> {
        self.find(key, 1, fresh, g).await?.ok_or_else(|| corrupt("its highest node is a leaf"))
    }

    // ANCHOR: read_leaf
    /// Reads the leaf of a key. One round trip, if its parent is known and current.
    pub(super) async fn read_leaf<'g>(&self, key: Target<'_>, g: &'g Guard<'_>) -> Result<Leaf<'g, N>> {
        let (mut fresh, mut frozen) = (1, None::<Leaf<'g, N>>);
        loop {
            let found = self.find_leaf(key, fresh, g).await?;
            // It was frozen, and is linked to still: so it was current in between.
            if let Some(leaf) = frozen.take().filter(|leaf| leaf.found.at() == found.at()) {
                return Ok(leaf);
            }
            let read = g.chain(op::read(found.at())).submit().await?;
            let leaf = self.whole(found, read, g).await?;
            if !leaf.header.is_frozen() {
                return Ok(leaf);
            }
            frozen = Some(leaf);
            fresh = 2;
        }
    }

    /// Takes a leaf as it was read, or reads it again behind its header if the READ has words of a live slot from before they were written.
    async fn whole<'g>(
        &self,
        found: Found<N>,
        mut read: N::Value<'g>,
        g: &'g Guard<'_>,
    ) -> Result<Leaf<'g, N>> {
        let mut header = N::header_of(&read);
        if !g.is_immediate() && !N::is_whole(&read) {
            let at = found.at();
            (header, read) = g.chain((op::load(N::header(at)), op::read(at))).submit().await?;
        }
        Ok(Leaf { found, header, read })
    }
    // ANCHOR_END: read_leaf

    /// Returns what `decode` makes of the value of a key.
    pub(super) async fn get<R>(
        &self,
        key: Sought<'_>,
        decode: impl Fn(&[u8]) -> R,
        g: &Guard<'_>,
    ) -> Result<Option<R>> {
        if N::INLINE && g.is_immediate() {
            let found = self.find_leaf(Target::At(key.ordered), 1, g).await?;
            let ((), _, (header, slot)) = g.chain(Self::glance(found.at(), key, false)).submit().await?;
            if !header.is_frozen() {
                let Some(place) = slot.and_then(|slot| N::value(found.at(), slot)) else { return Ok(None) };
                return place.load(g).await.map(|value| Some(decode(&value.to_le_bytes())));
            }
        }
        let mut backoff = g.backoff();
        loop {
            let leaf = self.read_leaf(Target::At(key.ordered), g).await?;
            if let Some(found) = self.search(key, &leaf, Some(&decode), g).await? {
                return Ok(found.and_then(|(_, value)| value));
            }
            backoff.wait().await;
        }
    }

    /// Reads the header of a leaf and the slot of a key, where a round trip costs nothing: the words of a READ are read in order there. Claims a slot before, if asked to.
    #[inline]
    fn glance<'g>(
        at: RemotePtr<N>,
        key: Sought<'_>,
        claims: bool,
    ) -> impl Operations<'g, Output = ((), Option<u64>, (Header, Option<usize>))> + use<'g, N> {
        let word = word_of(key.ordered, 0);
        let front = op::read_with(RemotePtr::<Front>::from_address(at.address()), move |front| {
            (front.header, front.header.live_with(&front.keys, word))
        });
        // The value, and the line of a slot that is claimed, are there when they are needed.
        (op::prefetch(at), claims.then(|| op::fetch_add(N::claims(at), 1)), front)
    }

    /// Looks for a key in a leaf. No round trip if keys and values are words, or if keys are and no value is asked for; else one. `None` if the leaf was changed
    /// meanwhile.
    async fn search<R>(
        &self,
        key: Sought<'_>,
        leaf: &Leaf<'_, N>,
        decode: Option<impl Fn(&[u8]) -> R>,
        g: &Guard<'_>,
    ) -> Result<Option<Option<Slot<R>>>> {
        let prefix = leaf.found.parent.prefix(leaf.found.index, self.words);
        let word = word_of(key.ordered, prefix);
        let keys = N::keys(&leaf.read);
        let mut same = leaf.header.live().filter(|slot| keys[*slot] == word);
        if N::INLINE {
            let found = same.next();
            let value = |slot| decode.map(|decode| decode(&N::word(N::held(&leaf.read, slot)).to_le_bytes()));
            return Ok(Some(found.map(|slot| (slot, value(slot)))));
        }
        let candidates: Vec<(usize, EntryLink<'_>)> =
            same.map(|slot| (slot, N::link(N::held(&leaf.read, slot)))).collect();
        if candidates.iter().any(|(_, link)| link.is_null()) {
            return Ok(None);
        }
        if self.words && decode.is_none() {
            return Ok(Some(candidates.first().map(|(slot, _)| (*slot, None))));
        }
        let check = key.check();
        let mut reads = Vec::new();
        let candidates = candidates.into_iter().filter(|(_, link)| link.tag().check() == check);
        for (slot, link) in candidates {
            let decode = decode.as_ref();
            let entries = self.entries;
            reads.push((
                slot,
                op::read_bytes_with(link.shared(), class(link)?, move |bytes| {
                    let (found, value) = (entries.split)(bytes)?;
                    (found == key.stored).then(|| decode.map(|decode| decode(value)))
                }),
            ));
        }
        if reads.is_empty() {
            return Ok(Some(None));
        }
        let (slots, reads): (Vec<_>, Vec<_>) = reads.into_iter().unzip();
        let values = g.chain(reads).submit().await?;
        let mut found = slots.into_iter().zip(values);
        Ok(Some(found.find_map(|(slot, value)| Some((slot, value?)))))
    }

    // ANCHOR: change
    /// Makes of a key what `decide` makes of its value, which it is told if it asks for values. `claims` if it may put one.
    pub(super) async fn change<B: AsRef<[u8]>>(
        &self,
        key: Sought<'_>,
        claims: bool,
        asks: bool,
        mut decide: impl FnMut(Option<&[u8]>) -> Result<Decision<B>>,
        g: &Guard<'_>,
    ) -> Result<()> {
        let (mut fresh, mut waits, mut backoff) = (1, 0, g.backoff());
        let mut frozen = None::<RemotePtr<N>>;
        let glances = N::INLINE && g.is_immediate() && !asks;
        let mut claimed = None::<Claimed<N, B>>;
        loop {
            let found = self.find_leaf(Target::At(key.ordered), fresh, g).await?;
            let at = found.at();
            let prefix = found.parent.prefix(found.index, self.words);
            let claims = claims && claimed.as_ref().is_none_or(|(leaf, ..)| *leaf != at);
            let mut leaf = None;
            let (claim, header, slot) = if glances {
                let ((), claim, (header, slot)) = g.chain(Self::glance(at, key, claims)).submit().await?;
                (claim, header, slot.map(|slot| (slot, None)))
            } else {
                let claim = claims.then(|| op::fetch_add(N::claims(at), 1));
                let (claim, read) = g.chain((claim, op::read(at))).submit().await?;
                let leaf = leaf.insert(self.whole(found, read, g).await?);
                (claim, leaf.header, None)
            };
            if let Some(claim) = claim {
                claimed = Some((at, claim as usize, None));
            }
            if header.is_frozen() {
                fresh = 2;
                if frozen.replace(at) != Some(at) {
                    continue;
                }
                // It is linked to still.
                waits += 1;
                if waits <= PATIENCE {
                    backoff.wait().await;
                    continue;
                }
                self.restructure(key.ordered, 0, at, Why::Frozen, None, g).await?;
                continue;
            }
            let slot = match &leaf {
                Some(leaf) => {
                    let value = asks.then_some(<[u8]>::to_vec);
                    let Some(slot) = self.search(key, leaf, value, g).await? else {
                        backoff.wait().await;
                        continue;
                    };
                    slot
                }
                None => slot,
            };
            let held = |slot: usize| leaf.as_ref().map(|leaf| N::held(&leaf.read, slot));
            let entry = |slot: usize| held(slot).map_or(EntryLink::NULL, N::link);
            let value = slot.as_ref().map(|(_, value)| value.as_deref().unwrap_or_default());
            let decision = decide(value)?;
            let slot = slot.map(|(slot, _)| slot);
            let new = match (decision, slot) {
                (Decision::Put(new), _) => new,
                (Decision::Remove, Some(slot)) => {
                    let next = header.without(slot);
                    let removal = op::compare_exchange(N::header(at), header, next);
                    if let Err(now) = g.chain(removal).submit().await? {
                        fresh = 1 + u8::from(now.is_frozen());
                        continue;
                    }
                    Self::unlink_entry(at, slot, entry(slot), g)?;
                    return self.is_removed(key.ordered, at, next, g).await;
                }
                _ => {
                    let Some(claimed) = claimed.filter(|claimed| claimed.0 == at) else { return Ok(()) };
                    return Self::give_back(claimed, entry, g);
                }
            };
            let Some((_, mine, put)) = claimed.take() else { return Err(corrupt("no slot")) };
            let word = word_of(key.ordered, prefix);
            if mine >= SLOTS {
                let value = new.as_ref();
                let pending = N::INLINE.then_some(Pending { header, replaced: slot, word, value });
                if self.restructure(key.ordered, 0, at, Why::Full(header), pending, g).await? {
                    return Ok(());
                }
                fresh = 2;
                continue;
            }
            let mut next = slot.map_or(header, |slot| header.without(slot)).with(mine);
            let is_there = put.as_ref().is_some_and(|put| put.as_ref() == new.as_ref());
            let mut put_new = None;
            if !is_there {
                let made = N::make(self.entries, key, new.as_ref(), at, g).await?;
                if put.is_some() {
                    next = next.rewritten();
                }
                let old = held(mine).filter(|_| put.is_some());
                put_new = Some((op::store(N::key(at, mine), word), N::put(at, mine, old, made)));
            }
            claimed = Some((at, mine, Some(new)));
            let put = (put_new, op::compare_exchange(N::header(at), header, next));
            if let Err(now) = g.chain(put).submit().await?.1 {
                fresh = 1 + u8::from(now.is_frozen());
                continue;
            }
            return slot.map_or(Ok(()), |slot| Self::unlink_entry(at, slot, entry(slot), g));
        }
    }
    // ANCHOR_END: change

    /// Gives back a slot that was claimed in vain, if it is the last one, or unlinks what was put there.
    fn give_back<'g, B>(
        (at, slot, put): Claimed<N, B>,
        entry: impl Fn(usize) -> EntryLink<'g>,
        g: &'g Guard<'_>,
    ) -> Result<()> {
        if put.is_some() {
            return Self::unlink_entry(at, slot, entry(slot), g);
        }
        if slot >= SLOTS {
            return Ok(());
        }
        let (last, free) = (slot as u64 + 1, slot as u64);
        g.chain(op::compare_exchange(N::claims(at), last, free)).post()
    }

    /// Makes the link of a slot null that is not live any more, and retires the entry. Not waited for: whoever replaces the node does the same.
    pub(super) fn unlink_entry(
        at: RemotePtr<N>,
        slot: usize,
        entry: EntryLink<'_>,
        g: &Guard<'_>,
    ) -> Result<()> {
        let Some(place) = N::entry(at, slot).filter(|_| !entry.is_null()) else { return Ok(()) };
        g.chain(op::replace(place, entry, capacity(entry), NewEntry::null(DEAD_ENTRY))).post()
    }
}

#[cold]
pub(super) fn invalid(argument: &'static str, value: String, reason: &'static str) -> Error {
    Error::from(error::InvalidArgument { argument, value: value.into(), reason })
}
