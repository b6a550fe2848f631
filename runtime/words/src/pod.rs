//! `Pod`: plain values with a checked encoding.

use std::fmt::Debug;
use std::marker::PhantomData;

use crate::{Describer, fingerprint};

/// A plain value that far memory can hold: a fixed number of bytes without local pointers, and a checked decoding.
///
/// Implemented for the integers of fixed width, floats, `bool`, `char`, `RemotePtr` and arrays of these. `#[derive(Word)]` implements it for newtypes
/// and C-like enums. `usize` does not implement it: its size differs between machines.
///
/// The trait is safe to implement: the runtime relies only on the sizes, which it takes from the type itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a plain value in far memory",
    label = "not a plain value",
    note = "plain values are integers of fixed width, floats, `bool`, `char`, `RemotePtr<T>`, arrays of these, and types with `#[derive(Word)]`"
)]
pub trait Pod: Copy + Debug + Send + Sync + 'static {
    /// The type's part of a layout fingerprint.
    const FINGERPRINT: u64;

    /// Writes the value into the first `size_of::<Self>()` bytes of `out`.
    fn encode(self, out: &mut [u8]);

    /// Returns the value that the first `size_of::<Self>()` bytes encode, or `None` if no value has these bits.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// Writes the type's description, for programs that do not have the type.
    #[doc(hidden)]
    fn describe(describer: &mut Describer) {
        describer.plain::<Self>();
    }
}

macro_rules! plain_bits {
    ($($ty:ident)*) => {$(
        impl Pod for $ty {
            const FINGERPRINT: u64 = fingerprint::name(stringify!($ty));
            #[inline]
            fn encode(self, out: &mut [u8]) {
                out[..size_of::<Self>()].copy_from_slice(bytemuck::bytes_of(&self));
            }
            #[inline]
            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(bytemuck::pod_read_unaligned(&bytes[..size_of::<Self>()]))
            }
        }
    )*};
}
plain_bits!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl Pod for bool {
    const FINGERPRINT: u64 = fingerprint::name("bool");
    #[inline]
    fn encode(self, out: &mut [u8]) {
        u8::from(self).encode(out);
    }
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        bytemuck::checked::try_pod_read_unaligned(&bytes[..1]).ok()
    }
}

impl Pod for char {
    const FINGERPRINT: u64 = fingerprint::name("char");
    #[inline]
    fn encode(self, out: &mut [u8]) {
        u32::from(self).encode(out);
    }
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        u32::decode(bytes).and_then(char::from_u32)
    }
}

impl<T: Pod, const N: usize> Pod for [T; N] {
    const FINGERPRINT: u64 = fingerprint::array(T::FINGERPRINT, N);
    #[inline]
    fn encode(self, out: &mut [u8]) {
        for (index, value) in self.into_iter().enumerate() {
            value.encode(&mut out[index * size_of::<T>()..]);
        }
    }
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        crate::try_array(|index| T::decode(&bytes[index * size_of::<T>()..]).ok_or(())).ok()
    }
    fn describe(describer: &mut Describer) {
        describer.array(N, size_of::<T>(), T::describe);
    }
}

impl<T: Send + Sync + 'static> Pod for PhantomData<T> {
    const FINGERPRINT: u64 = fingerprint::name("PhantomData");
    #[inline]
    fn encode(self, _: &mut [u8]) {}
    #[inline]
    fn decode(_: &[u8]) -> Option<Self> {
        Some(PhantomData)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_without_a_value_are_refused() {
        assert_eq!(bool::decode(&[2]), None);
        assert_eq!(char::decode(&0xd800_u32.to_ne_bytes()), None);
        assert_eq!(<[bool; 3]>::decode(&[1, 0, 7]), None);
    }

    proptest::proptest! {
        #[test]
        fn every_value_survives_encoding(a: [u16; 5], b: i128, c: char, d: bool) {
            let mut bytes = [0xa5; 64];
            a.encode(&mut bytes);
            proptest::prop_assert_eq!(<[u16; 5]>::decode(&bytes), Some(a));
            b.encode(&mut bytes);
            proptest::prop_assert_eq!(i128::decode(&bytes), Some(b));
            c.encode(&mut bytes);
            proptest::prop_assert_eq!(char::decode(&bytes), Some(c));
            d.encode(&mut bytes);
            proptest::prop_assert_eq!(bool::decode(&bytes), Some(d));
        }
    }
}
