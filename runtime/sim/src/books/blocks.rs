//! What is allocated: the simulator's knowledge of every object in far memory.
//!
//! Each word of far memory that ever belonged to an object knows its last object: its type, who allocated it, and who
//! retired and freed it. So each access can be judged: on other fabrics, a READ of freed memory merely gives stale bytes.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::changes::{LogId, Logs};
use super::trace::{Record, Time, What, Who};
use farfield_words::Address;
use farfield_words::{FieldInfo, WORD_BYTES};

/// Words of a page of the map from addresses to blocks.
const PAGE_WORDS: usize = 1024;
const PAGE_BYTES: u64 = (PAGE_WORDS * WORD_BYTES) as u64;

/// A type of objects, as traces name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The type's name.
    pub name: &'static str,
    /// Its fields.
    pub fields: &'static [FieldInfo],
    /// Whether it is a user's, who is told if it is lost; else the runtime's.
    pub is_object: bool,
}

impl Kind {
    /// Memory that is the runtime's own.
    pub const fn internal(name: &'static str) -> Self {
        Self { name, fields: &[], is_object: false }
    }
}

/// Where an object is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    Retired,
    /// Retired so long ago that its memory may be used again, though its thread has not freed it.
    Expired,
    Freed(Who),
}

/// An object that is or was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub start: Address,
    pub bytes: u64,
    pub kind: Kind,
    allocated: Who,
    retired: Option<Who>,
    /// The epoch from which on its memory may be used again, where the simulator watches epochs.
    expires: u64,
    /// When that was.
    expired: Option<u64>,
    state: State,
    log: LogId,
}

impl Block {
    /// Says which object it is. One that was made after `since` is one of many: its type stands for it.
    pub(crate) fn identify(&self, since: u64, hasher: &mut impl Hasher) {
        if self.kind.is_object && self.allocated.at > since {
            self.kind.name.hash(hasher);
        } else {
            self.start.bits().hash(hasher);
        }
    }

    pub(crate) fn allocated_by(&self) -> Who {
        self.allocated
    }

    fn is_in_use(&self) -> bool {
        !matches!(self.state, State::Freed(_))
    }
}

impl fmt::Display for Block {
    /// Its history in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the `{}` at {}, allocated by {}", self.kind.name, self.start, self.allocated)?;
        if let Some(retired) = self.retired {
            write!(f, ", retired by {retired}")?;
        }
        if let Some(since) = self.expired {
            write!(f, ", free since {} (no guard of before is left)", Time(since))?;
        }
        if let State::Freed(freed) = self.state {
            write!(f, ", freed by {freed}")?;
        }
        Ok(())
    }
}

/// What is wrong with an access or with a step of an object's life.
#[derive(Clone, Debug)]
pub(crate) enum Misuse {
    /// Nothing was ever allocated there.
    NeverAllocated,
    /// The object there has been freed.
    Freed(Box<Block>),
    /// The access begins inside this object and ends outside.
    Overrun(Box<Block>),
    /// The object has been retired already.
    RetiredTwice(Box<Block>),
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverAllocated => f.write_str("where nothing was ever allocated"),
            Self::Freed(block) => write!(f, "of freed memory: {block}"),
            Self::Overrun(block) => write!(f, "past the end of {block}, which has {} bytes", block.bytes),
            Self::RetiredTwice(block) => write!(f, "of what is retired already: {block}"),
        }
    }
}

/// All objects of a simulated cluster.
#[allow(clippy::struct_field_names)] // the blocks themselves
#[derive(Default)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    /// By segment and page: for each word, 1 + the index of its last block, or 0.
    pages: Vec<Vec<Option<Box<[u32; PAGE_WORDS]>>>>,
    logs: Logs,
}

impl Blocks {
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

    /// The last object that the word at `at` belonged to.
    pub(crate) fn at(&self, at: Address) -> Option<&Block> {
        self.index_at(at).map(|index| &self.blocks[index])
    }

    /// An object comes to life; gives one that is still alive there, if the memory has been handed out twice.
    pub(crate) fn allocated(&mut self, start: Address, bytes: u64, kind: Kind, by: Who) -> Option<Block> {
        let log = LogId::default();
        let block = Block {
            start,
            bytes,
            kind,
            allocated: by,
            retired: None,
            expires: 0,
            expired: None,
            state: State::Live,
            log,
        };
        // Memory that is used again for an object of the same size needs no new entries.
        if let Some(index) = self.index_at(start)
            && (self.blocks[index].start, self.blocks[index].bytes) == (start, bytes)
            && (0..bytes).step_by(WORD_BYTES).all(|offset| self.index_at(start.add(offset)) == Some(index))
        {
            let log = self.blocks[index].log;
            self.logs.begin_anew(log);
            let last = std::mem::replace(&mut self.blocks[index], Block { log, ..block });
            return last.is_in_use().then_some(last);
        }
        self.blocks.push(block);
        let index = self.blocks.len() - 1;
        let mut in_use = None;
        for offset in (0..bytes).step_by(WORD_BYTES) {
            let at = start.add(offset);
            in_use = in_use.or_else(|| self.at(at).filter(|block| block.is_in_use()).copied());
            self.set_index(at, index);
        }
        in_use
    }

    /// The object that begins at `start`, to move it on in its life.
    fn living(&mut self, start: Address) -> Result<&mut Block, Misuse> {
        let index = self.index_at(start).ok_or(Misuse::NeverAllocated)?;
        let block = &mut self.blocks[index];
        match block.state {
            State::Freed(_) => Err(Misuse::Freed(Box::new(*block))),
            _ if block.start != start => Err(Misuse::Overrun(Box::new(*block))),
            _ => Ok(block),
        }
    }

    /// An object is unlinked and waits to be freed, until the epoch is `expires`.
    pub(crate) fn retired(&mut self, start: Address, expires: u64, by: Who) -> Result<Kind, Misuse> {
        let block = self.living(start)?;
        if block.retired.is_some() {
            return Err(Misuse::RetiredTwice(Box::new(*block)));
        }
        (block.retired, block.expires, block.state) = (Some(by), expires, State::Retired);
        Ok(block.kind)
    }

    /// The epoch is `epoch`: if the object at `start` has waited for that, its memory may be used again.
    pub(crate) fn expired(&mut self, start: Address, epoch: u64, now: u64) {
        if let Ok(block) = self.living(start)
            && (block.state, block.expires) == (State::Retired, epoch)
        {
            (block.expired, block.state) = (Some(now), State::Expired);
        }
    }

    /// An object's memory may be used again.
    pub(crate) fn freed(&mut self, start: Address, by: Who) -> Result<Kind, Misuse> {
        let block = self.living(start)?;
        block.state = State::Freed(by);
        Ok(block.kind)
    }

    /// Whatever is in some bytes is no more.
    pub(crate) fn lost(&mut self, start: Address, bytes: u64, by: Who) {
        for offset in (0..bytes).step_by(WORD_BYTES) {
            if let Some(index) = self.index_at(start.add(offset)) {
                self.blocks[index].state = State::Freed(by);
            }
        }
    }

    /// Whether `words` words from `at` on may be accessed: gives their object.
    #[inline]
    pub(crate) fn accessed(&self, at: Address, words: usize) -> Result<&Block, Misuse> {
        let block = self.at(at).ok_or(Misuse::NeverAllocated)?;
        if let State::Freed(_) | State::Expired = block.state {
            return Err(Misuse::Freed(Box::new(*block)));
        }
        let end = at.bits() + (words * WORD_BYTES) as u64;
        if end > block.start.bits() + block.bytes {
            return Err(Misuse::Overrun(Box::new(*block)));
        }
        Ok(block)
    }

    /// An operation has changed an object; that its maker fills it is none.
    #[inline]
    pub(crate) fn changed(&mut self, record: &Record) {
        let Some(index) = self.index_at(record.at) else { return };
        let block = &mut self.blocks[index];
        let fills =
            |words: u32| u64::from(words) * WORD_BYTES as u64 == block.bytes && block.log == LogId::default();
        if !matches!(record.what, What::Write { words, .. } if fills(words)) {
            self.logs.changed(&mut block.log, record);
        }
    }

    /// What is known of the object at `at`: who made it, who changed it first and last, who retired and freed it.
    pub(crate) fn life(&self, at: Address) -> Vec<Record> {
        let Some(block) = self.at(at) else { return Vec::new() };
        let Block { start, bytes, kind, allocated, retired, state, log, .. } = *block;
        let record = |(who, what, at)| Record { who, what, at, object: Some((kind, start)) };
        let mut life = vec![record((allocated, What::Allocated { bytes }, start))];
        life.extend(self.logs.of(log).into_iter().map(record));
        life.extend(retired.map(|by| record((by, What::Retired, start))));
        if let State::Freed(by) = state {
            life.push(record((by, What::Freed, start)));
        }
        life.sort_by_key(|record| record.who.at);
        life
    }

    /// The object that begins where a word points, plainly or packed as a stamped link is, if it points to one; and its marks.
    pub(crate) fn pointed_to(&self, word: u64) -> Option<(&Block, u64)> {
        let begins = |at: Address| self.at(at).filter(|block| block.start == at);
        let plain = begins(Address::from_bits(word & !7)).map(|block| (block, word & 7));
        plain.or_else(|| begins(Address::from_compressed(word)).map(|block| (block, 0)))
    }

    /// The live objects that no chain of pointers leads to from `roots`. A word is taken for a pointer if it is the
    /// address of an object, its marks aside, plain or packed as a stamped link has it; so an object may be missed, but
    /// none is reported that is in use.
    pub(crate) fn unreachable(
        &self,
        roots: impl IntoIterator<Item = u64>,
        word: impl Fn(Address) -> u64,
    ) -> Vec<Block> {
        let mut reached = vec![false; self.blocks.len()];
        let mut pending: Vec<u64> = roots.into_iter().collect();
        while let Some(bits) = pending.pop() {
            for at in [Address::from_bits(bits & !7), Address::from_compressed(bits)] {
                let Some(index) = self.index_at(at).filter(|index| !reached[*index]) else { continue };
                reached[index] = true;
                let Block { start, bytes, state, .. } = self.blocks[index];
                if !matches!(state, State::Freed(_)) {
                    pending.extend((0..bytes).step_by(WORD_BYTES).map(|offset| word(start.add(offset))));
                }
            }
        }
        let lost = |(index, block): (usize, &Block)| {
            (block.state == State::Live
                && block.kind.is_object
                && !reached[index]
                && self.index_at(block.start) == Some(index))
            .then_some(*block)
        };
        self.blocks.iter().enumerate().filter_map(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { name: "Node", fields: &[], is_object: true };
    const BY: Who = Who { thread: 1, task: 0, at: 5_000_000 };

    fn at(offset: u64) -> Address {
        Address::new(0, offset)
    }

    #[test]
    fn each_misuse_is_told_from_use() {
        let mut blocks = Blocks::default();
        blocks.allocated(at(64), 24, KIND, BY);
        blocks.allocated(at(88), 8, KIND, BY);
        assert!(blocks.accessed(at(64), 3).is_ok() && blocks.accessed(at(72), 2).is_ok());
        assert!(matches!(blocks.accessed(at(72), 3), Err(Misuse::Overrun(_))));
        assert!(matches!(blocks.accessed(at(96), 1), Err(Misuse::NeverAllocated)));
        assert!(matches!(blocks.accessed(Address::new(9, 64), 1), Err(Misuse::NeverAllocated)));
        assert!(matches!(blocks.freed(at(72), BY), Err(Misuse::Overrun(_))), "no object begins there");
        assert!(blocks.retired(at(64), 3, BY).is_ok());
        assert!(blocks.accessed(at(64), 3).is_ok(), "whoever is pinned may still read it");
        assert!(matches!(blocks.retired(at(64), 3, BY), Err(Misuse::RetiredTwice(_))));
        assert!(blocks.freed(at(64), BY).is_ok());
        assert!(matches!(blocks.freed(at(64), BY), Err(Misuse::Freed(_))));
        let misuse = blocks.accessed(at(64), 3).unwrap_err().to_string();
        assert_eq!(
            misuse,
            "of freed memory: the `Node` at 0:0x40, allocated by thread 1 at 5.000 us, retired by thread 1 at 5.000 \
             us, freed by thread 1 at 5.000 us"
        );
        assert!(blocks.allocated(at(64), 24, KIND, BY).is_none());
        assert!(blocks.accessed(at(64), 3).is_ok(), "used again");
        assert_eq!(blocks.blocks.len(), 2);
        assert!(blocks.allocated(at(64), 24, KIND, BY).is_some(), "handed out twice");
        assert!(blocks.allocated(at(80), 16, KIND, BY).is_some(), "in part");
    }

    #[test]
    fn what_has_expired_is_freed_memory_to_everyone_but_its_owner() {
        let mut blocks = Blocks::default();
        blocks.allocated(at(64), 24, KIND, BY);
        assert!(blocks.retired(at(64), 3, BY).is_ok());
        blocks.expired(at(64), 2, 6_000_000);
        assert!(blocks.accessed(at(64), 3).is_ok(), "it waits for epoch 3");
        blocks.expired(at(64), 3, 7_000_000);
        let misuse = blocks.accessed(at(64), 3).unwrap_err().to_string();
        assert_eq!(
            misuse,
            "of freed memory: the `Node` at 0:0x40, allocated by thread 1 at 5.000 us, retired by thread 1 at 5.000 us, \
             free since 7.000 us (no guard of before is left)"
        );
        assert!(matches!(blocks.retired(at(64), 5, BY), Err(Misuse::RetiredTwice(_))));
        assert!(blocks.freed(at(64), BY).is_ok());
        assert!(blocks.allocated(at(64), 24, KIND, BY).is_none());
        blocks.expired(at(64), 3, 8_000_000);
        assert!(blocks.accessed(at(64), 3).is_ok(), "another object is there by now");
    }

    #[test]
    fn what_no_root_leads_to_is_lost() {
        let mut blocks = Blocks::default();
        for offset in [64, 128, 192, 256] {
            blocks.allocated(at(offset), 16, KIND, BY);
        }
        // 64 leads to 128, marked; nothing leads to 192; 256 leads to itself.
        let word = |at: Address| match at.offset() {
            72 => 128 + 1,
            256 => 256,
            _ => 0,
        };
        let lost: Vec<u64> =
            blocks.unreachable([64], word).iter().map(|block| block.start.offset()).collect();
        assert_eq!(lost, [192, 256]);
        assert!(blocks.unreachable([64, 192, 256], word).is_empty());
    }
}
