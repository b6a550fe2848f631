//! Stores with planted faults, which the verification must find. They are ordered, so workload e runs on them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex};

use farfield::prelude::*;
use farfield_collections::Counters;

use crate::args::Args;
use crate::mix::{Kind, Workload};
use crate::store::{Scanned, Store};
use crate::{verdict, workload};

const SOUND: u8 = 0;
const LOSES_UPDATES: u8 = 1;
const TEARS_VALUES: u8 = 2;
const LOSES_INSERTIONS: u8 = 3;
const MODIFIES_IN_TWO_STEPS: u8 = 4;
const MISPLACES_VALUES: u8 = 5;
const LEAKS: u8 = 6;
const KEEPS_OLD_VALUES: u8 = 7;
const SCANS_LEAVE_ONE_OUT: u8 = 8;
const SCANS_HAVE_ONE_TWICE: u8 = 9;
const SCANS_ARE_REVERSED: u8 = 10;
const SCANS_MISS_NEW_RECORDS: u8 = 11;
const SCANS_END_EARLY: u8 = 12;
const SCANS_MISPLACE_VALUES: u8 = 13;
const SCANS_HAVE_UNKNOWN_KEYS: u8 = 14;

/// The number of records that are loaded.
const LOADED: u64 = 100;

type Records = Arc<Mutex<BTreeMap<u64, Vec<u8>>>>;

/// The records of all stores of this process, by their numbers.
static STORES: LazyLock<Mutex<HashMap<u64, Records>>> = LazyLock::new(Mutex::default);

#[remote]
struct Root {
    number: u64,
}

/// Records in local memory. Each operation has a round trip.
struct Planted<const FAULT: u8> {
    root: RemotePtr<Root>,
    records: Records,
    updated: RefCell<BTreeSet<u64>>,
}

impl<const FAULT: u8> Planted<FAULT> {
    async fn round_trip(&self, ct: &ComputeThread) -> Result<()> {
        self.root.read(&ct.pin()).await.map(drop)
    }
}

impl<const FAULT: u8> Store for Planted<FAULT> {
    type Root = Root;

    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Root>> {
        let number = {
            let mut stores = STORES.lock().unwrap();
            let number = stores.len() as u64;
            stores.insert(number, Records::default());
            number
        };
        Root::new_in(ct, Root::init(number)).await?.write(ct).await
    }
    async fn attach(root: RemotePtr<Root>, _: usize, ct: &ComputeThread) -> Result<Self> {
        let number = root.read(&ct.pin()).await?.number;
        Ok(Self { root, records: Arc::clone(&STORES.lock().unwrap()[&number]), updated: RefCell::default() })
    }
    async fn read(&self, record: u64, ct: &ComputeThread) -> Result<Option<Vec<u8>>> {
        self.round_trip(ct).await?;
        Ok(self.records.lock().unwrap().get(&record).cloned())
    }
    async fn insert(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
        self.round_trip(ct).await?;
        let is_lost = FAULT == LOSES_INSERTIONS && record % 50 == 49;
        Ok(is_lost || self.records.lock().unwrap().insert(record, value.to_vec()).is_none())
    }
    async fn update(&self, record: u64, value: &[u8], ct: &ComputeThread) -> Result<bool> {
        self.round_trip(ct).await?;
        let mut records = self.records.lock().unwrap();
        let number = if FAULT == MISPLACES_VALUES { record ^ 1 } else { record };
        let Some(stored) = records.get_mut(&number) else { return Ok(false) };
        match FAULT {
            LOSES_UPDATES if record % 7 == 3 => {}
            // Of the updates of a record by this handle only the first has an effect.
            KEEPS_OLD_VALUES if !self.updated.borrow_mut().insert(number) => {}
            TEARS_VALUES => {
                let half = value.len() / 2;
                stored[half..].copy_from_slice(&value[half..]);
            }
            _ => *stored = value.to_vec(),
        }
        Ok(true)
    }
    async fn modify(
        &self,
        record: u64,
        mut f: impl FnMut(&[u8]) -> Vec<u8>,
        ct: &ComputeThread,
    ) -> Result<Option<Vec<u8>>> {
        let Some(old) = self.read(record, ct).await? else { return Ok(None) };
        if FAULT == MODIFIES_IN_TWO_STEPS {
            ct.yield_now().await;
            self.records.lock().unwrap().insert(record, f(&old));
            return Ok(Some(old));
        }
        let mut records = self.records.lock().unwrap();
        let old = records[&record].clone();
        records.insert(record, f(&old));
        Ok(Some(old))
    }
    async fn scan(&self, record: u64, length: u64, ct: &ComputeThread) -> Result<Vec<Scanned>> {
        self.round_trip(ct).await?;
        let records = self.records.lock().unwrap();
        let pairs = records
            .range(record..)
            .filter(|(record, _)| FAULT != SCANS_MISS_NEW_RECORDS || **record < LOADED);
        let mut found: Vec<Scanned> =
            pairs.take(length as usize).map(|(record, value)| (Some(*record), value.clone())).collect();
        let middle = found.len() / 2;
        if middle > 0 {
            match FAULT {
                SCANS_LEAVE_ONE_OUT => drop(found.remove(middle)),
                SCANS_HAVE_ONE_TWICE => found[middle] = found[middle - 1].clone(),
                SCANS_ARE_REVERSED => found.reverse(),
                SCANS_END_EARLY => found.truncate(middle),
                SCANS_MISPLACE_VALUES => found[middle].1 = found[0].1.clone(),
                SCANS_HAVE_UNKNOWN_KEYS => found[middle].0 = None,
                _ => {}
            }
        }
        Ok(found)
    }
    async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        self.round_trip(ct).await?;
        Ok(self.records.lock().unwrap().len() as u64)
    }
    async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        if FAULT == LEAKS { Ok(()) } else { ct.delete(self.root).await }
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn outcome<const FAULT: u8>(workload: Workload) -> (workload::Outcome, String) {
    outcome_of::<FAULT>("hash-map", workload)
}

/// Returns the outcome of values as a structure has them.
fn outcome_of<const FAULT: u8>(structure: &str, workload: Workload) -> (workload::Outcome, String) {
    let words = "--ops 2000 --threads 2 --tasks 4 --cluster local:size=1MiB,delay=2";
    let args = Args { workload, records: LOADED, ..Args::of(&format!("{words} --structure {structure}")) };
    let outcome = workload::run::<Planted<FAULT>>(&args).unwrap().remove(0);
    let faults = verdict::faults(&args, &outcome).join("; ");
    (outcome, faults)
}

#[test]
fn a_sound_store_is_verified_in_every_workload() {
    use Workload::{A, B, C, D, E, F};
    for workload in [A, B, C, D, E, F] {
        let (outcome, faults) = outcome::<SOUND>(workload);
        assert_eq!(faults, "", "{workload:?}");
        assert_eq!(outcome.measures.get(Kind::Scan).is_some(), workload == E);
    }
}

#[test]
fn each_planted_fault_is_found() {
    let found = |(_, faults): (_, String), named: &str| assert!(faults.contains(named), "{named}: {faults}");
    found(outcome::<LOSES_UPDATES>(Workload::A), "has its first value for writer");
    found(outcome::<TEARS_VALUES>(Workload::A), "has a torn value");
    found(outcome::<LOSES_INSERTIONS>(Workload::D), "is missing");
    found(outcome::<LOSES_INSERTIONS>(Workload::E), "records, but 100 +");
    found(outcome::<MODIFIES_IN_TWO_STEPS>(Workload::F), "read-modify-writes, but");
    found(outcome::<MISPLACES_VALUES>(Workload::B), "has the value of record");
    found(outcome::<LEAKS>(Workload::C), "objects were allocated");
}

#[test]
fn each_planted_fault_of_a_scan_is_found() {
    // As byte strings and as words.
    for structure in ["ordered-map", "skip-list"] {
        let found = |(_, faults): (_, String), named: &str| {
            assert!(faults.contains(named) && faults.contains("scan from record"), "{named}: {faults}");
        };
        let e = Workload::E;
        found(outcome_of::<SCANS_LEAVE_ONE_OUT>(structure, e), "is missing in a scan");
        found(outcome_of::<SCANS_HAVE_ONE_TWICE>(structure, e), "is twice in a scan");
        found(outcome_of::<SCANS_ARE_REVERSED>(structure, e), "is out of order in a scan");
        found(outcome_of::<SCANS_MISS_NEW_RECORDS>(structure, e), "is missing in a scan");
        found(outcome_of::<SCANS_END_EARLY>(structure, e), "is missing in a scan");
        found(outcome_of::<SCANS_HAVE_UNKNOWN_KEYS>(structure, e), "has a key that was not inserted");
    }
}

#[test]
fn a_scan_with_another_records_value_is_found() {
    let (_, faults) = outcome_of::<SCANS_MISPLACE_VALUES>("ordered-map", Workload::E);
    assert!(faults.contains("has the value of record"), "{faults}");
    let (_, faults) = outcome_of::<SCANS_MISPLACE_VALUES>("skip-list", Workload::E);
    assert!(faults.contains("has a value that is not its own"), "{faults}");
}

#[test]
fn a_sound_store_of_words_is_verified() {
    use Workload::{A, B, C, D, E, F};
    for workload in [A, B, C, D, E, F] {
        assert_eq!(outcome_of::<SOUND>("inline-hash-map", workload).1, "", "{workload:?}");
    }
}

#[test]
fn each_planted_fault_of_words_is_found() {
    let found = |(_, faults): (_, String), named: &str| assert!(faults.contains(named), "{named}: {faults}");
    found(outcome_of::<LOSES_UPDATES>("inline-hash-map", Workload::A), "has its first value for writer");
    found(outcome_of::<TEARS_VALUES>("inline-hash-map", Workload::A), "has a value that is not its own");
    found(outcome_of::<LOSES_INSERTIONS>("inline-hash-map", Workload::D), "is missing");
    found(outcome_of::<MODIFIES_IN_TWO_STEPS>("inline-hash-map", Workload::F), "read-modify-writes, but");
    found(outcome_of::<MISPLACES_VALUES>("inline-hash-map", Workload::B), "has a value that is not its own");
    found(outcome_of::<KEEPS_OLD_VALUES>("inline-hash-map", Workload::A), "had written");
}
