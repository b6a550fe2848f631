//! The lives of all objects in far memory: allocated, retired, freed.
//!
//! Each word of far memory that ever belonged to an object is mapped to its last object: its type, and the threads that allocated, retired and freed
//! it. So the simulator can check each access; on other fabrics, a READ of freed memory merely returns stale bytes.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::changes::{LogId, Logs};
use super::trace::{Action, Actor, Micros, Record};
use farfield_words::{Address, link_target};
use farfield_words::{FieldInfo, WORD_BYTES};

/// The words of a page of the map from addresses to allocations.
const PAGE_WORDS: usize = 1024;
const PAGE_BYTES: u64 = (PAGE_WORDS * WORD_BYTES) as u64;

/// An object's type, as traces name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectType {
    /// The type's name.
    pub name: &'static str,
    /// Its fields.
    pub fields: &'static [FieldInfo],
    /// True for an object of the program, whose loss is reported; false for the runtime's own memory.
    pub is_object: bool,
}

impl ObjectType {
    /// The type of memory of the runtime's own.
    pub const fn internal(name: &'static str) -> Self {
        Self { name, fields: &[], is_object: false }
    }
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LifeState {
    Live,
    Retired,
    /// Its grace period has ended: its memory may be reused, but its thread has not freed it yet.
    Expired,
    Freed(Actor),
}

/// An object, live or dead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub start: Address,
    pub bytes: u64,
    pub object_type: ObjectType,
    allocated: Actor,
    retired: Option<Actor>,
    /// The epoch from which on its memory may be reused, if the simulator observes epochs.
    expires: u64,
    /// The time at which that epoch began.
    expired: Option<u64>,
    state: LifeState,
    log: LogId,
}

impl Allocation {
    /// Hashes the object's identity: its type if it was allocated after `since`, so that new objects count as equal; else its address.
    pub(crate) fn identify(&self, since: u64, hasher: &mut impl Hasher) {
        if self.object_type.is_object && self.allocated.at > since {
            self.object_type.name.hash(hasher);
        } else {
            self.start.bits().hash(hasher);
        }
    }

    /// Returns the marks of a link to the object, if its word, taken for an address, is `link`.
    pub(crate) fn marks_of(&self, link: Address) -> Option<u64> {
        self.start.marks_of(link, 1 << self.start.bits().trailing_zeros())
    }

    pub(crate) fn allocated_by(&self) -> Actor {
        self.allocated
    }

    fn is_in_use(&self) -> bool {
        !matches!(self.state, LifeState::Freed(_))
    }
}

impl fmt::Display for Allocation {
    /// Its history in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the `{}` at {}, allocated by {}", self.object_type.name, self.start, self.allocated)?;
        if let Some(retired) = self.retired {
            write!(f, ", retired by {retired}")?;
        }
        if let Some(since) = self.expired {
            write!(f, ", free since {} (no earlier guard is pinned)", Micros(since))?;
        }
        if let LifeState::Freed(freed) = self.state {
            write!(f, ", freed by {freed}")?;
        }
        Ok(())
    }
}

/// Why an access, a retirement or a free is invalid.
#[derive(Clone, Debug)]
pub(crate) enum InvalidUse {
    /// No object was ever allocated there.
    NeverAllocated,
    /// The object there has been freed.
    Freed(Box<Allocation>),
    /// The access begins inside this object and ends outside.
    Overrun(Box<Allocation>),
    /// The object has been retired already.
    RetiredTwice(Box<Allocation>),
}

impl fmt::Display for InvalidUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverAllocated => f.write_str("where no object was ever allocated"),
            Self::Freed(allocation) => write!(f, "of freed memory: {allocation}"),
            Self::Overrun(allocation) => {
                write!(f, "past the end of {allocation}, which has {} bytes", allocation.bytes)
            }
            Self::RetiredTwice(allocation) => write!(f, "of a retired object: {allocation}"),
        }
    }
}

/// All objects of a simulated cluster.
#[allow(clippy::struct_field_names)] // the allocations themselves
#[derive(Default)]
pub(crate) struct Allocations {
    allocations: Vec<Allocation>,
    /// By segment and page: for each word, 1 + the index of its last allocation, or 0.
    pages: Vec<Vec<Option<Box<[u32; PAGE_WORDS]>>>>,
    logs: Logs,
}

impl Allocations {
    fn page_of(at: Address) -> (usize, usize, usize) {
        let offset = at.offset();
        let word = (offset % PAGE_BYTES) as usize / WORD_BYTES;
        (usize::from(at.segment()), (offset / PAGE_BYTES) as usize, word)
    }

    fn index_at(&self, at: Address) -> Option<usize> {
        let (segment, page, word) = Self::page_of(at);
        let entry = self.pages.get(segment)?.get(page)?.as_ref()?[word];
        (entry as usize).checked_sub(1)
    }

    fn set_index(&mut self, at: Address, index: usize) {
        let (segment, page, word) = Self::page_of(at);
        if self.pages.len() <= segment {
            self.pages.resize_with(segment + 1, Vec::new);
        }
        let pages = &mut self.pages[segment];
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        pages[page].get_or_insert_with(|| Box::new([0; PAGE_WORDS]))[word] = index as u32 + 1;
    }

    /// Returns the last object that the word at `at` belonged to.
    pub(crate) fn at(&self, at: Address) -> Option<&Allocation> {
        self.index_at(at).map(|index| &self.allocations[index])
    }

    /// Records an allocation. Returns an object that is still alive there: then the memory was allocated twice.
    pub(crate) fn allocated(
        &mut self,
        start: Address,
        bytes: u64,
        object_type: ObjectType,
        by: Actor,
    ) -> Option<Allocation> {
        let log = LogId::default();
        let allocation = Allocation {
            start,
            bytes,
            object_type,
            allocated: by,
            retired: None,
            expires: 0,
            expired: None,
            state: LifeState::Live,
            log,
        };
        // Memory that is reused for an object of the same size needs no new entries.
        if let Some(index) = self.index_at(start)
            && (self.allocations[index].start, self.allocations[index].bytes) == (start, bytes)
            && (0..bytes).step_by(WORD_BYTES).all(|offset| self.index_at(start.add(offset)) == Some(index))
        {
            let log = self.allocations[index].log;
            self.logs.reset(log);
            let last = std::mem::replace(&mut self.allocations[index], Allocation { log, ..allocation });
            return last.is_in_use().then_some(last);
        }
        self.allocations.push(allocation);
        let index = self.allocations.len() - 1;
        let mut in_use = None;
        for offset in (0..bytes).step_by(WORD_BYTES) {
            let at = start.add(offset);
            in_use = in_use.or_else(|| self.at(at).filter(|allocation| allocation.is_in_use()).copied());
            self.set_index(at, index);
        }
        in_use
    }

    /// Returns the object that begins at `start` and is not freed, to change its state.
    fn unfreed(&mut self, start: Address) -> Result<&mut Allocation, InvalidUse> {
        let index = self.index_at(start).ok_or(InvalidUse::NeverAllocated)?;
        let allocation = &mut self.allocations[index];
        match allocation.state {
            LifeState::Freed(_) => Err(InvalidUse::Freed(Box::new(*allocation))),
            _ if allocation.start != start => Err(InvalidUse::Overrun(Box::new(*allocation))),
            _ => Ok(allocation),
        }
    }

    /// Records the retirement of an object, whose memory may be reused from epoch `expires` on.
    pub(crate) fn retired(
        &mut self,
        start: Address,
        expires: u64,
        by: Actor,
    ) -> Result<ObjectType, InvalidUse> {
        let allocation = self.unfreed(start)?;
        if allocation.retired.is_some() {
            return Err(InvalidUse::RetiredTwice(Box::new(*allocation)));
        }
        (allocation.retired, allocation.expires, allocation.state) = (Some(by), expires, LifeState::Retired);
        Ok(allocation.object_type)
    }

    /// Records that the epoch is `epoch`: if the grace period of the object at `start` ends with it, its memory may be reused.
    pub(crate) fn expired(&mut self, start: Address, epoch: u64, now: u64) {
        if let Ok(allocation) = self.unfreed(start)
            && (allocation.state, allocation.expires) == (LifeState::Retired, epoch)
        {
            (allocation.expired, allocation.state) = (Some(now), LifeState::Expired);
        }
    }

    /// Records that an object was freed.
    pub(crate) fn freed(&mut self, start: Address, by: Actor) -> Result<ObjectType, InvalidUse> {
        let allocation = self.unfreed(start)?;
        allocation.state = LifeState::Freed(by);
        Ok(allocation.object_type)
    }

    /// Marks all objects in a range of bytes as freed.
    pub(crate) fn lost(&mut self, start: Address, bytes: u64, by: Actor) {
        for offset in (0..bytes).step_by(WORD_BYTES) {
            if let Some(index) = self.index_at(start.add(offset)) {
                self.allocations[index].state = LifeState::Freed(by);
            }
        }
    }

    /// Checks an access to `words` words from `at` on. Returns their object.
    #[inline]
    pub(crate) fn accessed(&self, at: Address, words: usize) -> Result<&Allocation, InvalidUse> {
        let allocation = self.at(at).ok_or(InvalidUse::NeverAllocated)?;
        if let LifeState::Freed(_) | LifeState::Expired = allocation.state {
            return Err(InvalidUse::Freed(Box::new(*allocation)));
        }
        let end = at.bits() + (words * WORD_BYTES) as u64;
        if end > allocation.start.bits() + allocation.bytes {
            return Err(InvalidUse::Overrun(Box::new(*allocation)));
        }
        Ok(allocation)
    }

    /// Logs an operation that changed an object, except the WRITE that initialises all of it.
    #[inline]
    pub(crate) fn changed(&mut self, record: &Record) {
        let Some(index) = self.index_at(record.at) else { return };
        let allocation = &mut self.allocations[index];
        let fills = |words: u32| {
            u64::from(words) * WORD_BYTES as u64 == allocation.bytes && allocation.log == LogId::default()
        };
        if !matches!(record.action, Action::Write { words, .. } if fills(words)) {
            self.logs.changed(&mut allocation.log, record);
        }
    }

    /// Returns the recorded life of the object at `at`: its allocation, its first and last changes, its retirement and free.
    pub(crate) fn records(&self, at: Address) -> Vec<Record> {
        let Some(allocation) = self.at(at) else { return Vec::new() };
        let Allocation { start, bytes, object_type, allocated, retired, state, log, .. } = *allocation;
        let record = |(actor, action, at)| Record { actor, action, at, object: Some((object_type, start)) };
        let mut records = vec![record((allocated, Action::Allocated { bytes }, start))];
        records.extend(self.logs.of(log).into_iter().map(record));
        records.extend(retired.map(|by| record((by, Action::Retired, start))));
        if let LifeState::Freed(by) = state {
            records.push(record((by, Action::Freed, start)));
        }
        records.sort_by_key(|record| record.actor.at);
        records
    }

    /// Returns the object that a word points to, plainly or compressed as in a stamped link, and the pointer's marks.
    pub(crate) fn pointed_to(&self, word: u64) -> Option<(&Allocation, u64)> {
        let link = link_target(word);
        let allocation = self.at(link)?;
        allocation.marks_of(link).map(|marks| (allocation, marks))
    }

    /// Returns the live objects that are not reachable from `roots`. The search is conservative: a word counts as a pointer if it is an address
    /// in an object, plain or compressed. So a leak may be missed, but no reachable object is reported.
    pub(crate) fn unreachable(
        &self,
        roots: impl IntoIterator<Item = u64>,
        word: impl Fn(Address) -> u64,
    ) -> Vec<Allocation> {
        let mut reached = vec![false; self.allocations.len()];
        let mut pending: Vec<u64> = roots.into_iter().collect();
        while let Some(bits) = pending.pop() {
            let Some(index) = self.index_at(link_target(bits)).filter(|index| !reached[*index]) else {
                continue;
            };
            reached[index] = true;
            let Allocation { start, bytes, state, .. } = self.allocations[index];
            if !matches!(state, LifeState::Freed(_)) {
                pending.extend((0..bytes).step_by(WORD_BYTES).map(|offset| word(start.add(offset))));
            }
        }
        let lost = |(index, allocation): (usize, &Allocation)| {
            (allocation.state == LifeState::Live
                && allocation.object_type.is_object
                && !reached[index]
                && self.index_at(allocation.start) == Some(index))
            .then_some(*allocation)
        };
        self.allocations.iter().enumerate().filter_map(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: ObjectType = ObjectType { name: "Node", fields: &[], is_object: true };
    const BY: Actor = Actor { thread: 1, task: 0, at: 5_000_000 };

    fn at(offset: u64) -> Address {
        Address::new(0, offset)
    }

    #[test]
    fn each_misuse_is_detected_and_valid_uses_are_not() {
        let mut allocations = Allocations::default();
        allocations.allocated(at(64), 24, NODE, BY);
        allocations.allocated(at(88), 8, NODE, BY);
        assert!(allocations.accessed(at(64), 3).is_ok() && allocations.accessed(at(72), 2).is_ok());
        assert!(matches!(allocations.accessed(at(72), 3), Err(InvalidUse::Overrun(_))));
        assert!(matches!(allocations.accessed(at(96), 1), Err(InvalidUse::NeverAllocated)));
        assert!(matches!(allocations.accessed(Address::new(9, 64), 1), Err(InvalidUse::NeverAllocated)));
        assert!(
            matches!(allocations.freed(at(72), BY), Err(InvalidUse::Overrun(_))),
            "no object begins there"
        );
        assert!(allocations.retired(at(64), 3, BY).is_ok());
        assert!(allocations.accessed(at(64), 3).is_ok(), "pinned readers may still read it");
        assert!(matches!(allocations.retired(at(64), 3, BY), Err(InvalidUse::RetiredTwice(_))));
        assert!(allocations.freed(at(64), BY).is_ok());
        assert!(matches!(allocations.freed(at(64), BY), Err(InvalidUse::Freed(_))));
        let invalid_use = allocations.accessed(at(64), 3).unwrap_err().to_string();
        assert_eq!(
            invalid_use,
            "of freed memory: the `Node` at 0:0x40, allocated by thread 1 at 5.000 us, retired by thread 1 at 5.000 \
             us, freed by thread 1 at 5.000 us"
        );
        assert!(allocations.allocated(at(64), 24, NODE, BY).is_none());
        assert!(allocations.accessed(at(64), 3).is_ok(), "used again");
        assert_eq!(allocations.allocations.len(), 2);
        assert!(allocations.allocated(at(64), 24, NODE, BY).is_some(), "allocated twice");
        assert!(allocations.allocated(at(80), 16, NODE, BY).is_some(), "in part");
    }

    #[test]
    fn an_expired_object_is_freed_memory_to_all_but_its_owner() {
        let mut allocations = Allocations::default();
        allocations.allocated(at(64), 24, NODE, BY);
        assert!(allocations.retired(at(64), 3, BY).is_ok());
        allocations.expired(at(64), 2, 6_000_000);
        assert!(allocations.accessed(at(64), 3).is_ok(), "it waits for epoch 3");
        allocations.expired(at(64), 3, 7_000_000);
        let invalid_use = allocations.accessed(at(64), 3).unwrap_err().to_string();
        assert_eq!(
            invalid_use,
            "of freed memory: the `Node` at 0:0x40, allocated by thread 1 at 5.000 us, retired by thread 1 at 5.000 us, \
                          free since 7.000 us (no earlier guard is pinned)"
        );
        assert!(matches!(allocations.retired(at(64), 5, BY), Err(InvalidUse::RetiredTwice(_))));
        assert!(allocations.freed(at(64), BY).is_ok());
        assert!(allocations.allocated(at(64), 24, NODE, BY).is_none());
        allocations.expired(at(64), 3, 8_000_000);
        assert!(allocations.accessed(at(64), 3).is_ok(), "another object has taken the memory");
    }

    #[test]
    fn objects_that_no_root_reaches_are_lost() {
        let mut allocations = Allocations::default();
        for offset in [64, 128, 192, 256] {
            allocations.allocated(at(offset), 16, NODE, BY);
        }
        // 64 points to 128, with a mark; no word points to 192; 256 points to itself.
        let word = |at: Address| match at.offset() {
            72 => 128 + 1,
            256 => 256,
            _ => 0,
        };
        let lost: Vec<u64> =
            allocations.unreachable([64], word).iter().map(|allocation| allocation.start.offset()).collect();
        assert_eq!(lost, [192, 256]);
        assert!(allocations.unreachable([64, 192, 256], word).is_empty());
    }
}
