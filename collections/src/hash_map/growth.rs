//! Growth: a full table is replaced by a larger one, or by two.

use farfield::op::Staged;
use farfield::prelude::*;

use super::directory::{Directory, Known};
#[allow(clippy::wildcard_imports)] // what the map consists of
use super::layout::*;
use super::table::{Seen, Tables};

/// How often a client waits for another that replaces a table, before it does so itself: the other may be dead.
const PATIENCE: usize = 8;

/// A slot of a new table.
type NewSlot = (u64, EntryWord);

/// The slots of a new table, and its scale.
struct Contents {
    scale: u8,
    slots: Vec<NewSlot>,
}

/// What replaces a table: one, or the lower and the upper half.
struct Plan {
    lower: Contents,
    upper: Option<Contents>,
}

impl Contents {
    /// Distributes keys over a table, each into the first free slot of its window.
    fn of(keys: impl Iterator<Item = NewSlot>, scale: u8) -> Option<Self> {
        let mut slots = vec![(VACANT, EntryWord::default()); buckets(scale) as usize * SLOTS];
        for key in keys {
            let from = home(key.0, scale) as usize * SLOTS;
            let free = slots[from..from + WINDOW].iter_mut().find(|slot| slot.0 == VACANT)?;
            *free = key;
        }
        Some(Self { scale, slots })
    }

    /// Distributes keys over a table of this scale or the next larger one with room.
    fn with_room(keys: &[NewSlot], scale: u8) -> Option<Self> {
        (scale..=LIMIT).find_map(|scale| Self::of(keys.iter().copied(), scale))
    }
}

impl Plan {
    /// The scales of its tables.
    fn scales(&self) -> (u8, Option<u8>) {
        (self.lower.scale, self.upper.as_ref().map(|upper| upper.scale))
    }

    /// Decides what replaces a table with these keys, in the order of its slots. One more key must fit. `None` if too many hashes are equal.
    fn new(keys: &[NewSlot], pending: u64, known: Known) -> Option<Self> {
        let (scale, depth) = (known.scale(), known.depth());
        let is_new = keys.iter().all(|(ident, _)| *ident != pending);
        let all: Vec<_> =
            keys.iter().copied().chain(is_new.then_some((pending, EntryWord::default()))).collect();
        let capacity = buckets(scale) as usize * SLOTS;
        let one = |scale| Some(Self { lower: Contents::of(all.iter().copied(), scale)?, upper: None });
        let split = || {
            let (upper, lower): (Vec<_>, Vec<_>) = all.iter().partition(|(ident, _)| ident >> depth & 1 == 1);
            let upper = Some(Contents::with_room(&upper, LARGEST)?);
            Some(Self { lower: Contents::with_room(&lower, LARGEST)?, upper })
        };
        // Most slots have belonged to keys that are removed.
        let mut plan = if all.len() * 5 < capacity * 2 { one(scale) } else { None };
        if scale < LARGEST {
            plan = plan.or_else(|| one(scale + 1));
        }
        if depth < DEEPEST {
            plan = plan.or_else(split);
        }
        let mut plan = plan.or_else(|| (scale..=LIMIT).find_map(one))?;
        for contents in [Some(&mut plan.lower), plan.upper.as_mut()].into_iter().flatten() {
            for slot in &mut contents.slots {
                if is_new && slot.0 == pending {
                    *slot = (VACANT, EntryWord::default());
                }
            }
        }
        Some(plan)
    }
}

impl Tables {
    /// Replaces the table of a window that has no slot for a key, or waits until another client has.
    #[cold]
    pub(super) async fn grow(
        &self,
        hash: Hash,
        seen: &Seen<'_>,
        backoff: &mut Backoff<'_>,
        g: &Guard<'_>,
    ) -> Result<()> {
        let (directory, known, index) = (self.directory(hash), seen.known, seen.index);
        self.replace(directory, index, known, hash.ident, backoff, g).await
    }

    /// Replaces a table, so that a key has a slot.
    pub(super) async fn replace(
        &self,
        directory: &Directory,
        index: u64,
        known: Known,
        pending: u64,
        backoff: &mut Backoff<'_>,
        g: &Guard<'_>,
    ) -> Result<()> {
        let Some(entry) = directory.entry(index) else { return Ok(()) };
        let (quiet, growing) = (known.word(false)?, known.word(true)?);
        if let Err(refused) = g.chain(op::compare_exchange_link(entry, quiet, growing)).submit().await? {
            let mut link = refused.current;
            for _ in 0..PATIENCE {
                if !known.is(link) {
                    directory.learn(index, link, g);
                    return Ok(());
                }
                self.counting.count(|counters| counters.waits += 1);
                backoff.wait().await;
                link = entry.load(g).await?;
            }
        }
        let table = known.table.shared(g);
        let replaced = self.replace_claimed(directory, index, known, table, pending, g).await;
        if replaced.is_err() {
            // Others need not wait for this client.
            let _ = g.chain(op::compare_exchange_link(entry, growing, quiet)).submit().await?;
        }
        replaced
    }

    async fn replace_claimed<'g>(
        &self,
        directory: &Directory,
        index: u64,
        known: Known,
        table: Shared<'g, Table>,
        pending: u64,
        g: &'g Guard<'_>,
    ) -> Result<()> {
        // Everything that may fail comes before the first slot is frozen.
        let Some(entry) = directory.entry(index) else { return Ok(()) };
        let read = table.buckets().read(g, 0..buckets(known.scale())).await?;
        let mut plan = Plan::new(&live(&read), pending, known).ok_or_else(too_many_equal)?;
        let mut other = None;
        if plan.upper.is_some() {
            other = Some(directory.entry_for(index | 1 << known.depth(), g).await?);
        }
        let mut new = self.allocate(directory, &plan, g).await?;
        directory.finish_split(index, known.depth(), table, g).await?;
        if !known.is(entry.load(g).await?) {
            return Ok(());
        }

        let frozen = self.freeze(table, known.scale(), g).await?;
        let keys = live(&frozen);
        let mut is_over = false;
        if let Some(now) = Plan::new(&keys, pending, known) {
            if now.scales() != plan.scales() {
                if now.upper.is_some() && other.is_none() {
                    other = Some(directory.entry_for(index | 1 << known.depth(), g).await?);
                }
                new = self.allocate(directory, &now, g).await?;
            }
            plan = now;
        } else {
            // The keys fit as they are, in the order of their slots.
            let lower = Contents::of(keys.iter().copied(), known.scale()).ok_or_else(too_many_equal)?;
            plan = Plan { lower, upper: None };
            new = self.allocate(directory, &plan, g).await?;
            is_over = true;
        }
        let (mut lower, mut upper) = new;
        fill(&mut lower, &plan.lower);
        let depth = known.depth() as u8 + u8::from(plan.upper.is_some());
        let mut second = None;
        if let (Some(table), Some(contents)) = (&mut upper, &plan.upper) {
            fill(table, contents);
            let word = TableWord::new(table.as_ptr(), TableTag::new(depth, contents.scale, false))?;
            lower.set(|table| table.sibling(), word);
            second = Some(word);
        }
        let (lower, upper) = g.chain((op::stage(lower), upper.map(op::stage))).submit().await?;
        let tag = TableTag::new(depth, plan.lower.scale, false);
        let first = lower.as_ptr();
        if self.publish(directory, index, known, (lower, tag), upper, g).await? {
            self.counting.count(|counters| counters.growths += 1);
            if let (Some(word), Some(other)) = (second, other) {
                let set = op::compare_exchange_link(other, TableWord::NULL, word);
                // As in `finish_split`.
                let _ = g.chain((set, op::store(first.sibling(), TableWord::NULL))).submit().await?;
            }
        }
        if is_over { Err(too_many_equal()) } else { Ok(()) }
    }

    // ANCHOR: publish
    /// Makes the directory's entry link to a new table instead of the one that it replaces, which is retired. Returns whether it did.
    async fn publish(
        &self,
        directory: &Directory,
        index: u64,
        known: Known,
        (lower, tag): (Staged<Table>, TableTag),
        upper: Option<Staged<Table>>,
        g: &Guard<'_>,
    ) -> Result<bool> {
        let Some(entry) = directory.entry(index) else { return Ok(false) };
        let mut new = lower.tagged(tag)?.with(upper);
        let mut link = entry.load(g).await?;
        // Whoever has waited for this client in vain gives up the claim, so the entry may be without it.
        while known.is(link) {
            match g.chain(op::replace(entry, link, buckets(known.scale()), new)).submit().await? {
                Ok(replaced) => {
                    directory.forget(index);
                    replaced.retire(g).await?;
                    return Ok(true);
                }
                Err(refused) => (link, new) = (refused.current, refused.new),
            }
        }
        directory.learn(index, link, g);
        Ok(false)
    }
    // ANCHOR_END: publish

    /// Allocates the tables of a plan.
    async fn allocate(
        &self,
        directory: &Directory,
        plan: &Plan,
        g: &Guard<'_>,
    ) -> Result<(Owned<Table>, Option<Owned<Table>>)> {
        let lower = new_table(directory.shard, plan.lower.scale, g).await?;
        let upper = match &plan.upper {
            Some(upper) => Some(new_table(directory.shard, upper.scale, g).await?),
            None => None,
        };
        Ok((lower, upper))
    }

    // ANCHOR: freeze
    /// Freezes all slots of a table, and returns them. Others may help.
    async fn freeze<'g>(
        &self,
        table: Shared<'g, Table>,
        scale: u8,
        g: &'g Guard<'_>,
    ) -> Result<Vec<BucketSnapshot<'g>>> {
        loop {
            let read = table.buckets().read(g, 0..buckets(scale)).await?;
            let (mut idents, mut links) = (Vec::new(), Vec::new());
            for (number, bucket) in read.iter().enumerate() {
                let place = table.buckets().at(number as u64);
                for slot in 0..SLOTS {
                    let KeySlotSnapshot { ident, link, .. } = bucket.slots[slot];
                    let slot = place.slots().at(slot);
                    if ident == VACANT {
                        idents.push(op::compare_exchange(slot.ident(), VACANT, FROZEN));
                    } else if ident != FROZEN && !link.tag().frozen() {
                        let frozen = EntryWord::new(link.shared().as_ptr(), link.tag().with_frozen(true))?;
                        links.push(op::compare_exchange_link(slot.link(), EntryWord::from(link), frozen));
                    }
                }
            }
            if idents.is_empty() && links.is_empty() {
                return Ok(read);
            }
            g.chain((idents, links)).submit().await?;
        }
    }
    // ANCHOR_END: freeze
}

/// Makes a table without keys.
pub(super) async fn new_table(
    near: RemotePtr<Shard<Table>>,
    scale: u8,
    ct: &ComputeThread,
) -> Result<Owned<Table>> {
    let vacant = || Bucket::init(std::array::from_fn(|_| KeySlot::init()));
    let vacant = (0..buckets(scale)).map(|_| vacant()).collect();
    Table::new_in(ct.near(near), Table::init([0; 14], vacant)).await
}

/// Fills a new table.
fn fill(table: &mut Owned<Table>, contents: &Contents) {
    for (number, slots) in contents.slots.chunks(SLOTS).enumerate() {
        let slots = std::array::from_fn(|slot| KeySlot::init().ident(slots[slot].0).link(slots[slot].1));
        table.set(|table| table.buckets().at(number as u64), Bucket::init(slots));
    }
}

/// Returns the keys in slots that were read, without the removed.
fn live(read: &[BucketSnapshot<'_>]) -> Vec<NewSlot> {
    let slots = read.iter().flat_map(|bucket| &bucket.slots);
    let live = slots.filter(|slot| slot.ident > FROZEN && !slot.link.is_null());
    live.filter_map(|KeySlotSnapshot { ident, link, .. }| {
        let tag = link.tag().with_frozen(false);
        Some((*ident, EntryWord::new(link.shared().as_ptr(), tag).ok()?))
    })
    .collect()
}

#[cold]
fn too_many_equal() -> farfield::Error {
    farfield::Error::other("too many keys of the map have equal hashes: no table has room for one more")
}

#[cfg(test)]
mod tests {
    use farfield::prelude::*;

    use crate::HashMap;
    use crate::hash_map::directory::Cursor;

    /// Else a table whose replacement a dead client has left half done could not be collected.
    #[test]
    fn after_a_split_nothing_leads_to_the_second_table_but_its_entry() {
        let done = Cluster::connect("local:").unwrap().run(1, async |ct| {
            let root = HashMap::<u64, u64>::create(ct).await?;
            let map = HashMap::attach(root, ct).await?;
            for key in 0..2_000 {
                map.insert(&key, &key, ct).await?;
            }
            let (mut cursor, mut tables) = (Cursor::default(), 0);
            let g = &ct.pin();
            while let Some((_, _, _, table)) = map.tables.next_table(&mut cursor, g).await? {
                assert!(table.sibling().load(g).await?.is_null(), "table {tables}");
                tables += 1;
            }
            assert!(tables > 8, "{tables} tables: none was split");
            map.destroy(ct).await
        });
        done.unwrap();
    }
}
