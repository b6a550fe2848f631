//! `Word`: the values that an atomic cell can hold.

use crate::Pod;

/// A plain value of at most 8 bytes, held by an `Atomic` cell of one word.
///
/// Every atomic operation of the network moves 8 bytes. So a narrower value occupies a whole word: its bits are extended with zeros.
///
/// `#[derive(Word)]` implements it for newtypes around a word and for C-like enums.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not fit an atomic word",
    label = "not a word of at most 8 bytes",
    note = "an `Atomic` holds integers up to 64 bits, floats, `bool`, `char`, `RemotePtr<T>` or a type with `#[derive(Word)]`; keep something wider in a `Versioned<T>`"
)]
pub trait Word: Pod {
    /// Returns the word that holds this value.
    fn to_word(self) -> u64;

    /// Returns the value that a word holds, or `None` if no value has these bits.
    fn from_word(word: u64) -> Option<Self>;

    /// Returns an atomic's default value: zero, or the variant that stands for zero.
    fn initial() -> Self;
}

/// An integer that supports atomic addition.
pub trait Integer: Word + Ord {
    /// True if 64-bit addition of words is this type's addition, so that one FAA suffices.
    const WHOLE_WORD: bool;
    /// Addition that wraps around.
    #[must_use]
    fn wrapping_add(self, other: Self) -> Self;
    /// Subtraction that wraps around.
    #[must_use]
    fn wrapping_sub(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($ty:ident as $unsigned:ident),*) => {$(
        impl Word for $ty {
            #[inline]
            fn to_word(self) -> u64 {
                u64::from($unsigned::from_ne_bytes(self.to_ne_bytes()))
            }
            #[inline]
            fn from_word(word: u64) -> Option<Self> {
                // Fails for no word where the unsigned type is `u64` itself.
                #[allow(clippy::useless_conversion, irrefutable_let_patterns)]
                let bits = $unsigned::try_from(word).ok()?;
                Some(<$ty>::from_ne_bytes(bits.to_ne_bytes()))
            }
            #[inline]
            fn initial() -> Self {
                0
            }
        }
        impl Integer for $ty {
            const WHOLE_WORD: bool = size_of::<$ty>() == 8;
            #[inline]
            fn wrapping_add(self, other: Self) -> Self {
                <$ty>::wrapping_add(self, other)
            }
            #[inline]
            fn wrapping_sub(self, other: Self) -> Self {
                <$ty>::wrapping_sub(self, other)
            }
        }
    )*};
}

integers!(u8 as u8, u16 as u16, u32 as u32, u64 as u64, i8 as u8, i16 as u16, i32 as u32, i64 as u64);

macro_rules! through_bits {
    ($($ty:ident: $initial:expr, $to:expr, $from:expr;)*) => {$(
        impl Word for $ty {
            #[inline]
            fn to_word(self) -> u64 {
                u64::from($to(self))
            }
            #[inline]
            fn from_word(word: u64) -> Option<Self> {
                word.try_into().ok().and_then($from)
            }
            #[inline]
            fn initial() -> Self {
                $initial
            }
        }
    )*};
}

through_bits! {
    f32: 0.0, f32::to_bits, |bits| Some(f32::from_bits(bits));
    f64: 0.0, f64::to_bits, |bits| Some(f64::from_bits(bits));
    char: '\0', u32::from, char::from_u32;
    bool: false, u8::from, |bits: u8| (bits <= 1).then_some(bits == 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_numbers_leave_the_upper_bits_zero() {
        assert_eq!((-1_i32).to_word(), 0xffff_ffff);
        assert_eq!(i32::from_word(0xffff_ffff), Some(-1));
        assert_eq!(i32::from_word(u64::MAX), None);
    }

    #[test]
    fn a_word_without_a_value_is_refused() {
        assert_eq!(bool::from_word(2), None);
        assert_eq!(u8::from_word(256), None);
        assert_eq!(char::from_word(0xd800), None);
    }
}
