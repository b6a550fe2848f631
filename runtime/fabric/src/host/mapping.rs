//! Mappings of shared memory on huge pages.
//!
//! An access to a page that is in no translation buffer takes longer than one that is in no cache: of a random word of 512 MiB, 250 ns on pages of 4 KiB and
//! 165 on pages of 2 MiB. Anonymous memory gets huge pages by advice. Files in memory do not on most systems, where `shmem_enabled` is `never`; but since version
//! 6.1 Linux makes a huge page of a range at once, if a process asks for it (`MADV_COLLAPSE`), whatever that setting is.
//!
//! Two things are needed: [`take_huge_pages`] makes the pages while the file is new and not yet allocated, so nothing is copied. And a process maps the file at
//! a multiple of their size ([`map_aligned`]), or its translations are of small pages all the same. Both affect speed only: where the system has no huge page
//! to give, ordinary pages take its place.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use memmap2::{MmapMut, MmapOptions};
use rustix::mm::{MapFlags, ProtFlags};

/// The size of the huge pages that are asked for.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Maps the first `bytes` bytes of a file at a multiple of the size of a huge page. Returns the mapping, and its first byte of the file; the rest of the mapping,
/// less than a huge page before and after the file's bytes, is not used.
///
/// # Safety
/// The file has at least `bytes` bytes as long as the mapping exists, and all accesses to them, of this process, are atomic.
pub(super) unsafe fn map_aligned(file: &File, bytes: usize) -> io::Result<(MmapMut, NonNull<u8>)> {
    let length = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let mut map = MmapOptions::new().len(length).no_reserve_swap().map_anon()?;
    let start = map.as_mut_ptr();
    let start = start.wrapping_add(start.addr().next_multiple_of(HUGE_PAGE_BYTES) - start.addr());
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: the range is inside of `map`, which has `HUGE_PAGE_BYTES` more than `bytes`, and which this function has made, so nothing refers to what is
    // replaced. `map` unmaps all of its range when it is dropped, the file included. `start` is a multiple of a page. The file has the bytes: the
    // function's contract.
    let mapped =
        unsafe { rustix::mm::mmap(start.cast(), bytes, access, flags | MapFlags::NORESERVE, file, 0) }?;
    // The pointer of `map`, which has its provenance.
    debug_assert_eq!(mapped.cast(), start, "a fixed mapping is where it was asked for");
    let base = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((map, base))
}

/// Allocates as many huge pages as fit into the given ranges of a new file, which has `bytes` bytes: as many as the system gives.
pub(super) fn take_huge_pages(file: &File, bytes: u64, ranges: impl Iterator<Item = (u64, u64)>) {
    let page = HUGE_PAGE_BYTES as u64;
    let whole = ranges.filter_map(|(start, length)| {
        let (from, to) = (start.next_multiple_of(page), (start + length) / page * page);
        (from < to && to <= bytes).then_some((from as usize, to as usize))
    });
    let mut whole = whole.peekable();
    let (true, Ok(bytes)) = (whole.peek().is_some(), usize::try_from(bytes)) else { return };
    // SAFETY: no other process has the file yet, and this one does not change its size before the mapping is dropped at the end of this function. What
    // is read of it is not used.
    let Ok((_map, base)) = (unsafe { map_aligned(file, bytes) }) else { return };
    for (from, to) in whole {
        for first in (from..to).step_by(HUGE_PAGE_BYTES) {
            // A range without any page is not made a huge one, so its first page is touched.
            // SAFETY: `first` is below `bytes`, so inside of the mapping of the file, which has as many. Nobody else accesses it.
            unsafe { base.add(first).read_volatile() };
        }
        // SAFETY: the range is inside of the mapping, at multiples of a page. The advice does not change what it contains.
        let refused =
            unsafe { libc::madvise(base.add(from).as_ptr().cast(), to - from, libc::MADV_COLLAPSE) };
        if refused != 0 {
            // No such advice, or no huge page: there is none for the rest either.
            return;
        }
    }
}
