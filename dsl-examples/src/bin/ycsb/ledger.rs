//! What the tasks remember of their writes, against which values are checked.
//!
//! A task remembers for each record the number of its last write and how many it made. Then:
//!
//! 1. A task that reads a value of its own finds its last write of the record. A value from before the run is not found by a task that has updated the
//!    record.
//! 2. At the end, the value of each record is its writer's last write of it. It is the first value only if no task has updated the record.
//! 3. If all writes of a run are read-modify-writes, a record's value counts those that were made.
//!
//! In a joint run each process checks all records against its own tasks, so every value is checked by the process of its writer.
//!
//! The memory is bounded: a task that has reached its limit forgets writes of further records. Values that can then not be checked are counted.

use std::collections::HashMap;

use crate::record::{Value, loader};

/// The records that the tasks of a process remember together: 24 bytes each, and up to twice that during the run.
pub(crate) const LIMIT: usize = 1 << 23;

/// The writes of a task.
#[derive(Debug)]
pub(crate) struct Notes {
    writer: u32,
    sequence: u32,
    last: HashMap<u64, Last>,
    limit: usize,
    is_forgetful: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Last {
    sequence: u32,
    writes: u32,
}

impl Notes {
    pub(crate) fn new(writer: u32, limit: usize) -> Self {
        Self { writer, sequence: 0, last: HashMap::new(), limit, is_forgetful: false }
    }

    /// Returns the value of the task's next write.
    pub(crate) fn next_value(&mut self, record: u64) -> Value {
        self.sequence += 1;
        Value { record, writer: self.writer, sequence: self.sequence, increments: 0 }
    }

    /// The task's last value has been written.
    pub(crate) fn wrote(&mut self, record: u64) {
        if self.last.len() >= self.limit && !self.last.contains_key(&record) {
            self.is_forgetful = true;
            return;
        }
        let last = self.last.entry(record).or_default();
        *last = Last { sequence: self.sequence, writes: last.writes + 1 };
    }

    /// Checks a value that the task has read.
    pub(crate) fn check(&self, value: Value) -> Result<(), String> {
        let Some(last) = self.last.get(&value.record) else { return Ok(()) };
        if value.sequence == 0 {
            return Err(format!("has its first value for writer {}, which has updated it", self.writer));
        }
        if value.writer == self.writer && value.sequence != last.sequence {
            let (found, last) = (value.sequence, last.sequence);
            return Err(format!(
                "has write {found} of writer {}, which had written {last} since",
                self.writer
            ));
        }
        Ok(())
    }
}

/// The outcome of a check that has found no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The value is the last write of a task of this process.
    Matched,
    /// The value is of another process, which checks it.
    Elsewhere,
    /// The writer has reached its limit.
    Forgotten,
}

/// The writes of a process's tasks.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Sorted by record.
    entries: Vec<Entry>,
    /// The tasks, and whether each is forgetful.
    writers: HashMap<u32, bool>,
    some_forget: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    record: u64,
    writer: u32,
    last: Last,
}

/// A run, as far as its values depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The tasks of all processes.
    pub(crate) writers: u64,
    pub(crate) loaded: u64,
    /// True if all writes are read-modify-writes.
    pub(crate) counts: bool,
    /// True if all tasks are in this process.
    pub(crate) is_alone: bool,
}

impl Ledger {
    /// Adds the writes of a task.
    pub(crate) fn add(&mut self, notes: Notes) {
        self.writers.insert(notes.writer, notes.is_forgetful);
        self.some_forget |= notes.is_forgetful;
        let writer = notes.writer;
        self.entries.extend(notes.last.into_iter().map(|(record, last)| Entry { record, writer, last }));
    }

    /// Prepares checks, when all tasks have been added.
    pub(crate) fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|entry| (entry.record, entry.writer));
    }

    /// Checks the value that a record has at the end.
    pub(crate) fn check(&self, record: u64, value: Value, terms: Terms) -> Result<Checked, String> {
        let Value { record: found, writer, sequence, increments } = value;
        if found != record {
            return Err(format!("has the value of record {found}"));
        }
        if u64::from(writer) >= terms.writers {
            return Err(format!("has a value of writer {writer} of {}", terms.writers));
        }
        let start = self.entries.partition_point(|entry| entry.record < record);
        let mut entries = self.entries[start..].iter().take_while(|entry| entry.record == record);
        if terms.counts {
            let made: u64 = entries.clone().map(|entry| u64::from(entry.last.writes)).sum();
            if increments < made || increments > made && terms.is_alone && !self.some_forget {
                return Err(format!("counts {increments} read-modify-writes, but {made} were made"));
            }
        }
        if sequence == 0 {
            if record < terms.loaded && loader(record, terms.writers, terms.loaded) != u64::from(writer) {
                return Err(format!("has a first value of writer {writer}, which has not loaded it"));
            }
            if let Some(entry) = entries.next() {
                return Err(format!("has its first value, but writer {} has updated it", entry.writer));
            }
            return Ok(match self.writers.contains_key(&writer) {
                _ if self.some_forget => Checked::Forgotten,
                true => Checked::Matched,
                false => Checked::Elsewhere,
            });
        }
        let Some(is_forgetful) = self.writers.get(&writer) else { return Ok(Checked::Elsewhere) };
        match entries.find(|entry| entry.writer == writer) {
            Some(entry) if entry.last.sequence == sequence => Ok(Checked::Matched),
            Some(entry) => {
                let last = entry.last.sequence;
                Err(format!("has write {sequence} of writer {writer}, whose last of it was {last}"))
            }
            None if *is_forgetful => Ok(Checked::Forgotten),
            None => Err(format!("has write {sequence} of writer {writer}, which has not written it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { writers: 4, loaded: 10, counts: false, is_alone: true };

    fn value(record: u64, writer: u32, sequence: u32) -> Value {
        Value { record, writer, sequence, increments: 0 }
    }

    /// Writer 1 has written record 5 twice, and record 6; writer 2 record 5.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let mut notes = [1, 2].map(|writer| Notes::new(writer, 10));
        for (task, record) in [(0, 5), (1, 5), (0, 5), (0, 6)] {
            notes[task].next_value(record);
            notes[task].wrote(record);
        }
        for notes in notes {
            ledger.add(notes);
        }
        ledger.sort();
        ledger
    }

    #[test]
    fn the_last_write_of_each_writer_is_valid() {
        let ledger = ledger();
        for (value, checked) in [
            (value(5, 1, 2), Checked::Matched),
            (value(5, 2, 1), Checked::Matched),
            (value(6, 1, 3), Checked::Matched),
            (value(5, 3, 8), Checked::Elsewhere),
            (value(4, 1, 0), Checked::Matched),
            (value(9, 3, 0), Checked::Elsewhere),
            (value(12, 1, 0), Checked::Matched),
        ] {
            assert_eq!(ledger.check(value.record, value, TERMS), Ok(checked), "{value:?}");
        }
    }

    #[test]
    fn each_planted_fault_is_found() {
        let ledger = ledger();
        for (record, value, named) in [
            (5, value(6, 1, 3), "the value of record 6"),
            (5, value(5, 1, 1), "whose last of it was 2"),
            (5, value(5, 2, 9), "write 9 of writer 2, whose last"),
            (6, value(6, 2, 1), "which has not written it"),
            (5, value(5, 1, 0), "first value of writer 1, which has not loaded it"),
            (5, value(5, 2, 0), "but writer 1 has updated it"),
            (5, value(5, 4, 1), "writer 4 of 4"),
        ] {
            let fault = ledger.check(record, value, TERMS).unwrap_err();
            assert!(fault.contains(named), "{value:?}: {fault}");
        }
    }

    #[test]
    fn read_modify_writes_are_counted() {
        let (ledger, terms) = (ledger(), Terms { counts: true, ..TERMS });
        let counted = |increments| Value { increments, ..value(5, 1, 2) };
        assert_eq!(ledger.check(5, counted(3), terms), Ok(Checked::Matched));
        for increments in [2, 4] {
            assert!(ledger.check(5, counted(increments), terms).unwrap_err().contains("but 3 were made"));
        }
        let joint = Terms { is_alone: false, ..terms };
        assert!(ledger.check(5, counted(4), joint).is_ok(), "another process may have made one");
        assert!(ledger.check(5, counted(2), joint).is_err());
    }

    #[test]
    fn a_task_checks_what_it_reads() {
        let mut notes = Notes::new(1, 10);
        assert!(notes.check(value(5, 0, 0)).is_ok());
        notes.next_value(5);
        notes.wrote(5);
        let last = notes.next_value(5);
        notes.wrote(5);
        assert!(notes.check(last).is_ok() && notes.check(value(5, 2, 7)).is_ok());
        assert!(notes.check(value(5, 1, 1)).unwrap_err().contains("had written 2 since"));
        assert!(notes.check(value(5, 0, 0)).unwrap_err().contains("first value"));
    }

    #[test]
    fn a_task_remembers_a_bounded_number_of_records() {
        let (mut notes, mut ledger) = (Notes::new(0, 2), Ledger::default());
        for record in [0, 1, 2, 0] {
            notes.next_value(record);
            notes.wrote(record);
        }
        ledger.add(notes);
        ledger.sort();
        assert_eq!(ledger.check(0, value(0, 0, 4), TERMS), Ok(Checked::Matched));
        assert_eq!(ledger.check(2, value(2, 0, 3), TERMS), Ok(Checked::Forgotten));
        assert!(ledger.check(1, value(1, 0, 3), TERMS).is_err());
    }
}
