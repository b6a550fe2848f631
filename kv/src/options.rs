//! What a store is started with, and what it says of itself.

use std::path::Path;
use std::time::Duration;

use farfield::{Error, Result};
use ring::aead::AES_256_GCM;
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::pages::{COPY_BYTES, MOST_PAGES};
use crate::record::Cipher;

/// Options of a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The bytes of local memory that the index, the pages in local memory and what is known of the others may take.
    pub local_bytes: usize,
    /// The bytes of far memory that pages may take.
    pub far_bytes: u64,
    /// Pages may take so many percent more than the live records. Beyond that, they are rebuilt.
    pub rebuild_percent: u32,
    /// How long opening waits for the process that has the store: it may have died just now.
    pub patience: Duration,
    key: Option<[u8; 32]>,
}

impl Default for Options {
    /// 64 MiB of local memory, 1 GiB of far memory, 20 %, 10 s, and no key.
    fn default() -> Self {
        let patience = Duration::from_secs(10);
        Self { local_bytes: 64 << 20, far_bytes: 1 << 30, rebuild_percent: 20, patience, key: None }
    }
}

impl Options {
    /// So many bytes of local and of far memory, and the defaults.
    pub fn new(local_bytes: usize, far_bytes: u64) -> Self {
        Self { local_bytes, far_bytes, ..Self::default() }
    }

    /// Sets the key of encrypted records: 32 bytes.
    #[must_use]
    pub fn with_key(self, key: [u8; 32]) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Reads the key of encrypted records from a file of 32 bytes.
    ///
    /// # Errors
    /// One that names the file, if it can not be read or has another length.
    pub fn with_key_file(self, path: &Path) -> Result<Self> {
        let failed = |why: &dyn std::fmt::Display| Error::other(format!("{}: {why}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
        let found = format!("a key has 32 bytes, and the file has {}", bytes.len());
        Ok(self.with_key(bytes.try_into().map_err(|_| failed(&found))?))
    }

    pub(crate) fn most_pages(&self) -> u32 {
        u32::try_from(self.far_bytes / COPY_BYTES as u64).unwrap_or(MOST_PAGES).min(MOST_PAGES)
    }

    /// Returns the cipher of the store with an identity. Its key is derived from the given one (HKDF-SHA-256), so that stores with the same key never share a nonce.
    pub(crate) fn cipher(&self, store: [u64; 2]) -> Result<Option<Cipher>> {
        let Some(key) = self.key else { return Ok(None) };
        let salt = Salt::new(HKDF_SHA256, &store.map(u64::to_le_bytes).concat());
        let pseudo_random = salt.extract(&key);
        let mut derived = [0; 32];
        let unusable = || Error::other("the key can not be used");
        let expanded = pseudo_random.expand(&[b"farfield-kv records"], &AES_256_GCM);
        expanded.and_then(|expanded| expanded.fill(&mut derived)).map_err(|_| unusable())?;
        let identity =
            digest(&SHA256, &key).as_ref().first_chunk().map_or(0, |first| u32::from_le_bytes(*first));
        Cipher::new(&derived, identity).map(Some).ok_or_else(unusable)
    }
}

/// What a store has, and what its process has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Keys.
    pub records: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Bytes of their records.
    pub live_bytes: u64,
    /// Bytes of pages that have no live record: dead records, what is left at the end of pages, and what pages have not been filled with yet.
    pub dead_bytes: u64,
    /// Pages.
    pub pages: u64,
    /// Bytes of far memory that pages take.
    pub far_bytes: u64,
    /// Bytes of local memory that are counted.
    pub local_bytes: u64,
    /// Pages of which records are in local memory.
    pub local_pages: u64,
    /// Records that were found in local memory.
    pub hits: u64,
    /// Records that were read from far memory.
    pub record_reads: u64,
    /// Pages whose copies were dropped from local memory.
    pub evicted_pages: u64,
    /// Records that were dropped from it, one by one.
    pub evicted_records: u64,
    /// Pages whose live records were moved to others.
    pub rebuilt_pages: u64,
    /// Pages that tasks are rebuilding now because there are too many dead records.
    pub rebuilding_pages: u64,
    /// Pages that there are too many, because of dead records: so many wait for being rebuilt, or are being rebuilt.
    pub excess_pages: u64,
    /// Full pages whose WRITEs are not over yet: they can not be evicted. At most two for each thread.
    pub unwritten_pages: u64,
    /// Threads that evict something from local memory now, or wait for another one that does. An eviction itself waits for nothing, and takes no round trip.
    pub evictions: u64,
    /// READs of records that are under way.
    pub pending_reads: u64,
    /// Operations that wait for the READ of another one, since they need the same record.
    pub waiting_reads: u64,
    /// Operations and rebuilds that wait for room for a record: for a page that another task opens, or for local memory that is taken.
    pub waiting_writes: u64,
    /// Records that were not whole when the store was opened.
    pub torn_records: u64,
}

#[allow(clippy::cast_precision_loss)] // beyond 2^53
impl Stats {
    /// Returns the share of the records that were found in local memory, of all that were looked for: 0 to 1. 1 if there were none.
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.record_reads;
        if all == 0 { 1.0 } else { self.hits as f64 / all as f64 }
    }

    /// Returns the bytes of far memory that pages take, over those of keys and values. 0 if there are no records.
    pub fn amplification(&self) -> f64 {
        if self.user_bytes == 0 { 0.0 } else { self.far_bytes as f64 / self.user_bytes as f64 }
    }
}
