//! Entries: byte strings with a key and its value, or a separator, to which the slots of nodes link.

use farfield::op::Replacement;
use farfield::prelude::*;
use farfield::{Error, Site, SizeClass};

/// The tag of a link to a byte string. In a null link, `dead` is as that of a node's. `check` has bits of a hash of the key.
#[tag(class: 8, check: 7, dead)]
pub struct EntryTag;

pub(super) type EntryLink<'g> = Tagged<'g, Blob, EntryTag>;
pub(super) type NewEntry = Replacement<Blob, EntryTag>;

/// A key, as an operation looks for it.
#[derive(Clone, Copy)]
pub struct Sought<'a> {
    /// In the order of keys.
    pub(super) ordered: &'a [u8],
    /// As an entry has it.
    pub(super) stored: &'a [u8],
}

/// An entry's key and value.
type KeyAndValue<'a> = (&'a [u8], &'a [u8]);

/// The form of entries.
#[derive(Clone, Copy)]
pub struct Entries {
    /// Returns the bytes of the entry of a key and a value.
    pub(super) bytes: fn(&[u8], &[u8]) -> usize,
    /// Writes one.
    pub(super) write: fn(&[u8], &[u8], &mut [u8]),
    /// Splits one.
    pub(super) split: fn(&[u8]) -> Option<KeyAndValue<'_>>,
}

impl Sought<'_> {
    /// Returns 7 bits that equal keys have in common, for the link to the entry.
    pub(super) fn check(self) -> u8 {
        let hash = self.stored.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash >> 57) as u8
    }
}

/// The tag of the null link of a slot that has had an entry.
pub(super) const DEAD_ENTRY: EntryTag = EntryTag::new(0, 0, true);

impl Entries {
    /// Allocates the entry of a key and its value.
    pub(super) async fn make(self, key: Sought<'_>, value: &[u8], near: Site<'_>) -> Result<NewEntry> {
        let length = (self.bytes)(key.stored, value);
        let mut entry = Blob::zeroed_in(near, length).await?;
        (self.write)(key.stored, value, Blob::bytes_mut(&mut entry));
        let tag = EntryTag::new(Blob::class(&entry).number(), key.check(), false);
        NewEntry::of(entry, tag)
    }
}

/// Returns the bytes of the class of an entry, 0 for none.
pub(super) fn capacity(entry: EntryLink<'_>) -> u64 {
    SizeClass::from_number(entry.tag().class()).map_or(0, |class| class.capacity() as u64)
}

/// Returns the class of an entry or a separator, which each link to one has.
pub(super) fn class(link: EntryLink<'_>) -> Result<SizeClass> {
    SizeClass::from_number(link.tag().class()).ok_or_else(|| corrupt("a link to an entry has no size class"))
}

#[cold]
pub(super) fn corrupt(how: &str) -> Error {
    Error::other(format!("the ordered map is destroyed or corrupt: {how}"))
}
