//! Field groups: several fields of one object with one READ.
//!
//! `fetch!(g, node.{key, next})` makes the tuple of the fields' places and reads the smallest span of words that covers them. Places are addresses
//! plus constants, so after inlining the span's length is a constant.

use super::Place;
use crate::error::{self, Error, Result};
use crate::io::operations::*;
use crate::pointer::Guard;
use crate::session::ComputeThread;
use farfield_words::Address;
use farfield_words::scratch::bytes;
use farfield_words::{Field, WORD_BYTES};

/// A tuple of one to eight places that one READ can read.
pub trait FieldGroup<'g> {
    /// The tuple of their values, with the lifetime of the places.
    type Values;

    /// Returns the first byte and the length of the span that covers the places.
    #[doc(hidden)]
    fn span(&self) -> (Address, u64);

    /// Decodes the values from the bytes of the words from `first` on.
    #[doc(hidden)]
    fn decode(&self, first: Address, bytes: &[u8]) -> Result<Self::Values>;
}

/// The limit for the distance of two fields of one group, in bytes. Fields of one object are closer.
const MAX_SPAN_BYTES: u64 = 1 << 20;

/// Reads several fields of an object with one READ of the smallest span of words that covers them. `fetch!` calls it.
///
/// # Errors
/// [`Error::InvalidPointer`]; [`Error::InvalidValue`] if the bits of a field encode no value; [`Error::InvalidArgument`] if the fields are more than
/// 1 MiB apart.
#[doc(hidden)]
#[inline]
pub async fn fetch<'g, O, G: FieldGroup<'g>>(
    g: &'g Guard<'_>,
    object: O,
    fields: impl FnOnce(O) -> G,
) -> Result<G::Values> {
    let (ct, group): (&ComputeThread, G) = (g, fields(object));
    let (start, length) = group.span();
    if length > MAX_SPAN_BYTES {
        let value = format!("{length} bytes").into();
        return Err(Error::from(error::InvalidArgument {
            argument: "fetch!",
            value,
            reason: "the fields are too far apart",
        }));
    }
    let first = Address::from_bits(start.bits() / WORD_BYTES as u64 * WORD_BYTES as u64);
    let words = (start.bits() - first.bits() + length).div_ceil(WORD_BYTES as u64) as usize;
    ct.read_words(first, words, |words| group.decode(first, bytes(words))).await
}

macro_rules! field_groups {
    ($(($($field:ident $place:ident),+))*) => {$(
        impl<'g, $($field: Field),+> FieldGroup<'g> for ($(Place<'g, $field>,)+) {
            type Values = ($($field::Value<'g>,)+);

            #[inline]
            fn span(&self) -> (Address, u64) {
                let ($($place,)+) = self;
                let mut start = u64::MAX;
                let mut end = 0;
                $(
                    let at = $place.address().bits();
                    start = start.min(at);
                    end = end.max(at.saturating_add(size_of::<$field::Cell>() as u64));
                )+
                (Address::from_bits(start), end - start)
            }

            #[inline]
            fn decode(&self, first: Address, bytes: &[u8]) -> Result<Self::Values> {
                let ($($place,)+) = self;
                Ok(($({
                    let at = $place.address();
                    $field::decode(at, &bytes[(at.bits() - first.bits()) as usize..])?
                },)+))
            }
        }
    )*};
}
field_groups! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
    (A a, B b, C c, D d, E e, F f)
    (A a, B b, C c, D d, E e, F f, G g)
    (A a, B b, C c, D d, E e, F f, G g, H h)
}
