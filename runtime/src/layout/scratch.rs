//! `Scratch<C>`: a buffer of words on the stack, as large as a layout.
//!
//! A generic type can not name `[u64; size_of::<C>() / 8]`, but a `MaybeUninit<C>` has just that size. The buffer is
//! filled and looked at in place and never moved while it holds something, because moving a `MaybeUninit` may drop the
//! bytes that are padding in `C`.

use std::mem::MaybeUninit;

use super::WORD_BYTES;

pub(crate) struct Scratch<C>(MaybeUninit<Aligned<C>>);

/// `C`, at least word-aligned and a whole number of words long.
#[repr(C, align(8))]
struct Aligned<C>(C);

impl<C> Scratch<C> {
    /// How many words it holds: those of `C`, rounded up.
    pub(crate) const WORDS: usize = size_of::<Aligned<C>>() / WORD_BYTES;

    #[inline]
    pub(crate) const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// The words, to be filled.
    #[inline]
    pub(crate) fn words(&mut self) -> &mut [MaybeUninit<u64>] {
        // SAFETY: `Aligned<C>` is aligned to 8 and its size is a multiple of its alignment, so this is a slice of
        // `WORDS` words inside one live allocation; `MaybeUninit` demands no initial value.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), Self::WORDS) }
    }
}

/// The bytes of initialised words.
#[inline]
pub(crate) fn bytes(words: &[u64]) -> &[u8] {
    bytemuck::cast_slice(words)
}
