//! `Store`: the operations of a structure that the workloads use.

use std::borrow::Borrow;

use farfield::prelude::*;
use farfield::{Bytes, Error, Remote};
use farfield_collections::{
    Counters, HashMap, HashMapRoot, InlineHashMap, InlineHashMapRoot, InterlockedHashTable,
    InterlockedHashTableRoot,
};

use crate::record;

/// A map from records to byte strings in far memory; the handle of a thread.
pub(crate) trait Store: Sized {
    type Root: Remote;

    /// Creates an empty map.
    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self::Root>>;
    /// Returns a handle of a map whose keys have `key_size` bytes.
    async fn attach(root: RemotePtr<Self::Root>, key_size: usize, ct: &ComputeThread) -> Result<Self>;
    async fn read(&self, record: u64, ct: &ComputeThread) -> Result<Option<Vec<u8>>>;
    /// Returns `false` if the record was present.
    async fn insert(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool>;
    /// Returns `false` if the record was absent.
    async fn update(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool>;
    /// Replaces a value by what `f` makes of it, atomically. Returns the old value.
    async fn modify(
        &self,
        record: u64,
        f: impl FnMut(&[u8]) -> Vec<u8>,
        ct: &ComputeThread,
    ) -> Result<Option<Vec<u8>>>;
    /// Returns a number by which the keys of records are in order, and among equal ones by the record.
    fn order(record: u64) -> u64 {
        record
    }
    /// Returns up to `length` records in the order of their keys, from `record` on. Only ordered stores do: the command line allows no scans of others.
    async fn scan(&self, _record: u64, _length: u64, _ct: &ComputeThread) -> Result<Vec<Scanned>> {
        Err(Error::other("the structure has no scans"))
    }
    /// Checks the structure, which nobody changes. Returns the number of records.
    async fn check(&self, ct: &ComputeThread) -> Result<u64>;
    /// Frees the map, which nobody uses any more.
    async fn destroy(self, ct: &ComputeThread) -> Result<()>;
    /// Returns what this handle has counted.
    fn counters(&self) -> Counters;
}

/// The record that a key in a scan is of, if it is one, and the value.
pub(crate) type Scanned = (Option<u64>, Vec<u8>);

/// The keys of records.
pub(crate) trait Keys {
    type Stored: Bytes;
    type Key: Borrow<<Self::Stored as Bytes>::Borrowed>;

    /// Returns the key of a record, of `size` bytes.
    fn key(record: u64, size: usize) -> Self::Key;
}

/// Keys that are byte strings.
pub(crate) struct Strings;

impl Keys for Strings {
    type Stored = Vec<u8>;
    type Key = Vec<u8>;

    fn key(record: u64, size: usize) -> Vec<u8> {
        record::key(record, size)
    }
}

/// Keys that are words: the numbers of records.
pub(crate) struct Words;

impl Keys for Words {
    type Stored = u64;
    type Key = u64;

    fn key(record: u64, _: usize) -> u64 {
        record
    }
}

/// A hash map of records.
pub(crate) struct Hashed<K: Keys> {
    map: HashMap<K::Stored, Vec<u8>>,
    key_size: usize,
}

impl<K: Keys> Hashed<K> {
    fn key(&self, record: u64) -> K::Key {
        K::key(record, self.key_size)
    }
}

impl<K: Keys> Store for Hashed<K>
where
    HashMapRoot<K::Stored, Vec<u8>>: Remote,
{
    type Root = HashMapRoot<K::Stored, Vec<u8>>;

    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self::Root>> {
        HashMap::create(ct).await
    }
    async fn attach(root: RemotePtr<Self::Root>, key_size: usize, ct: &ComputeThread) -> Result<Self> {
        Ok(Self { map: HashMap::attach(root, ct).await?, key_size })
    }
    async fn read(&self, record: u64, ct: &ComputeThread) -> Result<Option<Vec<u8>>> {
        self.map.get(self.key(record).borrow(), ct).await
    }
    async fn insert(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
        self.map.insert(self.key(record).borrow(), value, ct).await
    }
    async fn update(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
        self.map.update(self.key(record).borrow(), value, ct).await
    }
    async fn modify(
        &self,
        record: u64,
        mut f: impl FnMut(&[u8]) -> Vec<u8>,
        ct: &ComputeThread,
    ) -> Result<Option<Vec<u8>>> {
        self.map.modify(self.key(record).borrow(), |value| value.map(|value| f(&value)), ct).await
    }
    async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.map.check(ct).await
    }
    async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.map.destroy(ct).await
    }
    fn counters(&self) -> Counters {
        self.map.counters()
    }
}

/// Returns a value as a word. The command line allows only values of 8 bytes.
pub(crate) fn word(value: &[u8]) -> u64 {
    value.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

pub(crate) fn bytes(word: u64) -> Vec<u8> {
    word.to_le_bytes().to_vec()
}

/// Implements `Store` for a map whose keys and values are words.
macro_rules! words {
    ($map:ident, $root:ident) => {
        impl Store for $map<u64, u64> {
            type Root = $root<u64, u64>;

            async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self::Root>> {
                $map::create(ct).await
            }
            async fn attach(root: RemotePtr<Self::Root>, _: usize, ct: &ComputeThread) -> Result<Self> {
                $map::attach(root, ct).await
            }
            async fn read(&self, record: u64, ct: &ComputeThread) -> Result<Option<Vec<u8>>> {
                Ok($map::get(self, &record, ct).await?.map(bytes))
            }
            async fn insert(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
                $map::insert(self, &record, &word(value), ct).await
            }
            async fn update(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
                $map::update(self, &record, &word(value), ct).await
            }
            async fn modify(
                &self,
                record: u64,
                mut f: impl FnMut(&[u8]) -> Vec<u8>,
                ct: &ComputeThread,
            ) -> Result<Option<Vec<u8>>> {
                let change = |value: Option<u64>| value.map(|value| word(&f(&value.to_le_bytes())));
                Ok($map::modify(self, &record, change, ct).await?.map(bytes))
            }
            async fn check(&self, ct: &ComputeThread) -> Result<u64> {
                $map::check(self, ct).await
            }
            async fn destroy(self, ct: &ComputeThread) -> Result<()> {
                $map::destroy(self, ct).await
            }
            fn counters(&self) -> Counters {
                $map::counters(self)
            }
        }
    };
}

words!(InlineHashMap, InlineHashMapRoot);
words!(InterlockedHashTable, InterlockedHashTableRoot);
