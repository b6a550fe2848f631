//! A run of several processes: which group it belongs to, and what its parts have agreed on.

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

/// What the parts of a group have agreed on for a run.
#[derive(Debug)]
pub(crate) struct Joint {
    pub(crate) group: Group,
    /// Tells the run from others.
    pub(crate) number: u64,
    /// The threads of the parts before this one, and of all.
    pub(crate) first: usize,
    pub(crate) threads: usize,
    /// The processes.
    pub(crate) roster: Vec<u32>,
    /// This process's record.
    pub(crate) record: Address,
}

impl Group {
    /// What a barrier of the group's is called in the directory. The group's name has no `/`, so no two groups share one.
    pub(crate) fn qualify(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }
}

impl Joint {
    /// A thread of this part has ended.
    pub(crate) fn depart(&self, ct: &Worker) {
        let mut chain = ct.empty_chain();
        chain.fetch_add(Record::round(self.record), 1 << DEPARTED_SHIFT);
        drop(ct.submit(chain));
    }
}
