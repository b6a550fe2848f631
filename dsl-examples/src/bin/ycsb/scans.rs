//! Checks what scans return, against the records that must be in the map.
//!
//! A scan is asked for up to a number of records, from a record that is present. No record is ever removed. So:
//!
//! 1. The keys ascend strictly, from the first record's on; so each is there once.
//! 2. Each record whose insertion had ended when the scan began is there, if its key is not behind the last one. If there are fewer records than asked for, none may be missing
//!    behind the last one either.
//!
//! A record is known by its *place*: a number by which keys are in order. Records that this process inserts during the run are known with the number of insertions that had ended
//! before. Those of other processes may be in a scan or not. A loaded record takes 16 bytes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The places of the records that are in the map.
#[derive(Debug)]
pub(crate) struct Places {
    /// Those of the loaded records, in order.
    loaded: Vec<Place>,
    /// Those of inserted records, with the number of insertions that had ended before.
    inserted: Mutex<BTreeMap<Place, usize>>,
}

/// The place of a record: the order of its key, then the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    order: u64,
    record: u64,
}

impl Place {
    const LAST: Self = Self { order: u64::MAX, record: u64::MAX };

    /// The key of `record` is behind those of a smaller `order`. Among keys of the same order, the larger record is behind.
    pub(crate) fn new(order: u64, record: u64) -> Self {
        Self { order, record }
    }
}

impl Places {
    pub(crate) fn new(mut loaded: Vec<Place>) -> Self {
        loaded.sort_unstable();
        Self { loaded, inserted: Mutex::default() }
    }

    /// An insertion has ended.
    pub(crate) fn add(&self, place: Place) {
        let mut inserted = self.locked();
        let before = inserted.len();
        inserted.insert(place, before);
    }

    /// The number of insertions that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.locked().len()
    }

    /// Checks the result of a scan for up to `length` records from `from` on, which began when `ended` insertions had ended.
    pub(crate) fn check(
        &self,
        from: Place,
        length: u64,
        ended: usize,
        found: &[Place],
    ) -> Result<(), String> {
        let fault = |place: Place, what: &str| {
            Err(format!("record {} {what} in a scan from record {}", place.record, from.record))
        };
        if found.len() as u64 > length {
            let (found, from) = (found.len(), from.record);
            return Err(format!("a scan from record {from} has {found} records of {length}"));
        }
        if let Some(pair) = found.windows(2).find(|pair| pair[0] >= pair[1]) {
            return fault(pair[1], if pair[0] == pair[1] { "is twice" } else { "is out of order" });
        }
        if let Some(first) = found.first().filter(|first| **first < from) {
            return fault(*first, "is in front of the start");
        }
        let is_short = (found.len() as u64) < length;
        let last = found.last().copied().filter(|_| !is_short).unwrap_or(Place::LAST);
        let is_missing = |place: &Place| found.binary_search(place).is_err();
        let start = self.loaded.partition_point(|place| *place < from);
        let mut loaded = self.loaded[start..].iter().copied().take_while(|place| *place <= last);
        let missing = loaded.find(is_missing).or_else(|| {
            let inserted = self.locked();
            let mut inserted = inserted.range(from..=last.max(from));
            inserted.find(|(place, before)| **before < ended && is_missing(place)).map(|(place, _)| *place)
        });
        missing.map_or(Ok(()), |place| fault(place, "is missing"))
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<Place, usize>> {
        self.inserted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are in the order of the records.
    fn place(record: u64) -> Place {
        Place::new(record, record)
    }

    /// The even records below 20 are loaded. Then 5 was inserted, and 7 since.
    fn places() -> Places {
        let places = Places::new((0..10).rev().map(|record| place(2 * record)).collect());
        places.add(place(5));
        places.add(place(7));
        places
    }

    fn checked(from: u64, length: u64, found: &[u64]) -> Result<(), String> {
        let found: Vec<Place> = found.iter().copied().map(place).collect();
        places().check(place(from), length, 1, &found)
    }

    #[test]
    fn a_scan_may_have_records_that_were_inserted_meanwhile() {
        assert_eq!(places().ended(), 2);
        for found in [&[4, 5, 6, 8][..], &[4, 5, 6, 7], &[4, 5, 6, 7, 8, 9, 10]] {
            assert_eq!(checked(4, found.len() as u64, found), Ok(()), "{found:?}");
        }
        assert_eq!(checked(16, 9, &[16, 18]), Ok(()), "the map ends");
        assert_eq!(checked(16, 9, &[16, 18, 25]), Ok(()), "another process has inserted one");
    }

    #[test]
    fn each_planted_fault_is_found() {
        for (from, length, found, named) in [
            (4, 3, &[4, 6, 8][..], "record 5 is missing in a scan from record 4"),
            (4, 3, &[4, 5, 8], "record 6 is missing"),
            (4, 3, &[5, 6, 8], "record 4 is missing"),
            (4, 3, &[], "record 4 is missing"),
            (4, 4, &[4, 5, 6], "record 8 is missing"),
            (14, 9, &[14, 16], "record 18 is missing"),
            (4, 3, &[4, 4, 5], "record 4 is twice"),
            (4, 3, &[4, 6, 5], "record 5 is out of order"),
            (4, 3, &[2, 4, 5], "record 2 is in front of the start"),
            (4, 2, &[4, 5, 6], "from record 4 has 3 records of 2"),
        ] {
            let fault = checked(from, length, found).unwrap_err();
            assert!(fault.contains(named), "{found:?}: {fault}");
        }
    }

    #[test]
    fn records_of_the_same_order_are_in_order_of_their_numbers() {
        let places = Places::new(vec![Place::new(7, 3), Place::new(7, 1)]);
        let found = [Place::new(7, 1), Place::new(7, 3)];
        assert_eq!(places.check(found[0], 2, 0, &found), Ok(()));
        assert!(places.check(found[0], 2, 0, &[found[1], found[0]]).unwrap_err().contains("out of order"));
    }
}
