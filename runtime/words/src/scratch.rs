//! `Scratch<C>`: a buffer of words on the stack, as large as a layout.
//!
//! A generic type can not name `[u64; size_of::<C>() / 8]`, but a `MaybeUninit<C>` has just that size. The buffer is filled and read in place and
//! never moved while it holds words, because moving a `MaybeUninit` may drop the bytes that are padding in `C`.

use std::mem::{ManuallyDrop, MaybeUninit};

use crate::WORD_BYTES;

/// A buffer with the size of `C`. It never holds a value of `C`.
pub struct Scratch<C>(MaybeUninit<Aligned<C>>);

/// `C`, at least word-aligned and a whole number of words long.
#[repr(C, align(8))]
struct Aligned<C>(C);

impl<C> Default for Scratch<C> {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

impl<C> Scratch<C> {
    /// The number of its words: those of `C`, rounded up.
    pub const WORDS: usize = size_of::<Aligned<C>>() / WORD_BYTES;

    /// Makes an uninitialised buffer.
    #[inline]
    pub const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Returns the words, to be filled.
    #[inline]
    pub fn words(&mut self) -> &mut [MaybeUninit<u64>] {
        // SAFETY: `Aligned<C>` is aligned to 8 at least, and any type's size is a multiple of its alignment, so `WORDS` words are exactly the bytes of
        // `self.0`: one object, borrowed mutably for as long as the slice lives. `MaybeUninit` demands no initial value, so the slice may be made
        // for any contents of the buffer, and the caller may write anything to it: the buffer is never used as a `C`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), Self::WORDS) }
    }
}

/// A place for a value of type `V`, which before holds the words of a layout `C`, from which it is decoded.
///
/// Where the bytes of the value are those words, decoding is nothing: the compiler finds that each is copied to where it is.
///
/// Invariant: if `is_decoded`, `both.value` is initialised.
pub struct DecodedInPlace<C, V> {
    both: Both<C, V>,
    is_decoded: bool,
}

/// The buffer, or the value.
#[repr(C)]
union Both<C, V> {
    scratch: ManuallyDrop<Scratch<C>>,
    value: ManuallyDrop<MaybeUninit<V>>,
}

impl<C, V> Default for DecodedInPlace<C, V> {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

impl<C, V> DecodedInPlace<C, V> {
    /// Makes a place without a value.
    #[inline]
    pub const fn new() -> Self {
        Self { both: Both { value: ManuallyDrop::new(MaybeUninit::uninit()) }, is_decoded: false }
    }

    /// Decodes the value. `decode` gets as many words as the layout has, to fill and to read: what they contain at first is not specified. An earlier
    /// value is forgotten.
    ///
    /// # Errors
    /// Those of `decode`.
    #[inline(always)]
    #[allow(clippy::inline_always)] // or the value is copied
    pub fn decode<E>(
        &mut self,
        decode: impl FnOnce(&mut [MaybeUninit<u64>]) -> Result<V, E>,
    ) -> Result<(), E> {
        self.is_decoded = false;
        // SAFETY: any contents are a valid `Scratch`, which is uninitialised memory.
        let value = decode(unsafe { &mut self.both.scratch }.words())?;
        self.both.value = ManuallyDrop::new(MaybeUninit::new(value));
        self.is_decoded = true;
        Ok(())
    }

    /// Returns the value, if there is one. Then there is none.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    pub fn take(&mut self) -> Option<V> {
        // SAFETY: by the invariant the value is initialised. It is read once, since `is_decoded` is false from then on.
        std::mem::take(&mut self.is_decoded).then(|| unsafe { self.both.value.assume_init_read() })
    }
}

/// Copies words to the beginning of a buffer. Returns the copy.
///
/// # Panics
/// If the buffer is shorter.
#[inline]
pub fn copied<'a>(words: &[u64], into: &'a mut [MaybeUninit<u64>]) -> &'a [u64] {
    let into = &mut into[..words.len()];
    for (to, word) in into.iter_mut().zip(words) {
        to.write(*word);
    }
    // SAFETY: `into` is as long as `words`, so the loop has written each element of it. `MaybeUninit<u64>` has the layout of `u64`. The mutable borrow
    // of `into` lasts as long as the returned slice, so no code can make an element uninitialised again while it is read.
    unsafe { &*(std::ptr::from_ref::<[MaybeUninit<u64>]>(into) as *const [u64]) }
}

/// Returns the bytes of initialised words.
#[inline]
pub fn bytes(words: &[u64]) -> &[u8] {
    bytemuck::cast_slice(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_copied_to_the_beginning_of_a_longer_buffer() {
        let mut buffer = [const { MaybeUninit::uninit() }; 4];
        assert_eq!(copied(&[7, 8], &mut buffer), [7, 8]);
        assert_eq!(copied(&[1, 2, 3, 4], &mut buffer), [1, 2, 3, 4]);
        assert_eq!(copied(&[], &mut buffer), []);
    }

    #[test]
    fn a_value_is_decoded_in_the_place_of_its_words() {
        use std::rc::Rc;
        // As large as its words, larger, and smaller.
        let mut place = DecodedInPlace::<[u64; 2], [u64; 2]>::new();
        assert_eq!(place.take(), None);
        let both = place.decode(|words| Ok::<_, ()>([copied(&[7, 8], words)[0], words.len() as u64]));
        assert_eq!((both, place.take(), place.take()), (Ok(()), Some([7, 2]), None));
        let mut larger = DecodedInPlace::<u8, (u64, [Rc<u8>; 2])>::new();
        let shared = Rc::new(1);
        let decode = |words: &mut [MaybeUninit<u64>]| {
            Ok::<_, ()>((copied(&[9], words)[0], [Rc::clone(&shared), Rc::clone(&shared)]))
        };
        assert_eq!(larger.decode(decode), Ok(()));
        assert_eq!(larger.take().map(|(word, _)| word), Some(9));
        assert_eq!(Rc::strong_count(&shared), 1);
        let mut smaller = DecodedInPlace::<[u64; 3], u8>::new();
        assert_eq!(smaller.decode(|_| Ok::<_, ()>(5)), Ok(()));
        assert_eq!(smaller.decode(|words| Err::<u8, _>(words.len())), Err(3));
        assert_eq!(smaller.take(), None);
    }

    #[repr(C, align(64))]
    struct Wide([u64; 3]);

    #[repr(C)]
    struct Padded(u8, u32, u8);

    /// Fills every word of the buffer, between two words that must stay as they are, and reads each again.
    fn holds<C>(words: usize) {
        struct Fenced<C> {
            before: u64,
            scratch: Scratch<C>,
            after: u64,
        }
        assert_eq!(Scratch::<C>::WORDS, words);
        let mut fenced = Fenced { before: 1, scratch: Scratch::<C>::new(), after: 2 };
        let range = std::ptr::from_ref(&fenced.scratch).addr()
            ..std::ptr::from_ref(&fenced.scratch).addr() + size_of::<Scratch<C>>();
        for (number, word) in (10..).zip(fenced.scratch.words()) {
            word.write(number);
        }
        let found = fenced.scratch.words();
        assert_eq!(found.len(), words);
        assert!(found.as_ptr().is_aligned());
        assert_eq!(found.as_ptr_range().start.addr()..found.as_ptr_range().end.addr(), range);
        // SAFETY: all were written above.
        assert!((10..).zip(found).all(|(number, word)| unsafe { word.assume_init() } == number));
        assert_eq!((fenced.before, fenced.after), (1, 2));
    }

    #[test]
    fn a_buffer_is_all_words_of_its_type_and_no_more() {
        holds::<()>(0);
        holds::<u8>(1);
        holds::<[u8; 9]>(2);
        holds::<Padded>(2);
        holds::<u64>(1);
        holds::<u128>(2);
        holds::<[u64; 33]>(33);
        holds::<Wide>(8);
    }
}
