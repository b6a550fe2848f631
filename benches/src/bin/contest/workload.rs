//! The requests of the contest, and what their answers must be.
//!
//! Records belong to *workers*, the tasks of all threads: a worker writes and deletes only its own, so it knows what each must have. Reads of the hot phase are of all workers' records. A value names its
//! record and how often that was written, and all of its bytes follow from these two: so each value that is read is checked as a whole.

use farfield_examples::zipf::Zipf;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// The threads of the contest. Here the workers divide their records.
const CONTEST_THREADS: f64 = 16.0;
/// Records of a thread of the contest.
const RECORDS: f64 = 12e6;
/// So many of them are deleted, and written again.
const DELETED: f64 = 10e6;
/// Calls of all threads in the hot phase.
const CALLS: f64 = 64e6;

/// The bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// The mean bytes of a key and its value, after the first phase.
pub(crate) const MEAN_BYTES: u64 = 16 + (70 * 104 + 20 * 192 + 10 * 640) / 100;
/// A worker reads one record for so many that it writes or deletes.
const VERIFIED: u64 = 16;
/// The first bytes of a value: its record, and how often that was written.
const HEADER_BYTES: usize = 16;

pub(crate) type Key = [u8; KEY_BYTES];

/// The phases, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Each record is written, with a value of 80 to 1,024 bytes.
    Write,
    /// Of twelve records ten are deleted, in random order.
    Delete,
    /// They are written again, with values of 80 to 256 bytes.
    Rewrite,
    /// Three of four calls read, and three of four reads are of hot records; the others write 80 to 128 bytes.
    Hot,
}

impl Phase {
    pub(crate) const ALL: [Self; 4] = [Self::Write, Self::Delete, Self::Rewrite, Self::Hot];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Rewrite => "rewrite",
            Self::Hot => "hot",
        }
    }
}

/// What the workers do.
pub(crate) struct Plan {
    pub(crate) workers: u64,
    /// Records of a worker.
    pub(crate) records: u64,
    /// Records of a worker that are deleted.
    deleted: u64,
    /// Calls of a worker in the hot phase.
    calls: u64,
    zipf: Zipf,
    seed: u64,
}

impl Plan {
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // counts below 2^53
    pub(crate) fn new(scale: f64, workers: u64, seed: u64) -> Self {
        let of_worker = |contest: f64| (contest * scale / workers as f64).ceil() as u64;
        let records = of_worker(CONTEST_THREADS * RECORDS).max(1);
        Self {
            workers,
            records,
            deleted: of_worker(CONTEST_THREADS * DELETED).min(records),
            calls: of_worker(CALLS),
            zipf: Zipf::new(records * workers),
            seed,
        }
    }

    /// The most records at any time.
    pub(crate) fn all_records(&self) -> u64 {
        self.records * self.workers
    }

    /// About how many requests all workers make in a phase.
    pub(crate) fn requests(&self, phase: Phase) -> u64 {
        let changes = match phase {
            Phase::Write => self.records,
            Phase::Delete | Phase::Rewrite => self.deleted,
            Phase::Hot => return self.calls * self.workers,
        };
        (changes + changes / VERIFIED) * self.workers
    }
}

/// What is asked of an engine.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Write { key: Key, value: Vec<u8> },
    Delete { key: Key },
    Read { key: Key, record: u64, expected: Expected },
}

impl Request {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Write { key, .. } | Self::Delete { key } | Self::Read { key, .. } => key,
        }
    }
}

/// What a read must return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    /// The value that was written as such a one.
    Version(u32),
    /// Any value of the record.
    Any,
    Nothing,
}

/// Mixes a word's bits; no two words become the same (Stafford's variant 13 of the finaliser of `MurmurHash3`).
fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Returns a record's key: hexadecimal digits, since memcached takes no others than printable characters.
fn key(record: u64) -> Key {
    let mut bytes = [0; KEY_BYTES];
    let mixed = mixed(record);
    for (digit, byte) in bytes.iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(mixed >> (4 * digit)) as usize & 15];
    }
    bytes
}

/// Returns the bytes of the value that a record is given as its first, second, third… one.
fn length(record: u64, version: u32) -> usize {
    let random = mixed(record ^ u64::from(version) << 40);
    let between = |least: u64, most: u64| (least + (random >> 8) % (most - least + 1)) as usize;
    match version {
        1 => match random % 10 {
            0..=6 => between(80, 128),
            7..=8 => between(129, 256),
            _ => between(257, 1024),
        },
        2 => between(80, 256),
        _ => between(80, 128),
    }
}

/// The word that a value repeats.
fn filler(record: u64, version: u32) -> [u8; 8] {
    mixed(mixed(record) ^ u64::from(version)).to_le_bytes()
}

fn value(record: u64, version: u32) -> Vec<u8> {
    let (length, filler) = (length(record, version), filler(record, version));
    let mut value = Vec::with_capacity(length + filler.len());
    value.extend(record.to_le_bytes());
    value.extend(u64::from(version).to_le_bytes());
    while value.len() < length {
        value.extend(filler);
    }
    value.truncate(length);
    value
}

/// Returns the version of a record's value.
fn version_of(record: u64, value: &[u8]) -> Result<u32, String> {
    let wrong = || format!("record {record}: no such value was written");
    let word = |index: usize| {
        value.get(8 * index..)?.first_chunk().map(|bytes: &[u8; 8]| u64::from_le_bytes(*bytes))
    };
    let version = word(1).and_then(|version| u32::try_from(version).ok()).ok_or_else(wrong)?;
    let filler = filler(record, version);
    let is_filled = value[HEADER_BYTES..].chunks(8).all(|chunk| *chunk == filler[..chunk.len()]);
    if word(0) == Some(record) && value.len() == length(record, version) && is_filled {
        Ok(version)
    } else {
        Err(wrong())
    }
}

/// A worker, its records, and what it does in a phase.
pub(crate) struct Worker<'a> {
    plan: &'a Plan,
    index: u64,
    /// How often each of its records was written; 0 if it was deleted. None is written often, and small numbers stay in the processor's cache.
    versions: Vec<u8>,
    /// The order of deletions: the record after another one.
    step: u64,
    rng: SmallRng,
    phase: Phase,
    done: u64,
    verifies: bool,
    /// The bytes of its keys and values.
    pub(crate) live_bytes: u64,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(plan: &'a Plan, index: u64) -> Self {
        // The golden section.
        let section = (plan.records / 1000 * 618).max(1);
        let step = (section..=plan.records).find(|step| gcd(*step, plan.records) == 1).unwrap_or(1);
        Self {
            plan,
            index,
            versions: vec![0; plan.records as usize],
            step,
            rng: SmallRng::seed_from_u64(mixed(plan.seed) ^ index),
            phase: Phase::Write,
            done: 0,
            verifies: false,
            live_bytes: 0,
        }
    }

    /// Begins a phase.
    pub(crate) fn begin(&mut self, phase: Phase) {
        (self.phase, self.done, self.verifies) = (phase, 0, false);
    }

    fn record(&self, own: u64) -> u64 {
        own * self.plan.workers + self.index
    }

    /// Returns the records in the order in which they are deleted. Those after the last of them never are.
    fn in_order(&self, position: u64) -> u64 {
        (u128::from(position) * u128::from(self.step) % u128::from(self.plan.records)) as u64
    }

    /// Returns the next request of the phase. `None` if it is over.
    pub(crate) fn next(&mut self) -> Option<Request> {
        let last = match self.phase {
            Phase::Write => self.plan.records,
            Phase::Delete | Phase::Rewrite => self.plan.deleted,
            Phase::Hot => self.plan.calls,
        };
        if self.verifies {
            self.verifies = false;
            return Some(self.verify());
        }
        if self.done == last {
            return None;
        }
        let position = self.done;
        self.done += 1;
        if self.phase == Phase::Hot {
            return Some(self.call());
        }
        self.verifies = self.done.is_multiple_of(VERIFIED);
        let own = if self.phase == Phase::Write { position } else { self.in_order(position) };
        Some(if self.phase == Phase::Delete { self.delete(own) } else { self.write(own) })
    }

    /// Reads a record that was changed in this phase, or one that is never deleted.
    fn verify(&mut self) -> Request {
        let position = self.rng.random_range(0..self.done);
        let own = match self.phase {
            Phase::Write => position,
            Phase::Delete if self.plan.deleted < self.plan.records && self.rng.random_range(0..2) == 0 => {
                let kept = self.rng.random_range(self.plan.deleted..self.plan.records);
                self.in_order(kept)
            }
            _ => self.in_order(position),
        };
        self.read(own)
    }

    fn read(&self, own: u64) -> Request {
        let (record, version) = (self.record(own), u32::from(self.versions[own as usize]));
        let expected = if version == 0 { Expected::Nothing } else { Expected::Version(version) };
        Request::Read { key: key(record), record, expected }
    }

    fn call(&mut self) -> Request {
        match self.rng.random_range(0..16) {
            0..4 => {
                let own = self.rng.random_range(0..self.plan.records);
                self.write(own)
            }
            4..7 => {
                let record = self.rng.random_range(0..self.plan.all_records());
                Request::Read { key: key(record), record, expected: Expected::Any }
            }
            _ => {
                // The hot records are not beside each other.
                let record = mixed(self.plan.zipf.sample(&mut self.rng)) % self.plan.all_records();
                Request::Read { key: key(record), record, expected: Expected::Any }
            }
        }
    }

    fn write(&mut self, own: u64) -> Request {
        let record = self.record(own);
        let old = self.forget(own);
        let version = match self.phase {
            Phase::Write => 1,
            Phase::Delete | Phase::Rewrite => 2,
            Phase::Hot => old.max(2) + 1,
        };
        self.versions[own as usize] = u8::try_from(version).expect("a record is written some ten times");
        let value = value(record, version);
        self.live_bytes += (KEY_BYTES + value.len()) as u64;
        Request::Write { key: key(record), value }
    }

    fn delete(&mut self, own: u64) -> Request {
        self.forget(own);
        Request::Delete { key: key(self.record(own)) }
    }

    /// Returns how often a record was written.
    fn forget(&mut self, own: u64) -> u32 {
        let record = self.record(own);
        let old = u32::from(std::mem::take(&mut self.versions[own as usize]));
        if old > 0 {
            self.live_bytes -= (KEY_BYTES + length(record, old)) as u64;
        }
        old
    }

    /// Returns a read of each of its records.
    pub(crate) fn all(&self) -> impl Iterator<Item = Request> + '_ {
        (0..self.plan.records).map(|own| self.read(own))
    }
}

/// Checks what a read has returned.
pub(crate) fn check(record: u64, expected: Expected, value: Option<&[u8]>) -> Result<(), String> {
    match (expected, value) {
        (Expected::Nothing, None) => Ok(()),
        (Expected::Nothing, Some(_)) => Err(format!("record {record} was deleted, and is there")),
        (Expected::Any | Expected::Version(_), None) => Err(format!("record {record} is missing")),
        (Expected::Any, Some(value)) => version_of(record, value).map(drop),
        (Expected::Version(expected), Some(value)) => match version_of(record, value)? {
            found if found == expected => Ok(()),
            found => Err(format!("record {record} has its value {found}, and {expected} was the last")),
        },
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Carries the requests of all phases out on a map.
    fn run(
        plan: &Plan,
        spoil: impl Fn(Phase, &mut HashMap<Key, Vec<u8>>),
    ) -> Result<HashMap<Key, Vec<u8>>, String> {
        let mut map = HashMap::new();
        let mut workers: Vec<_> = (0..plan.workers).map(|index| Worker::new(plan, index)).collect();
        for phase in Phase::ALL {
            let mut requests = 0;
            for worker in &mut workers {
                worker.begin(phase);
                while let Some(request) = worker.next() {
                    requests += 1;
                    match request {
                        Request::Write { key, value } => drop(map.insert(key, value)),
                        Request::Delete { key } => assert!(map.remove(&key).is_some()),
                        Request::Read { key, record, expected } => {
                            check(record, expected, map.get(&key).map(Vec::as_slice))?;
                        }
                    }
                }
            }
            assert_eq!(requests, plan.requests(phase));
            let bytes: usize = map.values().map(|value| KEY_BYTES + value.len()).sum();
            assert_eq!(workers.iter().map(|worker| worker.live_bytes).sum::<u64>(), bytes as u64);
            spoil(phase, &mut map);
        }
        for request in workers.iter().flat_map(Worker::all) {
            let Request::Read { key, record, expected } = request else { unreachable!() };
            check(record, expected, map.get(&key).map(Vec::as_slice))?;
        }
        Ok(map)
    }

    #[test]
    fn a_map_passes_the_contest() {
        let plan = Plan::new(0.0001, 3, 1);
        let map = run(&plan, |phase, map| {
            let rest = if phase == Phase::Delete { plan.records - plan.deleted } else { plan.records };
            assert_eq!(map.len() as u64, rest * plan.workers);
        });
        let mean = map.unwrap().values().map(Vec::len).sum::<usize>() / 19_200;
        assert!((104..192).contains(&mean), "{mean}");
    }

    #[test]
    fn lost_old_and_torn_values_are_found() {
        let plan = Plan::new(0.0001, 2, 1);
        let lost = run(&plan, |phase, map| {
            if phase == Phase::Hot {
                let some = *map.keys().next().unwrap();
                map.remove(&some);
            }
        });
        assert!(lost.unwrap_err().contains("missing"));
        let torn = run(&plan, |phase, map| {
            if phase == Phase::Hot {
                *map.values_mut().next().unwrap().last_mut().unwrap() ^= 1;
            }
        });
        assert!(torn.unwrap_err().contains("no such value"));
        let old = run(&plan, |phase, map| {
            if phase == Phase::Hot {
                for bytes in map.values_mut() {
                    let record = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                    *bytes = value(record, 2);
                }
            }
        });
        assert!(old.unwrap_err().contains("was the last"));
    }

    #[test]
    fn values_have_the_contests_sizes() {
        let mut sizes: Vec<usize> = (0..100_000).map(|record| value(record, 1).len()).collect();
        sizes.sort_unstable();
        assert_eq!((sizes[0], sizes[99_999]), (80, 1024));
        let small = sizes.partition_point(|size| *size <= 128);
        let medium = sizes.partition_point(|size| *size <= 256) - small;
        assert!((69_000..71_000).contains(&small) && (19_000..21_000).contains(&medium));
        let mean = 16 + sizes.iter().sum::<usize>() / 100_000;
        assert!(mean.abs_diff(MEAN_BYTES as usize) < 3, "{mean}");
    }
}
