//! The ordered maps: stores that have scans.
//!
//! The records are in the order of a hash, as YCSB has them unless told otherwise, so insertions come everywhere.

use std::borrow::Borrow;
use std::fmt::Debug;

use farfield::prelude::*;
use farfield::{Bytes, Remote};
use farfield_collections::{Counters, Key, OrderedMap, OrderedMapRoot, SkipList, SkipListRoot, Value};

use crate::record;
use crate::store::{Keys, Scanned, Store, Strings, bytes, word};

/// Keys that are in order.
pub(crate) trait OrderedKeys: Keys<Key = <Self as Keys>::Stored> {
    /// Returns a number by which keys are in order, and among equal ones by the record.
    fn order(record: u64) -> u64;
    /// Returns the record of a key of `size` bytes; `None` if it is the key of no record.
    fn record(key: &Self::Key, size: usize) -> Option<u64>;
}

impl OrderedKeys for Strings {
    fn order(record: u64) -> u64 {
        record::key_hash(record)
    }
    fn record(key: &Vec<u8>, size: usize) -> Option<u64> {
        record::of_key(key, size)
    }
}

/// Keys that are words: hashes of the records.
pub(crate) struct Hashes;

impl Keys for Hashes {
    type Stored = u64;
    type Key = u64;

    fn key(record: u64, _: usize) -> u64 {
        record::word_key(record)
    }
}

impl OrderedKeys for Hashes {
    fn order(record: u64) -> u64 {
        record::word_key(record)
    }
    fn record(key: &u64, _: usize) -> Option<u64> {
        Some(record::of_word_key(*key))
    }
}

/// The values of a map.
pub(crate) trait Values: Bytes + Borrow<Self::Borrowed> + Clone {
    fn of(bytes: &[u8]) -> Self;
    fn into_vec(self) -> Vec<u8>;
}

impl Values for Vec<u8> {
    fn of(bytes: &[u8]) -> Self {
        bytes.to_vec()
    }
    fn into_vec(self) -> Vec<u8> {
        self
    }
}

impl Values for u64 {
    fn of(bytes: &[u8]) -> Self {
        word(bytes)
    }
    fn into_vec(self) -> Vec<u8> {
        bytes(self)
    }
}

/// An ordered map of records.
pub(crate) struct Ordered<K: OrderedKeys<Stored: Key + Value>, V: Values + Value> {
    map: OrderedMap<K::Stored, V>,
    key_size: usize,
}

impl<K, V> Store for Ordered<K, V>
where
    K: OrderedKeys<Stored: Key + Value + Debug>,
    V: Values + Value,
    OrderedMapRoot<K::Stored, V>: Remote,
{
    type Root = OrderedMapRoot<K::Stored, V>;

    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self::Root>> {
        OrderedMap::create(ct).await
    }
    async fn attach(root: RemotePtr<Self::Root>, key_size: usize, ct: &ComputeThread) -> Result<Self> {
        Ok(Self { map: OrderedMap::attach(root, ct).await?, key_size })
    }
    async fn read(&self, record: u64, ct: &ComputeThread) -> Result<Option<Vec<u8>>> {
        let key = K::key(record, self.key_size);
        Ok(self.map.get(key.as_borrowed(), ct).await?.map(V::into_vec))
    }
    async fn insert(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
        let key = K::key(record, self.key_size);
        self.map.insert(key.as_borrowed(), V::of(value).borrow(), ct).await
    }
    async fn update(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
        let key = K::key(record, self.key_size);
        self.map.update(key.as_borrowed(), V::of(value).borrow(), ct).await
    }
    async fn modify(
        &self,
        record: u64,
        mut f: impl FnMut(&[u8]) -> Vec<u8>,
        ct: &ComputeThread,
    ) -> Result<Option<Vec<u8>>> {
        let key = K::key(record, self.key_size);
        let change = |value: Option<V>| value.map(|value| V::of(&f(&value.into_vec())));
        Ok(self.map.modify(key.as_borrowed(), change, ct).await?.map(V::into_vec))
    }
    fn order(record: u64) -> u64 {
        K::order(record)
    }
    async fn scan(&self, record: u64, length: u64, ct: &ComputeThread) -> Result<Vec<Scanned>> {
        let from = K::key(record, self.key_size);
        let mut scan = self.map.range(from.., ct)?.in_pages_of(length as usize);
        let mut found = Vec::new();
        while (found.len() as u64) < length
            && let Some((key, value)) = scan.next().await?
        {
            found.push((K::record(&key, self.key_size), value.into_vec()));
        }
        Ok(found)
    }
    async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.map.check(ct).await
    }
    async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.map.destroy(ct).await
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

impl Store for SkipList<u64, u64> {
    type Root = SkipListRoot<u64, u64>;

    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self::Root>> {
        Self::create(ct).await
    }
    async fn attach(root: RemotePtr<Self::Root>, _: usize, ct: &ComputeThread) -> Result<Self> {
        Self::attach(root, ct).await
    }
    async fn read(&self, record: u64, ct: &ComputeThread) -> Result<Option<Vec<u8>>> {
        Ok(self.get(&record::word_key(record), ct).await?.map(bytes))
    }
    async fn insert(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
        self.insert(&record::word_key(record), &word(value), ct).await
    }
    async fn update(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
        self.update(&record::word_key(record), &word(value), ct).await
    }
    async fn modify(
        &self,
        record: u64,
        mut f: impl FnMut(&[u8]) -> Vec<u8>,
        ct: &ComputeThread,
    ) -> Result<Option<Vec<u8>>> {
        let change = |value: Option<u64>| value.map(|value| word(&f(&bytes(value))));
        Ok(self.modify(&record::word_key(record), change, ct).await?.map(bytes))
    }
    fn order(record: u64) -> u64 {
        record::word_key(record)
    }
    async fn scan(&self, record: u64, length: u64, ct: &ComputeThread) -> Result<Vec<Scanned>> {
        let mut scan = self.range(record::word_key(record).., ct)?;
        let mut found = Vec::new();
        while (found.len() as u64) < length
            && let Some((key, value)) = scan.next().await?
        {
            found.push((Some(record::of_word_key(key)), bytes(value)));
        }
        Ok(found)
    }
    async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.check(ct).await
    }
    async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        self.destroy(ct).await
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
}
