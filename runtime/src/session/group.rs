//! A run of several processes: its group, and the agreement between its parts.

use farfield_words::Address;

use crate::io::operations::*;
use crate::memory::worker::Worker;
use crate::segment::control::Record;
use crate::segment::record::DEPARTED_SHIFT;

/// A part of a group of processes.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: Box<str>,
    pub(crate) part: u16,
    pub(crate) parts: u16,
}

/// A run of a group, as its parts have agreed on it.
#[derive(Debug)]
pub(crate) struct Joint {
    pub(crate) group: Group,
    /// The run's number in the group.
    pub(crate) number: u64,
    /// The number of threads in the parts before this one.
    pub(crate) first: usize,
    /// The number of threads in all parts.
    pub(crate) threads: usize,
    /// The identities of the processes.
    pub(crate) roster: Vec<u32>,
    /// This process's record.
    pub(crate) record: Address,
}

impl Group {
    /// Returns the name in the directory of the group's barrier `name`. A group's name contains no `/`, so the names of two groups differ.
    pub(crate) fn qualify(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }
}

impl Joint {
    /// Counts a thread of this part as ended, in the process's record.
    pub(crate) fn depart(&self, ct: &Worker) {
        let mut chain = ct.empty_chain();
        chain.fetch_add(Record::round(self.record), 1 << DEPARTED_SHIFT);
        drop(ct.submit(chain));
    }
}
