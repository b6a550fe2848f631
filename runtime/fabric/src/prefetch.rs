//! Prefetching.

#[cfg(all(target_arch = "x86_64", not(miri)))]
const CACHE_LINE_BYTES: usize = 64;

/// Asks the processor to load the bytes of a value into its cache. A hint: it changes nothing but time.
///
/// For data of this process: what a program looks up next in a table that is larger than the cache, so that several look-ups wait for memory at the same time. For objects in far memory,
/// chains have a hint of this name.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        // A value that begins within a line may end in one more.
        let bytes = size_of_val(value);
        let last = bytes.checked_sub(1).filter(|last| last % CACHE_LINE_BYTES > 0);
        for offset in (0..bytes).step_by(CACHE_LINE_BYTES).chain(last) {
            // SAFETY: the instruction is part of x86-64, and a prefetch is allowed for any address: it does not fault, and reads nothing that the program
            // can tell. The pointer is made without a claim that it stays inside an object (`wrapping_add`), though it does.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset)) };
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}
