//! Prefetching.

const CACHE_LINE_BYTES: usize = 64;

/// Asks the processor to load the bytes of a value into its cache. A hint: it changes nothing but time.
///
/// For data of this process: what a program looks up next in a table that is larger than the cache, so that several look-ups wait for memory at the same time. For objects in far memory,
/// chains have a hint of this name.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    // A value that begins within a line may end in one more.
    let bytes = size_of_val(value);
    let last = bytes.checked_sub(1).filter(|last| last % CACHE_LINE_BYTES > 0);
    for offset in (0..bytes).step_by(CACHE_LINE_BYTES).chain(last) {
        prefetch_line(start.wrapping_add(offset));
    }
}

/// Asks the processor to load the cache line of an address, which may be any one. As [`prefetch`], for a part of something to which there is no reference: of what a lock protects.
#[inline]
pub fn prefetch_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of x86-64, and a prefetch is allowed for any address: it does not fault, and reads nothing that the program
        // can tell.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
