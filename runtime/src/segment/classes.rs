//! Size classes: the sizes of blocks, and the block size for an object.
//!
//! Sizes are rounded up so that a block's alignment is the largest power of two that divides its size: a block for a
//! type aligned to 64 bytes has a size that is a multiple of 64. So size alone identifies a list of free blocks. Up to 512
//! bytes there is a class for each multiple of 8, from 16 on; beyond, four to each doubling, so at most a fifth of a block is unused.

use farfield_words::WORD_BYTES;

/// The smallest block. A page of the pool on such a block has room for a link and an entry.
const SMALLEST_BYTES: u64 = 16;
/// Blocks up to this size have a class for each multiple of 8.
const FINE_BYTES: u64 = 512;
const FINE_CLASSES: usize = (FINE_BYTES / WORD_BYTES as u64) as usize;
/// The classes of each doubling beyond.
const PER_DOUBLING: usize = 4;
/// The largest alignment that blocks can have.
pub(crate) const MAX_ALIGN: u64 = 4096;
/// The largest blocks with a class. Larger blocks, and those larger than half a chunk, have chunks of their own.
const LARGEST_BYTES: u64 = FINE_BYTES << DOUBLINGS;
const DOUBLINGS: u32 = 4;
/// The number of classes.
pub(crate) const CLASSES: usize = FINE_CLASSES + DOUBLINGS as usize * PER_DOUBLING;

/// The size of the blocks that serve objects of `bytes` bytes aligned to `align`.
#[inline]
pub(crate) fn block_bytes(bytes: u64, align: u64) -> u64 {
    let granule = if bytes <= FINE_BYTES {
        WORD_BYTES as u64
    } else {
        (bytes.next_power_of_two() / (2 * PER_DOUBLING as u64)).min(MAX_ALIGN)
    };
    bytes.max(SMALLEST_BYTES).next_multiple_of(granule.max(align))
}

/// The alignment that every block of a size has.
#[inline]
pub(crate) fn block_align(block_bytes: u64) -> u64 {
    (1 << block_bytes.trailing_zeros()).min(MAX_ALIGN)
}

/// The sizes of all classes.
const SIZES: [u16; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut index = 0;
    while index < CLASSES {
        sizes[index] = if index < FINE_CLASSES {
            (index + 1) as u16 * WORD_BYTES as u16
        } else {
            let (doubling, step) =
                ((index - FINE_CLASSES) / PER_DOUBLING, (index - FINE_CLASSES) % PER_DOUBLING + 1);
            let bottom = (FINE_BYTES as u16) << doubling;
            bottom + step as u16 * (bottom / PER_DOUBLING as u16)
        };
        index += 1;
    }
    sizes
};

/// A size that blocks cut from chunks can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// The class of blocks of a size that [`block_bytes`] returns, if there is one.
    #[inline]
    pub(crate) fn of(block_bytes: u64) -> Option<Self> {
        if block_bytes > LARGEST_BYTES {
            return None;
        }
        let is_fine = block_bytes <= FINE_BYTES;
        Some(if is_fine {
            Self((block_bytes / WORD_BYTES as u64) as u8 - 1)
        } else {
            Self::coarse(block_bytes)
        })
    }

    fn coarse(block_bytes: u64) -> Self {
        let top = block_bytes.next_power_of_two();
        let doubling = (top / FINE_BYTES).trailing_zeros() as usize - 1;
        let granule = top / (2 * PER_DOUBLING as u64);
        let step = (block_bytes - top / 2) / granule;
        Self((FINE_CLASSES + doubling * PER_DOUBLING + step as usize - 1) as u8)
    }

    /// The class with a number below [`CLASSES`].
    #[inline]
    pub(crate) fn from_index(index: usize) -> Option<Self> {
        (index < CLASSES).then_some(Self(index as u8))
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The size of its blocks.
    #[inline]
    pub(crate) fn bytes(self) -> u64 {
        u64::from(SIZES[usize::from(self.0)])
    }

    /// The number of words in each of its blocks.
    pub(crate) fn words(self) -> usize {
        self.bytes() as usize / WORD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn blocks_are_large_and_aligned_enough(bytes in 0_u64..1 << 20, align_log2 in 3_u32..13) {
            let align = 1 << align_log2;
            let block = block_bytes(bytes, align);
            proptest::prop_assert!(block >= bytes && block > 0);
            proptest::prop_assert!(block_align(block) >= align);
            proptest::prop_assert!(block <= (bytes + bytes / 4).max(16).next_multiple_of(align.max(8)));
            proptest::prop_assert_eq!(block_bytes(block, align), block, "a block's size is its own class");
            if block <= 8 * 1024 {
                proptest::prop_assert_eq!(Class::of(block).map(Class::bytes), Some(block));
            } else {
                proptest::prop_assert_eq!(Class::of(block), None);
            }
        }
    }

    #[test]
    fn every_class_has_a_size_of_its_own() {
        let classes = (1..CLASSES).filter_map(Class::from_index);
        for class in classes {
            assert_eq!(Class::of(class.bytes()), Some(class));
            assert_eq!(block_bytes(class.bytes(), 8), class.bytes());
        }
        assert_eq!(Class::from_index(CLASSES), None);
    }
}
