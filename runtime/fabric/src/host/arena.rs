//! The arena: every segment of a cluster, in one mapping: anonymous for an embedded one, of a [sealed](super::SealedMemory) file for one in
//! shared memory.
//!
//! Segment `s` begins `s << stride` bytes into the mapping, where `1 << stride` is the segment size rounded up to a power of two. Pages that are
//! never touched cost address space only, so the rounding is free.
//!
//! Finding a word is on the path of every step of a pointer chase, where the cost is the *latency* from an address to
//! its word. In the segment in [view](Window) an address is a distance from a base as it stands, and one comparison proves it
//! valid: the processor predicts it, so the address itself costs nothing. With several segments and without a view, the segment's number is shifted
//! down and up again, 2 cycles, while the offset is added to `base`; the load adds the two.
//!
//! Huge pages are asked for: an access to a page that is in no translation buffer takes longer than one that is in no cache. With pages of 2 MiB the
//! buffers hold gigabytes. It is advice, which the system may ignore; it takes memory in larger pieces, too, so a segment of at least 2 MiB takes
//! at least 2 MiB. Shared memory needs more than advice: see [`mapping`](super::mapping).
//!
//! Invariants, which `Arena::mapped` establishes and no other code can break, since the fields are private and never changed:
//!
//! 1. From `base` on, which is aligned to pages, `_map` owns at least `segments << stride_log2` bytes of memory until the arena is dropped. The
//!    kernel keeps the size of a shared file, so no process can take the memory away.
//! 2. `segment_bytes <= 1 << stride_log2`, and both are multiples of a word: a [`Geometry`] is so by construction. `each` and `alone` follow
//!    from it.
//! 3. This process reaches the memory through `&AtomicU64` only: [`Arena::words`], [`Window::words`] and [`Arena::set_first_word`] are the only
//!    code that makes references of `base` (the futexes of `Arena::half` are for the system), and `_map` is never looked into. Other processes may write any bits at any time, which is what atomics allow.

use std::cell::Cell;
use std::fs::File;
use std::ptr::NonNull;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use memmap2::MmapMut;

#[cfg(target_os = "linux")]
use super::mapping::map_aligned;
#[cfg(target_os = "linux")]
use super::sealed::SealedMemory;
use crate::Contents;
use crate::error::{self, Error, Result};
use farfield_words::Address;
use farfield_words::WORD_BYTES;
use farfield_words::geometry::Geometry;

const ACTION: &str = "map far memory";
/// The size of the huge pages that are asked for. Smaller segments get ordinary pages.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// A thread's view of one segment, through which it finds a few words with the fewest instructions.
///
/// One comparison proves an address valid, and that it is one of the segment in view. Then the word is at a distance from the address that the segment
/// alone determines: nothing is computed of the address, so that a load in a chain of dependent loads waits for the load before it only. An address
/// in another segment moves the view there, by a call. So a traversal whose objects are in one of many segments takes the time of one in an only
/// segment. One that changes between segments takes some 1 ns more for each change, and 4 ns where the processor can't predict the changes: decision 008 has
/// the measurements. The last words of a segment are not in the view: [`Arena::words`] finds them.
///
/// Invariant: `end` is 0, or it is 15 (`MOST_WORDS - 1`) less than the words of a segment of `arena` but for its first; then `first` is the address of
/// the second word of a segment of `arena`, and `base` is that many bytes before this word's memory, modulo 2^64.
///
/// The fields of the fast path do not come first: the compiler would keep their common address in a register for the call of `move_to`.
#[repr(C)]
pub struct Window {
    /// Keeps the memory mapped.
    arena: Option<Arc<Arena>>,
    base: Cell<*const u8>,
    first: Cell<u64>,
    end: u64,
}

impl Window {
    /// The most words that a window finds at a time.
    pub const MOST_WORDS: usize = 16;

    /// Makes the view of no memory.
    pub const fn none() -> Self {
        Self { base: Cell::new(std::ptr::null()), first: Cell::new(0), end: 0, arena: None }
    }

    /// Makes the view of an arena.
    pub(super) fn of(arena: &Arc<Arena>) -> Self {
        let end = arena.each.saturating_sub(Self::MOST_WORDS as u64 - 1);
        let window = Self { end, arena: Some(Arc::clone(arena)), ..Self::none() };
        window.view(arena, 0);
        window
    }

    /// Returns the `count` words from `at` on, or `None` if the arena's segments have none there or too few: the arena may have a segment's last ones.
    ///
    /// # Panics
    /// If there are more than [`MOST_WORDS`](Self::MOST_WORDS).
    #[inline]
    #[allow(clippy::cast_ptr_alignment)] // proven below
    pub fn words(&self, at: Address, count: usize) -> Option<&[AtomicU64]> {
        assert!(count <= Self::MOST_WORDS);
        let base = if index_from(self.first.get(), at.bits()) < self.end {
            self.base.get()
        } else if self.arena.is_none() {
            // The view of no memory, on a fabric that takes time. (A test of `end` would load it into a register for the comparison above as well.)
            return None;
        } else {
            self.move_to(at)?
        };
        let first = base.wrapping_add(at.bits() as usize).cast::<AtomicU64>();
        // SAFETY: `at` is in view: the comparison has shown it, or `move_to`. So `end` is not 0, and the index is less than 2^61 - 1. Then the address is
        // 8 * index behind that of the segment's second word, of which `base` has the distance (the invariant), and the 16 words from there on are
        // words of that segment of the arena's. It is in the arena's mapping (the arena's invariants 1 and 2), of which `base` has the provenance,
        // which `arena` keeps, and which is accessed by atomics only (3). No mapping is at address 0.
        Some(unsafe {
            std::hint::assert_unchecked(!first.is_null());
            std::slice::from_raw_parts(first, count)
        })
    }

    /// Moves the view to the segment of an address, and returns the new base. `None` if the address is not one of the segment's words that a view has.
    #[cold]
    #[inline(never)]
    fn move_to(&self, at: Address) -> Option<*const u8> {
        let arena = self.arena.as_ref().filter(|arena| u64::from(at.segment()) < arena.segments)?;
        if index(at.offset()) >= self.end {
            return None;
        }
        Some(self.view(arena, at.segment()))
    }

    /// Moves the view to a segment of its arena, which must have it, and returns the new base.
    fn view(&self, arena: &Arena, segment: u16) -> *const u8 {
        let start = arena.base.as_ptr().wrapping_add((u64::from(segment) << arena.stride_log2) as usize);
        let base = start.wrapping_sub(Address::new(segment, 0).bits() as usize);
        self.first.set(Address::new(segment, WORD_BYTES as u64).bits());
        self.base.set(base);
        base
    }
}

/// Returns the index of the word at an offset among the words of a segment but for its first. The lowest three bits of the offset become the highest
/// bits, so that one comparison refuses misaligned offsets, the first word (including null), and offsets past the end.
#[inline]
fn index(offset: u64) -> u64 {
    index_from(WORD_BYTES as u64, offset)
}

/// The same of an address's bits, if `first` are those of the segment's second word: the index is larger than any if the address is in another segment.
#[inline]
fn index_from(first: u64, bits: u64) -> u64 {
    bits.wrapping_sub(first).rotate_right(WORD_BYTES.trailing_zeros())
}

/// The memory of all segments.
pub struct Arena {
    base: NonNull<u8>,
    segments: u64,
    /// log2 of the distance between segments, in bytes.
    stride_log2: u32,
    /// Words of a segment but for its first.
    each: u64,
    /// The same if there is one segment; 0 if there are several.
    alone: u64,
    geometry: Geometry,
    pub(super) mapped: Instant,
    /// Owns the memory behind `base`.
    _map: MmapMut,
    /// The lock that shows that shared memory is in use, held while it is mapped.
    _in_use: Option<File>,
}

// SAFETY: only `base` keeps the compiler from concluding this. A mapping belongs to the process, not to the thread that made it, and is unmapped
// once, by `_map`, on the thread that drops the arena (invariant 1).
unsafe impl Send for Arena {}
// SAFETY: `&self` gives access to the memory as `&AtomicU64` only (invariant 3), which is `Sync`; the fields themselves are never changed.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps new memory, all zero.
    pub fn new(geometry: Geometry) -> Result<Self> {
        Self::mapped(
            geometry,
            |bytes| {
                let mut map = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon()?;
                let base = NonNull::new(map.as_mut_ptr()).ok_or(std::io::ErrorKind::AddrNotAvailable)?;
                Ok((map, base))
            },
            None,
        )
    }

    /// Maps the memory of a file. `in_use` is held while it is mapped.
    ///
    /// # Errors
    /// Those of the system; also if the file has fewer bytes than the segments need.
    #[cfg(target_os = "linux")]
    pub fn shared(memory: &SealedMemory, in_use: File, geometry: Geometry) -> Result<Self> {
        if memory.bytes() < geometry.mapped_bytes() {
            let cause = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Error::from(error::System { action: ACTION, cause }));
        }
        // SAFETY: the file has the bytes that are mapped, by the check above, and keeps them as long as it is mapped, by the invariant of
        // `SealedMemory`: the kernel lets no process change its size. Concurrent writes of other processes are harmless, since all accesses of
        // this process are atomic (invariant 3).
        Self::mapped(geometry, |bytes| unsafe { map_aligned(memory.file(), bytes) }, Some(in_use))
    }

    /// Makes the arena of a mapping, which begins at the pointer or before, and of which as many bytes from there on as asked for are its own.
    fn mapped(
        geometry: Geometry,
        map: impl FnOnce(usize) -> std::io::Result<(MmapMut, NonNull<u8>)>,
        in_use: Option<File>,
    ) -> Result<Self> {
        let failed = |cause| Error::from(error::System { action: ACTION, cause });
        let bytes = usize::try_from(geometry.mapped_bytes())
            .map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        let (map, base) = map(bytes).map_err(failed)?;
        let before = base.addr().get().wrapping_sub(map.as_ptr().addr());
        if map.len().checked_sub(before).is_none_or(|length| length < bytes) {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        if geometry.segment_bytes() >= HUGE_PAGE_BYTES {
            // The advice affects speed only, so its failure is ignored.
            #[cfg(target_os = "linux")]
            drop(map.advise(memmap2::Advice::HugePage));
        }
        let each = geometry.segment_bytes() / WORD_BYTES as u64 - 1;
        Ok(Self {
            base,
            segments: u64::from(geometry.segments()),
            stride_log2: geometry.stride_log2(),
            each,
            alone: if geometry.segments() == 1 { each } else { 0 },
            geometry,
            mapped: Instant::now(),
            _map: map,
            _in_use: in_use,
        })
    }

    /// Returns the geometry of the memory.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the word at `at`.
    #[inline]
    pub fn word(&self, at: Address) -> Result<&AtomicU64> {
        self.words(at, 1).map(|words| &words[0])
    }

    /// Returns the `count` words from `at` on.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] unless all of them are words of one segment, its first word excepted.
    #[inline]
    #[allow(clippy::cast_ptr_alignment)] // proven below
    pub fn words(&self, at: Address, count: usize) -> Result<&[AtomicU64]> {
        let (bits, count_words) = (at.bits(), count as u64);
        let first = if count_words <= self.alone && index(bits) <= self.alone - count_words {
            // SAFETY: `index` is at most `alone`. For bits that are no multiple of 8, or below 8, it is 2^61 or more, and `alone` is less; so `bits`
            // is 8 * (index + 1), and `bits + 8 * count` at most 8 * (alone + 1): the size of the only segment, and of the mapping (invariant 1).
            // (Where there are several segments, `alone` and with it `count` are 0, and `bits` is 8.)
            unsafe { self.base.add(bits as usize) }
        } else {
            let (segment, offset) = (u64::from(at.segment()), at.offset());
            let inside = count_words <= self.each
                && index(offset) <= self.each - count_words
                && segment < self.segments;
            if !inside {
                return Err(self.geometry.invalid(at).into());
            }
            // SAFETY: as above, `offset` is a multiple of 8 and `offset + 8 * count` at most the size of a segment, and `segment < segments`.
            // A segment ends before the next begins (invariant 2), and the last before the mapping does (invariant 1).
            unsafe { self.base.add(offset as usize).add((segment << self.stride_log2) as usize) }
        };
        // SAFETY: the `count` words from `first` on are inside the mapping, as shown above, and begin at a multiple of 8 from `base`, which is
        // aligned to pages.
        // Any bits are a valid `AtomicU64`. The borrow of `self` keeps the memory mapped as long as the slice, and that all is accessed by atomics
        // is invariant 3.
        Ok(unsafe { std::slice::from_raw_parts(first.cast().as_ptr(), count) })
    }

    /// Puts the calling thread to sleep while a word has a value below 2^32, for `most` at most, until a process [wakes](Self::wake) it. It may return earlier, for no
    /// reason.
    #[cfg(target_os = "linux")]
    pub fn sleep_on(&self, at: Address, value: u32, most: std::time::Duration) {
        let most = rustix::thread::futex::Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        if let Ok(half) = self.half(at) {
            // The result does not matter: the caller looks again.
            let _ =
                rustix::thread::futex::wait(half, rustix::thread::futex::Flags::empty(), value, Some(&most));
        }
    }

    /// Wakes the threads of all processes that sleep on a word.
    #[cfg(target_os = "linux")]
    pub fn wake(&self, at: Address) {
        if let Ok(half) = self.half(at) {
            let _ = rustix::thread::futex::wake(half, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Returns the lower half of a word, by which the system knows it. Its address alone is used: this process does not access it as a half.
    #[cfg(target_os = "linux")]
    fn half(&self, at: Address) -> Result<&AtomicU32> {
        let whole = std::ptr::from_ref(self.word(at)?).cast::<AtomicU32>();
        // SAFETY: the half is inside the word, which is borrowed from `self`, and is aligned, as the word is. All accesses to it are atomic: this process
        // makes none but of the whole word (invariant 3), and the system one of this half.
        Ok(unsafe { &*whole.add(usize::from(cfg!(target_endian = "big"))) })
    }

    /// Writes the first word of a segment, which no address reaches.
    ///
    /// # Panics
    /// If there is no such segment.
    #[allow(clippy::cast_ptr_alignment)] // segments begin at multiples of a power of two that is larger than a word
    pub fn set_first_word(&self, segment: u16, word: u64) {
        assert!(u64::from(segment) < self.segments);
        // SAFETY: the assertion puts `segment << stride_log2` at least a segment, so a word, before the mapping's end (invariant 1), and it is a multiple
        // of a power of two that is larger than a word. It is borrowed from `self`, and accessed by an atomic (invariant 3).
        let first =
            unsafe { self.base.add(usize::from(segment) << self.stride_log2).cast::<AtomicU64>().as_ref() };
        first.store(word, Ordering::Release);
    }

    /// Writes the initial words of fresh segments, of which the first is segment 0 of its cluster if it `is_first`.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if one of them is outside its segment.
    pub fn format(&self, contents: &dyn Contents, is_first: bool) -> Result<()> {
        for segment in 0..self.geometry.segments() {
            for (offset, word) in contents.initial_words(is_first && segment == 0) {
                if offset == 0 {
                    self.set_first_word(segment as u16, word);
                } else {
                    self.word(Address::new(segment as u16, offset))?.store(word, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PointerFault;

    /// No power of two, so that there is a gap between segments.
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
    fn an_arena_of_one_segment_refuses_the_same_addresses() {
        let alone = Arena::new(Geometry::new(1, 1, BYTES).unwrap()).unwrap();
        let one_of_two = Arena::new(Geometry::new(1, 2, BYTES).unwrap()).unwrap();
        for offset in (0..96).chain(BYTES - 96..BYTES + 96) {
            for count in (0..8).chain([5119, 5120, 1 << 61, usize::MAX]) {
                let at = Address::new(0, offset);
                let (found, other) = (alone.words(at, count), one_of_two.words(at, count));
                assert_eq!(found.is_ok(), other.is_ok(), "{count} words at {at}");
                if let Ok(words) = found {
                    assert_eq!(words.as_ptr().addr() - alone.base.addr().get(), offset as usize);
                    assert_eq!(words.len(), count);
                }
            }
        }
        assert!(alone.words(Address::new(1, 64), 1).is_err());
    }

    /// Returns the range of the addressable words of an address's segment, in bytes from the arena's start.
    fn bounds(arena: &Arena, at: Address) -> std::ops::Range<usize> {
        let start = usize::from(at.segment()) << arena.stride_log2;
        start + WORD_BYTES..start + BYTES as usize
    }

    /// Asserts that words begin at their address and end inside the segment.
    fn are_inside(arena: &Arena, at: Address, words: &[AtomicU64]) {
        let range = words.as_ptr_range();
        let [start, end] = [range.start, range.end].map(|pointer| pointer.addr() - arena.base.addr().get());
        let bounds = bounds(arena, at);
        assert!(bounds.start <= start && end <= bounds.end, "{start}..{end} of {bounds:?}, at {at}");
        assert!(end as u64 <= arena.geometry.mapped_bytes());
        assert_eq!(start, bounds.start - WORD_BYTES + at.offset() as usize);
        assert!(range.start.is_aligned());
        for word in words {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_window_has_the_words_of_each_segment_but_for_the_last() {
        for segments in [1, 3] {
            let arena = Arc::new(Arena::new(Geometry::new(1, segments, BYTES).unwrap()).unwrap());
            let window = Window::of(&arena);
            for segment in 0..segments as u16 {
                let last = |words: u64| Address::new(segment, BYTES - 8 * words);
                assert!(window.words(Address::new(segment, 8), 1).is_some());
                assert!(window.words(last(16), 16).is_some());
                assert!(window.words(last(15), 15).is_none() && arena.words(last(15), 15).is_ok());
            }
            assert!(window.words(Address::new(segments as u16, 8), 1).is_none());
        }
        assert!(Window::none().words(Address::new(0, 8), 0).is_none());
    }

    #[test]
    #[should_panic(expected = "count <= Self::MOST_WORDS")]
    fn a_window_finds_few_words() {
        let _ = Window::of(&Arc::new(arena())).words(Address::new(0, 64), Window::MOST_WORDS + 1);
    }

    #[test]
    fn a_window_keeps_the_memory_mapped() {
        let arena = Arc::new(arena());
        let (window, weak) = (Window::of(&arena), Arc::downgrade(&arena));
        drop(arena);
        window.words(Address::new(5, 64), 1).unwrap()[0].store(1, Ordering::Relaxed);
        drop(window);
        assert!(weak.upgrade().is_none());
    }

    /// Returns a line of what the kernel lists of the mapping with an address: the one that begins with a name.
    #[cfg(target_os = "linux")]
    fn listed(base: NonNull<u8>, name: &str) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bound = |text| usize::from_str_radix(text, 16).ok();
            let range = range.and_then(|(start, end)| Some(bound(start)?..bound(end)?));
            !range.is_some_and(|range| range.contains(&base.addr().get()))
        });
        lines.find(|line| line.starts_with(name)).unwrap().to_owned()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn segments_that_can_have_huge_pages_ask_for_them() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return crate::skip::skip("hugepages", "the kernel has none");
        }
        let asks = |arena: &Arena| listed(arena.base, "VmFlags:").split(' ').any(|flag| flag == "hg");
        let large = Geometry::new(1, 2, HUGE_PAGE_BYTES).unwrap();
        assert!(asks(&Arena::new(large).unwrap()));
        assert!(!asks(&arena()));
        let bytes = large.mapped_bytes();
        let memory = SealedMemory::new("farfield-test", bytes, std::iter::empty()).unwrap();
        let in_use = File::open("/dev/null").unwrap();
        assert!(asks(&Arena::shared(&memory, in_use, large).unwrap()), "shared memory does, too");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn shared_memory_is_on_huge_pages() {
        // No multiple of a huge page, so that the last one of each segment has small pages.
        let geometry = Geometry::new(1, 3, 2 * HUGE_PAGE_BYTES + BYTES).unwrap();
        let segments = (0..3).map(|segment| (segment << geometry.stride_log2(), geometry.segment_bytes()));
        let memory = SealedMemory::new("farfield-test", geometry.mapped_bytes(), segments).unwrap();
        let arenas =
            [0; 2].map(|_| Arena::shared(&memory, File::open("/dev/null").unwrap(), geometry).unwrap());
        for arena in &arenas {
            assert!(arena.base.addr().get().is_multiple_of(HUGE_PAGE_BYTES as usize));
            for (segment, offset) in (0..3).flat_map(|segment| {
                (8..geometry.segment_bytes()).step_by(4096).map(move |offset| (segment, offset))
            }) {
                let word = arena.word(Address::new(segment, offset)).unwrap();
                word.fetch_add(offset, Ordering::Relaxed);
            }
        }
        let last = arenas[0].word(Address::new(2, 4096 + 8)).unwrap();
        assert_eq!(last.load(Ordering::Relaxed), 2 * (4096 + 8), "both map the same memory");
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let version: Vec<u32> =
            release.split(['.', '-']).map_while(|part| part.parse().ok()).take(2).collect();
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        if version < vec![6, 1] || setting.is_ok_and(|setting| setting.contains("[deny]")) {
            return crate::skip::skip("hugepages", "the kernel makes none of shared memory");
        }
        for arena in &arenas {
            let huge = listed(arena.base, "ShmemPmdMapped:");
            assert_eq!(huge.split_whitespace().nth(1), Some("12288"), "two of each segment: {huge}");
        }
    }

    /// The memory stays mapped while a thread has a share in the arena.
    #[test]
    fn the_memory_stays_mapped_until_the_last_thread_drops_it() {
        let arena = std::sync::Arc::new(arena());
        let (weak, at) = (std::sync::Arc::downgrade(&arena), Address::new(5, BYTES - 8));
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(5));
        let threads = [0; 4].map(|_| {
            let (arena, barrier) = (std::sync::Arc::clone(&arena), std::sync::Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                for _ in 0..1000 {
                    arena.word(at).unwrap().fetch_add(1, Ordering::Relaxed);
                }
                arena.word(at).unwrap().load(Ordering::Relaxed)
            })
        });
        drop(arena);
        barrier.wait();
        let most = threads.map(|thread| thread.join().unwrap()).into_iter().max();
        assert_eq!(most, Some(4000));
        assert!(weak.upgrade().is_none(), "it is unmapped then");
    }

    /// A mapping that is smaller than its segments is refused.
    #[test]
    fn a_mapping_that_is_too_small_is_refused() {
        for before in [0, 4096, 8192] {
            let small = |bytes: usize| {
                let mut map = memmap2::MmapOptions::new().len(bytes + before - 1).map_anon()?;
                let base = NonNull::new(map.as_mut_ptr()).unwrap();
                // SAFETY: the mapping has more bytes.
                Ok((map, unsafe { base.add(before) }))
            };
            let made = Arena::mapped(Geometry::new(3, 2, BYTES).unwrap(), small, None);
            assert!(matches!(made, Err(Error::System(_))), "{before}");
        }
    }

    /// Addresses near the boundaries of segments, and arbitrary ones.
    fn bits() -> impl proptest::strategy::Strategy<Value = u64> {
        use proptest::prelude::*;
        let edges = prop::sample::select(vec![0, 8, BYTES, BYTES.next_power_of_two(), 1 << 47]);
        let near = (0_u16..4, edges, -16_i64..17).prop_map(|(segment, edge, by)| {
            Address::new(segment, 0).bits().wrapping_add(edge).wrapping_add_signed(by)
        });
        prop_oneof![any::<u64>(), near]
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]
        #[test]
        fn any_bits_give_words_inside_or_an_error(
            bits in bits(),
            before in bits(),
            count in proptest::prop_oneof![0_usize..6, 5100_usize..5130, proptest::prelude::any::<usize>()],
            alone: bool,
        ) {
            let segments = if alone { 1 } else { 3 };
            let arena = Arena::new(Geometry::new(1, segments, BYTES).unwrap()).unwrap();
            let at = Address::from_bits(bits);
            if let Ok(words) = arena.words(at, count) {
                assert_eq!(words.len(), count);
                are_inside(&arena, at, words);
            }
            let (arena, count) = (Arc::new(arena), count % (Window::MOST_WORDS + 1));
            let window = Window::of(&arena);
            // Moves the view to any segment, or leaves it.
            let _ = window.words(Address::from_bits(before), 0);
            if let Some(words) = window.words(at, count) {
                let found = arena.words(at, count).unwrap();
                assert_eq!((words.as_ptr(), words.len()), (found.as_ptr(), found.len()));
            } else {
                assert!(arena.words(at, Window::MOST_WORDS).is_err());
            }
        }
    }
}
