//! Addresses of words in far memory.
//!
//! An [`Address`] is 64 bits: the segment's number in the upper 16, the byte offset *inside that segment* in the lower
//! 48, of which the highest is 0 in every segment. It is never a virtual address, so it means the same on every machine, and no address can make a program touch
//! memory outside a segment: each access is checked against the segment's bounds before it is posted.
//!
//! Null is 0. The first word of every segment belongs to its control block and is never allocated. So an all-zero word can only be mistaken for null.

use std::fmt;

use crate::WORD_BYTES;

/// An address in far memory: 16 bits of segment, 48 bits of byte offset inside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Address(u64);

impl Address {
    /// The null address, which no object has.
    pub const NULL: Self = Self(0);
    /// Bits of the byte offset inside a segment.
    pub const OFFSET_BITS: u32 = 48;
    /// The largest number of segments that an address can name.
    pub const MAX_SEGMENTS: usize = 1 << 16;
    const OFFSET_MASK: u64 = (1 << Self::OFFSET_BITS) - 1;

    /// The address `offset` bytes into `segment`; bits of `offset` above the 48th are dropped.
    #[inline]
    pub const fn new(segment: u16, offset: u64) -> Self {
        Self(((segment as u64) << Self::OFFSET_BITS) | (offset & Self::OFFSET_MASK))
    }

    /// The address with this bit pattern.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bit pattern, as it is stored in far memory.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The segment's number.
    #[inline]
    pub const fn segment(self) -> u16 {
        (self.0 >> Self::OFFSET_BITS) as u16
    }

    /// The byte offset inside the segment.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & Self::OFFSET_MASK
    }

    /// Returns whether this is [`Address::NULL`].
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the address `bytes` further on. An access checks whether the address is still inside a segment. A sum that would wrap around is
    /// clamped to the largest address, which no segment contains.
    #[inline]
    #[must_use]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

/// The most marks that a link can have: as many as an object that is aligned to a cache line has zero bits in its address.
pub const MOST_MARKS: u32 = 6;

/// Returns the number of marks that a link to an object of this alignment can have: a bit for each zero bit of its address, up to [`MOST_MARKS`].
#[inline]
pub const fn mark_bits(align: usize) -> u32 {
    let zeros = align.trailing_zeros();
    if zeros < MOST_MARKS { zeros } else { MOST_MARKS }
}

impl Address {
    /// Returns the marks of a link to an object at this address, which is aligned to `align` bytes at most. `link` is the link's word, taken for an address. `None` if no
    /// such link has this word.
    #[inline]
    pub const fn marks_of(self, link: Self, align: u64) -> Option<u64> {
        let marks = link.0.wrapping_sub(self.0);
        if marks < align && marks >> MOST_MARKS == 0 { Some(marks) } else { None }
    }
}

/// The bit that distinguishes a compressed address from a plain one, whose offset is smaller.
const COMPRESSED: u64 = 1 << (Address::COMPRESSED_BITS - 1);
/// Bits of a compressed address: 11 of segment above 36 of offset in words.
const COMPRESSED_OFFSET_BITS: u32 = 36;
const COMPRESSED_OFFSET_MASK: u64 = (1 << COMPRESSED_OFFSET_BITS) - 1;
const COMPRESSED_SEGMENT_MASK: u64 = (COMPRESSED >> COMPRESSED_OFFSET_BITS) - 1;

impl Address {
    /// Bits of a compressed address.
    pub const COMPRESSED_BITS: u32 = 48;

    /// Packs the address of a word into 48 bits, so that 16 bits of a word are free for a tag: a bit that is set, 11 bits of segment, 36 of offset in
    /// words. Null is packed as 0. Returns `None` for segments from 2048 on and offsets from 512 GiB on.
    #[inline]
    pub const fn compress(self) -> Option<u64> {
        let (segment, offset) = (self.segment() as u64, self.offset() / WORD_BYTES as u64);
        if self.is_null() {
            return Some(0);
        }
        if segment > COMPRESSED_SEGMENT_MASK || offset > COMPRESSED_OFFSET_MASK {
            return None;
        }
        Some(COMPRESSED | segment << COMPRESSED_OFFSET_BITS | offset)
    }

    /// Unpacks the address in a word's lower 48 bits; ignores the upper 16.
    #[inline]
    pub const fn from_compressed(word: u64) -> Self {
        let segment = (word >> COMPRESSED_OFFSET_BITS) & COMPRESSED_SEGMENT_MASK;
        Self::new(segment as u16, (word & COMPRESSED_OFFSET_MASK) * WORD_BYTES as u64)
    }
}

/// Returns whether the word of a tagged link holds a pointer.
#[inline]
pub(crate) const fn holds_pointer(word: u64) -> bool {
    word & COMPRESSED != 0
}

/// Returns the address that a word names if it is a link: the compressed one if bit 47 is set, otherwise the plain one, whose lowest bits may be marks.
///
/// No offset in a segment has that bit, so a plain pointer is never taken for a compressed one to another object.
#[inline]
pub const fn link_target(word: u64) -> Address {
    if word & COMPRESSED == 0 { Address::from_bits(word) } else { Address::from_compressed(word) }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() {
            f.write_str("null")
        } else {
            write!(f, "{}:{:#x}", self.segment(), self.offset())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_and_offset_survive_packing() {
        let address = Address::new(0xbeef, 0x1234_5678_9abc);
        assert_eq!((address.segment(), address.offset()), (0xbeef, 0x1234_5678_9abc));
        assert_eq!(address.to_string(), "48879:0x123456789abc");
    }

    #[test]
    fn adding_past_the_end_does_not_wrap_to_null() {
        assert!(!Address::from_bits(u64::MAX - 7).add(8).is_null());
    }

    #[test]
    fn compression_keeps_every_address_that_fits_and_refuses_others() {
        for address in [Address::new(0, 8), Address::new(2047, 0), Address::new(7, (1 << 39) - 8)] {
            let compressed = address.compress().unwrap();
            assert_eq!(compressed >> Address::COMPRESSED_BITS, 0);
            assert_eq!(Address::from_compressed(compressed), address);
            assert_eq!(Address::from_compressed(compressed | 0xbeef << 48), address, "a stamp is ignored");
        }
        assert_eq!(Address::new(2048, 8).compress(), None);
        assert_eq!(Address::new(0, 1 << 39).compress(), None);
    }

    #[test]
    fn a_word_names_one_address() {
        let address = Address::new(3, 64);
        assert_eq!(link_target(address.bits()), address);
        assert_eq!(link_target(address.compress().unwrap() | 3 << Address::COMPRESSED_BITS), address);
        assert_eq!(Address::NULL.compress(), Some(0));
        assert!(Address::from_compressed(5 << Address::COMPRESSED_BITS).is_null());
    }

    #[test]
    fn marks_are_below_the_alignment_and_six_at_most() {
        assert_eq!([8, 16, 64, 4096].map(mark_bits), [3, 4, 6, 6]);
        let at = Address::new(1, 128);
        let marks = |link: u64, align| at.marks_of(Address::new(1, link), align);
        assert_eq!([marks(128, 8), marks(135, 8), marks(136, 8)], [Some(0), Some(7), None]);
        assert_eq!([marks(127, 128), marks(191, 128), marks(192, 128)], [None, Some(63), None]);
        assert_eq!(at.marks_of(Address::new(2, 128), 8), None);
    }

    proptest::proptest! {
        #[test]
        fn any_address_compresses_to_itself_or_not_at_all(bits: u64, tag: u16) {
            let address = Address::from_bits(bits & !7);
            if let Some(compressed) = address.compress().filter(|_| !address.is_null()) {
                proptest::prop_assert_eq!(Address::from_compressed(compressed), address);
                let tagged = compressed | u64::from(tag) << Address::COMPRESSED_BITS;
                proptest::prop_assert_eq!(link_target(tagged), address);
            }
        }

        #[test]
        fn a_plain_address_in_a_segment_is_never_taken_for_a_compressed_one(segment: u16, offset in 0..crate::geometry::MAX_SEGMENT_BYTES) {
            let address = Address::new(segment, offset);
            proptest::prop_assert_eq!(link_target(address.bits()), address);
        }
    }
}
