//! Keys in order.

use farfield::Bytes;

/// A key of an ordered structure: a value with bytes that are in the order of the values. Integers are in their numerical order, byte strings and strings in that of their
/// bytes.
pub trait Key: Bytes {
    /// Returns bytes whose lexicographic order is the order of the keys. All keys of a type have as many, or else they are those of [`Bytes`].
    fn ordered(key: &Self::Borrowed) -> impl AsRef<[u8]>;

    /// Returns the form in which functions take the key.
    fn as_borrowed(&self) -> &Self::Borrowed;

    /// Returns the key with these ordered bytes, or `None` if no key has them.
    fn from_ordered(bytes: &[u8]) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ident, $word:ident, $smallest:expr;)*) => {$(
        #[allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)] // the bits are what counts
        impl Key for $integer {
            #[inline]
            fn ordered(key: &Self) -> impl AsRef<[u8]> {
                // The smallest one becomes 0.
                u64::from(key.wrapping_sub($smallest) as $word).to_be_bytes()
            }
            #[inline]
            fn as_borrowed(&self) -> &Self {
                self
            }
            #[inline]
            fn from_ordered(bytes: &[u8]) -> Option<Self> {
                let word = $word::try_from(u64::from_be_bytes(bytes.try_into().ok()?)).ok()?;
                Some((word as Self).wrapping_add($smallest))
            }
        }
    )*};
}

integers! {
    u8, u8, 0;
    u16, u16, 0;
    u32, u32, 0;
    u64, u64, 0;
    i8, u8, i8::MIN;
    i16, u16, i16::MIN;
    i32, u32, i32::MIN;
    i64, u64, i64::MIN;
}

macro_rules! strings {
    ($($string:ty),*) => {$(
        impl Key for $string {
            #[inline]
            fn ordered(key: &Self::Borrowed) -> impl AsRef<[u8]> {
                Self::bytes(key)
            }
            #[inline]
            fn as_borrowed(&self) -> &Self::Borrowed {
                self
            }
            #[inline]
            fn from_ordered(bytes: &[u8]) -> Option<Self> {
                Self::from_bytes(bytes)
            }
        }
    )*};
}

strings!(Vec<u8>, String);

#[cfg(test)]
mod tests {
    use super::*;

    fn in_order<K: Key<Borrowed = K> + Copy + PartialEq + std::fmt::Debug>(keys: &[K]) {
        let ordered: Vec<Vec<u8>> = keys.iter().map(|key| K::ordered(key).as_ref().to_vec()).collect();
        assert!(ordered.is_sorted_by(|left, right| left < right), "{ordered:?}");
        for (key, bytes) in keys.iter().zip(&ordered) {
            assert_eq!(K::from_ordered(bytes), Some(*key));
        }
        assert_eq!(K::from_ordered(&[0; 7]), None);
    }

    #[test]
    fn the_bytes_of_keys_are_in_their_order() {
        in_order(&[0_u8, 1, 127, 128, 255]);
        in_order(&[0_u64, 1, 255, 256, 1 << 40, u64::MAX]);
        in_order(&[i32::MIN, -256, -1, 0, 1, 255, 256, i32::MAX]);
        in_order(&[i64::MIN, -1, 0, i64::MAX]);
        assert_eq!(u16::from_ordered(&70_000_u64.to_be_bytes()), None);
        assert_eq!(String::from_ordered(&[0xff]), None);
    }
}
