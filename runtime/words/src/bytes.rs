//! `Bytes`: values as byte strings.

use crate::{Word, fingerprint};

/// A value that is stored as a byte string: a [`Word`], a `Vec<u8>` or a `String`.
///
/// Structures whose keys and values have any length are generic over it. A function takes the [borrowed](Self::Borrowed) form: `&u64`, `&[u8]`, `&str`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not stored as a byte string",
    label = "neither a word nor a byte string",
    note = "byte strings are `Vec<u8>`, `String`, and every word of at most 8 bytes: integers, floats, `bool`, `char`, types with `#[derive(Word)]`"
)]
pub trait Bytes: Sized + 'static {
    /// The form in which functions take such a value.
    type Borrowed: ?Sized;
    /// [`InWords`] if a word has any such value, [`InStrings`] if that takes a byte string: by it a structure chooses where it stores them.
    type Form;
    /// The number of bytes, if it is the same for all values.
    const LENGTH: Option<usize>;
    /// Differs from that of every type that is stored otherwise.
    const FINGERPRINT: u64;

    /// Returns the bytes of a value.
    fn bytes(value: &Self::Borrowed) -> impl AsRef<[u8]>;

    /// Returns the value of some bytes, or `None` if no value has these.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// The [form](Bytes::Form) of values that fit into a word.
#[derive(Debug)]
pub enum InWords {}

/// The [form](Bytes::Form) of values of any length.
#[derive(Debug)]
pub enum InStrings {}

impl<T: Word> Bytes for T {
    type Borrowed = T;
    type Form = InWords;
    const LENGTH: Option<usize> = Some(size_of::<u64>());
    const FINGERPRINT: u64 = fingerprint::wrap("word", T::FINGERPRINT);

    #[inline]
    fn bytes(value: &T) -> impl AsRef<[u8]> {
        value.to_word().to_le_bytes()
    }
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Option<T> {
        T::from_word(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

impl Bytes for Vec<u8> {
    type Borrowed = [u8];
    type Form = InStrings;
    const LENGTH: Option<usize> = None;
    const FINGERPRINT: u64 = fingerprint::name("bytes");

    #[inline]
    fn bytes(value: &[u8]) -> impl AsRef<[u8]> {
        value
    }
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl Bytes for String {
    type Borrowed = str;
    type Form = InStrings;
    const LENGTH: Option<usize> = None;
    const FINGERPRINT: u64 = fingerprint::name("text");

    #[inline]
    fn bytes(value: &str) -> impl AsRef<[u8]> {
        value
    }
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept<T: Bytes + PartialEq + std::fmt::Debug>(value: T, borrowed: &T::Borrowed) {
        let bytes = T::bytes(borrowed).as_ref().to_vec();
        assert!(T::LENGTH.is_none_or(|length| length == bytes.len()));
        assert_eq!(T::from_bytes(&bytes), Some(value));
    }

    #[test]
    fn values_are_kept_and_bytes_of_no_value_are_none() {
        kept(u64::MAX, &u64::MAX);
        kept(-1_i32, &-1);
        kept(true, &true);
        kept(vec![0_u8, 255], &[0, 255]);
        kept(Vec::<u8>::new(), &[]);
        kept("Ada".to_owned(), "Ada");
        assert_eq!(bool::from_bytes(&[2, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(u64::from_bytes(&[1]), None);
        assert_eq!(String::from_bytes(&[0xff]), None);
        assert_ne!(<u64 as Bytes>::FINGERPRINT, <i64 as Bytes>::FINGERPRINT);
    }
}
