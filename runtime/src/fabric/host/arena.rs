//! The arena: every segment of a cluster, in one mapping: anonymous for an embedded one, of a [sealed](super::Sealed) file for one in
//! shared memory.
//!
//! Segment `s` begins `s << stride` bytes into the mapping, where `1 << stride` is the segment size rounded up to a
//! power of two. Pages that nobody touches cost address space only, so the rounding is free.
//!
//! Finding a word is on the path of every step of a pointer chase, where what counts is the *latency* from an address to
//! its word. If there is one segment, an address is an offset from `base` as it stands, and one comparison proves it
//! valid: the processor predicts it, so the address itself costs nothing. With several, the segment's number is shifted
//! and added, 4 cycles.
//!
//! Invariant: `base` points to `segments << stride` bytes of mapped, page-aligned memory that lives as long as the arena, and
//! all accesses to it are atomic word accesses made here, or by other processes that hold to the same. [`Arena::words`] is the one
//! place that turns an address into memory. The kernel keeps the size of a shared file, so no process can take the memory away.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use memmap2::MmapMut;

#[cfg(target_os = "linux")]
use super::sealed::Sealed;
use crate::error::{self, Error, Result};
use crate::fabric::geometry::Geometry;
use crate::layout::WORD_BYTES;
use crate::pointer::Address;

#[cfg(all(target_arch = "x86_64", not(miri)))]
const CACHE_LINE_BYTES: usize = 64;

const ACTION: &str = "map far memory";

/// The memory of all segments.
pub(crate) struct Arena {
    base: *const u8,
    segments: u64,
    /// log2 of the distance between segments, in bytes.
    stride_log2: u32,
    /// One word less than a segment: an access of `n` bytes may begin in the first `limit - n` bytes after the first
    /// word.
    limit: u64,
    /// Words of the only segment but for its first; 0 if there are several segments.
    alone: u64,
    geometry: Geometry,
    pub(super) mapped: Instant,
    /// Owns the memory behind `base`.
    _map: MmapMut,
    /// The lock that shows that shared memory is used, held as long as it is mapped.
    _in_use: Option<File>,
}

// SAFETY: the memory behind `base` is owned by the arena and only accessed through `AtomicU64`, which may be shared and
// sent between threads; the other fields are plain.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// New memory, all zero.
    pub(crate) fn new(geometry: Geometry) -> Result<Self> {
        Self::mapped(geometry, |options| options.map_anon(), None)
    }

    /// The memory of a file. `in_use` is held as long as it is mapped.
    ///
    /// # Errors
    /// Those of the system; also if the file has fewer bytes than the segments need.
    #[cfg(target_os = "linux")]
    pub(crate) fn shared(memory: &Sealed, in_use: File, geometry: Geometry) -> Result<Self> {
        if memory.bytes() < geometry.mapped_bytes() {
            let cause = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Error::from(error::System { action: ACTION, cause }));
        }
        // SAFETY: the file has the bytes that are mapped, by the check above, and keeps them as long as it is mapped, by what
        // `Sealed` is: the kernel lets no process change its size. What other processes write there at the same time is
        // harmless, since all accesses of this process are atomic (the invariant above).
        Self::mapped(geometry, |options| unsafe { options.map_mut(memory.file()) }, Some(in_use))
    }

    fn mapped(
        geometry: Geometry,
        map: impl FnOnce(&memmap2::MmapOptions) -> std::io::Result<MmapMut>,
        in_use: Option<File>,
    ) -> Result<Self> {
        let failed = |cause| Error::from(error::System { action: ACTION, cause });
        let bytes = usize::try_from(geometry.mapped_bytes())
            .map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        let mut options = memmap2::MmapOptions::new();
        let mut map = map(options.len(bytes).no_reserve_swap()).map_err(failed)?;
        Ok(Self {
            base: map.as_mut_ptr().cast_const(),
            segments: u64::from(geometry.segments()),
            stride_log2: geometry.stride_log2(),
            limit: geometry.segment_bytes() - WORD_BYTES as u64,
            alone: if geometry.segments() == 1 {
                geometry.segment_bytes() / WORD_BYTES as u64 - 1
            } else {
                0
            },
            geometry,
            mapped: Instant::now(),
            _map: map,
            _in_use: in_use,
        })
    }

    /// How much there is.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The word at `at`.
    #[inline]
    pub(crate) fn word(&self, at: Address) -> Result<&AtomicU64> {
        self.words(at, 1).map(|words| &words[0])
    }

    /// The `count` words from `at` on.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] unless all of them are words of one segment, its first word excepted.
    #[inline]
    #[allow(clippy::cast_ptr_alignment)] // proven below
    pub(crate) fn words(&self, at: Address, count: usize) -> Result<&[AtomicU64]> {
        let bits = at.bits();
        // The number of words from the second on. What an address has below a word becomes its highest bits, so that
        // one comparison refuses what is misaligned, the first word (null among it), and what is past the end.
        let index = bits.wrapping_sub(WORD_BYTES as u64).rotate_right(WORD_BYTES.trailing_zeros());
        let from_base = if count as u64 <= self.alone && index <= self.alone - count as u64 {
            bits
        } else {
            let (segment, offset) = (u64::from(at.segment()), at.offset());
            let bytes = (count as u64).saturating_mul(WORD_BYTES as u64);
            let inside = bytes <= self.limit
                && offset.wrapping_sub(WORD_BYTES as u64) <= self.limit - bytes
                && segment < self.segments
                && bits.is_multiple_of(WORD_BYTES as u64);
            if !inside {
                return Err(self.geometry.invalid(at));
            }
            (segment << self.stride_log2) + offset
        };
        // SAFETY: all of them lie inside the mapping (the invariant above): in the first case by `index`, as `bits` is
        // a multiple of 8 and `bits + 8 * count` at most the size of segment 0, which begins at `base`; in the second by
        // `segment < segments` and `8 <= offset`, `offset + bytes <= segment_bytes <= 1 << stride`. The base, the stride
        // and the offset are multiples of 8, so they are aligned for words; all-zero memory is a valid `AtomicU64`, and
        // every access is atomic.
        Ok(unsafe { std::slice::from_raw_parts(self.base.add(from_base as usize).cast(), count) })
    }

    /// Writes the first word of a segment, which no address reaches.
    #[allow(clippy::cast_ptr_alignment)] // segments begin at multiples of a power of two that is larger than a word
    pub(crate) fn set_first_word(&self, segment: u16, word: u64) {
        assert!(u64::from(segment) < self.segments);
        // SAFETY: the segment exists, so its first word lies inside the mapping, aligned; the access is atomic.
        let first = unsafe { &*self.base.add(usize::from(segment) << self.stride_log2).cast::<AtomicU64>() };
        first.store(word, Ordering::Release);
    }
}

/// Asks the processor to load the bytes of a value into its cache. A hint: it changes nothing but time.
#[inline]
pub(crate) fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for offset in (0..size_of_val(value)).step_by(CACHE_LINE_BYTES) {
            // SAFETY: a prefetch is allowed for any address: it neither faults nor counts as an access.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) };
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PointerFault;

    /// No power of two, so that there is something between segments.
    const BYTES: u64 = 40 * 1024;

    fn arena() -> Arena {
        Arena::new(Geometry::new(3, 2, BYTES).unwrap()).unwrap()
    }

    #[test]
    fn the_last_word_of_each_segment_is_its_own() {
        let arena = arena();
        for segment in 0..6 {
            let last = Address::new(segment, BYTES - 8);
            arena.word(last).unwrap().store(u64::from(segment) + 1, Ordering::Relaxed);
        }
        for segment in 0..6 {
            let last = Address::new(segment, BYTES - 8);
            let word = arena.word(last).unwrap().load(Ordering::Relaxed);
            assert_eq!(word, u64::from(segment) + 1);
        }
    }

    #[test]
    fn addresses_outside_are_refused_with_the_reason() {
        let arena = arena();
        let fault = |address, words| match arena.words(address, words) {
            Err(Error::InvalidPointer(found)) => Some(found.fault),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        };
        let past = Some(PointerFault::PastSegment { size_bytes: BYTES });
        assert_eq!(fault(Address::NULL, 1), Some(PointerFault::Null));
        assert_eq!(fault(Address::new(6, 64), 1), Some(PointerFault::NoSegment { segments: 6 }));
        assert_eq!(fault(Address::new(1, 65), 1), Some(PointerFault::Misaligned { align: 8 }));
        assert_eq!(fault(Address::new(1, 0), 1), past);
        assert_eq!(fault(Address::new(1, BYTES - 8), 2), past);
        assert_eq!(fault(Address::new(1, BYTES), 1), past);
        assert_eq!(fault(Address::new(1, 64), usize::MAX / 8), past);
        assert_eq!(fault(Address::new(1, 64), 1 << 61), past);
        assert_eq!(fault(Address::from_bits(u64::MAX), 1), Some(PointerFault::NoSegment { segments: 6 }));
        assert_eq!(fault(Address::new(1, BYTES - 16), 2), None);
    }

    #[test]
    fn a_segment_alone_refuses_the_same() {
        let alone = Arena::new(Geometry::new(1, 1, BYTES).unwrap()).unwrap();
        let one_of_two = Arena::new(Geometry::new(1, 2, BYTES).unwrap()).unwrap();
        for offset in (0..96).chain(BYTES - 96..BYTES + 96) {
            for count in (0..8).chain([5119, 5120, 1 << 61, usize::MAX]) {
                let at = Address::new(0, offset);
                let (found, other) = (alone.words(at, count), one_of_two.words(at, count));
                assert_eq!(found.is_ok(), other.is_ok(), "{count} words at {at}");
                if let Ok(words) = found {
                    assert_eq!(words.as_ptr() as usize - alone.base as usize, offset as usize);
                    assert_eq!(words.len(), count);
                }
            }
        }
        assert!(alone.words(Address::new(1, 64), 1).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bits_give_words_inside_or_an_error(bits: u64, count in 0_usize..64, alone: bool) {
            let segments = if alone { 1 } else { 2 };
            let arena = Arena::new(Geometry::new(1, segments, BYTES).unwrap()).unwrap();
            if let Ok(words) = arena.words(Address::from_bits(bits), count) {
                for word in words {
                    word.load(Ordering::Relaxed);
                }
            }
        }
    }
}
