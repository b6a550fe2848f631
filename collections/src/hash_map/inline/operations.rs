//! Operations on keys and values, which are words here.

use farfield::prelude::*;

use super::super::counters::Counting;
use super::super::directory::{Directory, Found, Known, not_a_map};
use super::super::layout::{DirectoryPlace, Hash};
use super::buckets::{
    BucketPlace, InlineBucket, InlineShard, InlineTable, StateWord, UNSETTLED, home, lock_of,
};

/// A handle's view of a map.
pub(super) struct InlineTables {
    pub(super) seed: [u64; 2],
    pub(super) mask: u64,
    pub(super) shards: Vec<RemotePtr<InlineShard>>,
    /// Of the shards.
    pub(super) directories: Vec<Directory<InlineTable>>,
    pub(super) counting: Counting,
    /// True if round trips cost nothing. Then reading a few words one by one takes less time than the checksum of a bucket.
    pub(super) is_immediate: bool,
}

/// A shard, and what is known of its directory.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    shard: RemotePtr<InlineShard>,
    pub(super) directory: &'a Directory<InlineTable>,
}

/// The bucket of a key, in a table that may be outdated.
pub(super) struct Guess {
    pub(super) index: u64,
    pub(super) known: Known<InlineTable>,
    /// True if the guard protects the table.
    is_protected: bool,
    entry: DirectoryPlace<InlineTable>,
    bucket: BucketPlace,
    lock: Place<'static, Lock>,
}

/// What becomes of a key.
pub(super) enum Change {
    Keep,
    Remove,
    /// It has this value.
    Store(u64),
}

impl Part<'_> {
    /// Returns the place of a lock.
    pub(super) fn lock(&self, number: usize) -> Place<'static, Lock> {
        self.shard.locks().of().at(number)
    }
}

impl InlineTables {
    pub(super) fn hash(&self, key: u64) -> Hash {
        Hash::of(self.seed, self.mask, &key.to_le_bytes())
    }

    #[inline]
    pub(super) fn part(&self, hash: Hash) -> Part<'_> {
        let shard = hash.shard(self.shards.len());
        Part { shard: self.shards[shard], directory: &self.directories[shard] }
    }

    /// Returns the bucket of a key, as far as the directory is known.
    #[inline]
    async fn guess(&self, part: Part<'_>, ident: u64, g: &Guard<'_>) -> Result<Guess> {
        let directory = part.directory;
        let Found { index, known, is_protected } = match directory.find(ident, g) {
            Some(found) => {
                self.counting.count(|counters| counters.directory_hits += 1);
                found
            }
            None => directory.load_path(ident, &self.counting, g).await?,
        };
        let Some(entry) = directory.entry(index) else { return Err(not_a_map(directory)) };
        let bucket = home(ident, known.scale());
        let lock = part.lock(lock_of(index, bucket));
        Ok(Guess { index, known, is_protected, entry, bucket: known.table.buckets().at(bucket), lock })
    }

    // ANCHOR: get
    /// Returns the value of a key.
    #[inline]
    pub(super) async fn get(&self, key: u64, g: &Guard<'_>) -> Result<Option<u64>> {
        let hash = self.hash(key);
        let part = self.part(hash);
        let mut backoff = g.backoff();
        loop {
            let guess = self.guess(part, hash.ident, g).await?;
            let state = RemotePtr::<StateWord>::from_address(guess.bucket.state().address());
            let bucket = RemotePtr::<InlineBucket>::from_address(guess.bucket.address());
            if guess.is_protected && !self.is_immediate {
                let seen = bucket.read(g).await?;
                if seen.check == seen.checksum(self.seed) {
                    return Ok(seen.find(seen.state, key).map(|slot| seen.values[slot]));
                }
                self.counting.count(|counters| counters.retries += 1);
            }
            let chain = g.chain((op::load(guess.entry), op::peek(state), op::peek(bucket), op::peek(state)));
            let (link, before, bucket, after) = chain.submit().await?;
            if !guess.known.is(link) {
                self.counting.count(|counters| counters.stale += 1);
                part.directory.learn(guess.index, link, g);
                continue;
            }
            if !guess.is_protected {
                part.directory.learn(guess.index, link, g);
            }
            let (before, bucket) = (before?.state, bucket?);
            if after?.state == before {
                return Ok(bucket.find(before, key).map(|slot| bucket.values[slot]));
            }
            self.counting.count(|counters| counters.retries += 1);
            backoff.wait().await;
        }
    }
    // ANCHOR_END: get

    /// Makes of a key what `decide` makes of its value, under the lock of its bucket. Returns the old value. If the bucket has no slot for a new
    /// key, it decides again after the table has grown.
    pub(super) async fn change(
        &self,
        key: u64,
        mut decide: impl FnMut(Option<u64>) -> Change,
        g: &Guard<'_>,
    ) -> Result<Option<u64>> {
        let hash = self.hash(key);
        let part = self.part(hash);
        loop {
            let guess = self.guess(part, hash.ident, g).await?;
            let bucket = RemotePtr::<InlineBucket>::from_address(guess.bucket.address());
            let read = || (op::load(guess.entry), op::peek(bucket));
            let (tried, mut seen) = g.chain((op::try_lock(guess.lock), read())).submit().await?;
            let mut lock = if let Some(lock) = tried {
                lock
            } else {
                self.counting.count(|counters| counters.waits += 1);
                let lock = guess.lock.acquire(g).await?;
                seen = g.chain(read()).submit().await?;
                lock
            };
            let (link, bucket) = seen;
            // A dead owner leaves nothing to repair.
            lock.recovered();
            if !guess.known.is(link) {
                self.counting.count(|counters| counters.stale += 1);
                part.directory.learn(guess.index, link, g);
                continue;
            }
            if !guess.is_protected {
                part.directory.learn(guess.index, link, g);
            }
            let mut bucket = bucket?;
            let slot = bucket.find(bucket.state, key);
            let old = slot.map(|slot| bucket.values[slot]);
            let (place, release) = (guess.bucket, op::release);
            match (decide(old), slot) {
                (Change::Keep, _) | (Change::Remove, None) => {}
                (Change::Remove, Some(slot)) => {
                    bucket.state = bucket.state.toggled(slot);
                    let state = op::store(place.state(), bucket.state);
                    let check = op::store(place.check(), bucket.checksum(self.seed));
                    g.chain((state, check, release(lock))).submit().await?;
                }
                (Change::Store(value), Some(slot)) => {
                    bucket.values[slot] = value;
                    let unsettled = op::store(place.check(), UNSETTLED);
                    let value = op::store(place.values().at(slot), value);
                    let check = op::store(place.check(), bucket.checksum(self.seed));
                    g.chain((unsettled, value, check, release(lock))).submit().await?;
                }
                (Change::Store(value), None) => {
                    let Some(slot) = bucket.state.vacant() else {
                        drop(lock);
                        self.grow(hash, &guess, g).await?;
                        continue;
                    };
                    // The state last: it makes the key visible.
                    let pair =
                        (op::store(place.keys().at(slot), key), op::store(place.values().at(slot), value));
                    (bucket.keys[slot], bucket.values[slot]) = (key, value);
                    bucket.state = bucket.state.toggled(slot);
                    let state = op::store(place.state(), bucket.state);
                    let check = op::store(place.check(), bucket.checksum(self.seed));
                    g.chain((pair, state, check, release(lock))).submit().await?;
                }
            }
            return Ok(old);
        }
    }
}
