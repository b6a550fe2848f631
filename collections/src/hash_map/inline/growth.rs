//! Growth: a table with a full bucket is replaced by a larger one, or by two, under the locks of all of its buckets.

use std::ops::RangeInclusive;

use farfield::prelude::*;

use super::super::directory::{Directory, Known};
use super::super::layout::{DEEPEST, Hash, LARGEST, LIMIT, Shard, TableTag, TableWord};
#[allow(clippy::wildcard_imports)] // what the map consists of
use super::buckets::*;
use super::operations::{Guess, InlineTables, Part};

/// A key with its hash and its value.
#[derive(Clone, Copy)]
struct Pair {
    ident: u64,
    key: u64,
    value: u64,
}

/// The buckets of a new table, and its scale.
struct Contents {
    scale: u8,
    buckets: Vec<Vec<(u64, u64)>>,
}

/// What replaces a table: one, or the lower and the upper half.
struct Plan {
    lower: Contents,
    upper: Option<Contents>,
}

impl Contents {
    /// Distributes keys over a table. `None` if a bucket has too many, or no slot for another key that belongs there.
    fn of(pairs: &[Pair], pending: Option<u64>, scale: u8) -> Option<Self> {
        let mut contents = vec![Vec::new(); buckets(scale) as usize];
        for pair in pairs {
            contents[home(pair.ident, scale) as usize].push((pair.key, pair.value));
        }
        let pending = pending.map(|ident| home(ident, scale) as usize);
        let mut sizes = contents.iter().map(Vec::len).enumerate();
        let fit = sizes.all(|(number, len)| len + usize::from(pending == Some(number)) <= SLOTS);
        fit.then_some(Self { scale, buckets: contents })
    }

    /// Distributes keys over the smallest table of these scales that has room.
    fn with_room(pairs: &[Pair], pending: Option<u64>, mut scales: RangeInclusive<u8>) -> Option<Self> {
        scales.find_map(|scale| Self::of(pairs, pending, scale))
    }
}

impl Plan {
    /// Decides what replaces a table with these keys, so that one more has a slot. `None` if its bucket is full in every table.
    fn new(pairs: &[Pair], pending: u64, known: Known<InlineTable>) -> Option<Self> {
        let (scale, depth) = (known.scale(), known.depth());
        let one =
            |scales| Some(Self { lower: Contents::with_room(pairs, Some(pending), scales)?, upper: None });
        let split = || {
            let is_upper = |ident: u64| ident >> depth & 1 == 1;
            let (upper, lower): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| is_upper(pair.ident));
            let of_upper = is_upper(pending).then_some(pending);
            let of_lower = (!is_upper(pending)).then_some(pending);
            Some(Self {
                lower: Contents::with_room(&lower, of_lower, LARGEST..=LIMIT)?,
                upper: Some(Contents::with_room(&upper, of_upper, LARGEST..=LIMIT)?),
            })
        };
        let mut plan = one(scale + 1..=LARGEST);
        if depth < DEEPEST {
            plan = plan.or_else(split);
        }
        plan.or_else(|| one(scale + 1..=LIMIT))
    }
}

impl InlineTables {
    /// Replaces the table of a bucket that has no slot for a key, unless it has been replaced already, or has a slot again.
    #[cold]
    pub(super) async fn grow(&self, hash: Hash, full: &Guess, g: &Guard<'_>) -> Result<()> {
        let (part, index, known) = (self.part(hash), full.index, full.known);
        let directory = part.directory;
        let Some(entry) = directory.entry(index) else { return Ok(()) };
        // They are released wherever this function ends.
        let locks = self.lock_all(part, &locks_of(index, known.scale()), g).await?;
        let places = (0..buckets(known.scale())).map(|number| known.table.buckets().at(number).address());
        let peeks = places.map(|at| op::peek::<InlineBucket>(RemotePtr::from_address(at)));
        let (link, read) = g.chain((op::load(entry), peeks.collect::<Vec<_>>())).submit().await?;
        if !known.is(link) {
            directory.learn(index, link, g);
            return Ok(());
        }
        let read = read.into_iter().collect::<Result<Vec<_>>>()?;
        let pairs = self.pairs(&read);
        if Contents::of(&pairs, Some(hash.ident), known.scale()).is_some() {
            return Ok(());
        }
        let plan = Plan::new(&pairs, hash.ident, known).ok_or_else(too_many_equal)?;
        let table = link.shared();
        directory.finish_split(index, known.depth(), table, g).await?;
        let mut other = None;
        if plan.upper.is_some() {
            other = Some(directory.entry_for(index | 1 << known.depth(), g).await?);
        }

        // All that may fail for want of memory has been done.
        let depth = known.depth() as u8 + u8::from(plan.upper.is_some());
        let (mut lower, _) = plan.lower.build(directory, depth, self.seed, g).await?;
        let mut upper = None;
        let mut link_upper = None;
        if let (Some(contents), Some(other)) = (&plan.upper, other) {
            let (table, word) = contents.build(directory, depth, self.seed, g).await?;
            lower.set(|table| table.sibling(), word);
            upper = Some(op::stage(table));
            let set = op::compare_exchange_link(other, TableWord::NULL, word);
            // Else the first table would keep the second from being collected if the client that replaces the second dies.
            link_upper = Some((set, op::store(lower.as_ptr().sibling(), TableWord::NULL)));
        }
        let (lower, upper) = g.chain((op::stage(lower), upper)).submit().await?;
        let tag = TableTag::new(depth, plan.lower.scale, false);
        let new = lower.tagged(tag)?.with(upper);
        // A reader that does not read the entry relies on the checksum of a bucket, which must not be that of a replaced table.
        let places = (0..buckets(known.scale())).map(|number| table.buckets().at(number));
        let unsettle: Vec<_> = places.map(|bucket| op::store(bucket.check(), UNSETTLED)).collect();
        let replace = op::replace(entry, link, buckets(known.scale()), new);
        let releases: Vec<_> = locks.into_iter().map(op::release).collect();
        // Under the locks no CAS can fail but that of the upper half, if a reader has found it through `sibling`.
        match g.chain((unsettle, replace, link_upper, releases)).submit().await? {
            (_, Ok(replaced), _, _) => {
                directory.forget(index);
                self.counting.count(|counters| counters.growths += 1);
                replaced.retire(g).await
            }
            (_, Err(refused), _, _) => Err(farfield::Error::other(format!(
                "the entry of {table:?} has changed to {:?}, though its locks were held: the map is corrupted",
                refused.current
            ))),
        }
    }

    /// Takes locks in their order, each client the same: so none waits for another in a circle. One round trip, if all are free.
    async fn lock_all<'g>(
        &self,
        part: Part<'_>,
        numbers: &[usize],
        g: &'g Guard<'_>,
    ) -> Result<Vec<LockGuard<'g>>> {
        let mut held: Vec<LockGuard<'g>> = Vec::new();
        while held.len() < numbers.len() {
            let rest = numbers[held.len()..].iter().map(|number| op::try_lock(part.lock(*number)));
            let tried = g.chain(rest.collect::<Vec<_>>()).submit().await?;
            // Those behind one that is held by another client are released again.
            held.extend(tried.into_iter().map_while(|lock| lock));
            if let Some(number) = numbers.get(held.len()) {
                self.counting.count(|counters| counters.waits += 1);
                held.push(part.lock(*number).acquire(g).await?);
            }
        }
        for lock in &mut held {
            // A dead owner leaves nothing to repair.
            lock.recovered();
        }
        Ok(held)
    }

    /// Returns the keys and values of buckets.
    fn pairs(&self, read: &[InlineBucketSnapshot]) -> Vec<Pair> {
        let pairs = read.iter().flat_map(|bucket| bucket.pairs());
        pairs.map(|(key, value)| Pair { ident: self.hash(key).ident, key, value }).collect()
    }
}

impl Contents {
    /// Builds the table. Returns it with the word of a link to it.
    async fn build(
        &self,
        directory: &Directory<InlineTable>,
        depth: u8,
        seed: [u64; 2],
        ct: &ComputeThread,
    ) -> Result<(Owned<InlineTable>, TableWord<InlineTable>)> {
        let buckets = self.buckets.iter().map(|pairs| bucket_of(pairs, seed)).collect();
        let table =
            InlineTable::new_in(ct.near(directory.shard), InlineTable::init([0; 14], buckets)).await?;
        let word = TableWord::new(table.as_ptr(), TableTag::new(depth, self.scale, false))?;
        Ok((table, word))
    }
}

/// Makes a table without keys.
pub(super) async fn empty_table(
    near: RemotePtr<Shard<InlineTable>>,
    seed: [u64; 2],
    ct: &ComputeThread,
) -> Result<Owned<InlineTable>> {
    let vacant = (0..buckets(0)).map(|_| bucket_of(&[], seed)).collect();
    InlineTable::new_in(ct.near(near), InlineTable::init([0; 14], vacant)).await
}

#[cold]
fn too_many_equal() -> farfield::Error {
    farfield::Error::other(
        "more than 15 keys of the map have hashes that no table separates: none has room for one more",
    )
}
