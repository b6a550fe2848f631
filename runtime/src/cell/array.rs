//! Arrays: `[F; N]` fields.
//!
//! The macro declares a field of type `[F; N]` as an [`Array`]. Its elements can be any field, and each has a place.

use std::marker::PhantomData;

use super::Place;
use farfield_words::Address;
use farfield_words::{DefaultInit, Describer, Field, FrozenField, fingerprint};

/// The type that `#[remote]` substitutes for a field of type `[F; N]`: `N` fields, in order.
///
/// Its [`Place`] returns the place of each element with [`at`](Place::at). In `Init`, snapshots and handles it is an ordinary array.
#[repr(transparent)]
pub struct Array<F: Field, const N: usize>([F::Cell; N], PhantomData<fn() -> F>);

impl<F: Field, const N: usize> Field for Array<F, N> {
    type Cell = [F::Cell; N];
    type Init = [F::Init; N];
    type Value<'g> = [F::Value<'g>; N];
    type Stored = [F::Stored; N];
    type Kept<'a> = [F::Kept<'a>; N];

    const FINGERPRINT: u64 = {
        assert!(F::TAIL_STRIDE == 0, "an array's elements can not have a tail");
        fingerprint::array(F::FINGERPRINT, N)
    };
    const FROZEN: bool = F::FROZEN && N > 0;

    fn describe(describer: &mut Describer) {
        describer.array(N, size_of::<F::Cell>(), F::describe);
    }

    #[inline]
    fn encode(init: [F::Init; N], out: &mut [u8]) {
        for (index, element) in init.into_iter().enumerate() {
            F::encode(element, &mut out[index * size_of::<F::Cell>()..]);
        }
    }
    #[inline]
    fn decode<'g>(at: Address, bytes: &[u8]) -> farfield_words::Result<[F::Value<'g>; N]> {
        farfield_words::try_array(|index| {
            let offset = index * size_of::<F::Cell>();
            F::decode(at.add(offset as u64), &bytes[offset..])
        })
    }
    #[inline]
    fn store(at: Address, bytes: &[u8]) -> farfield_words::Result<[F::Stored; N]> {
        farfield_words::try_array(|index| {
            let offset = index * size_of::<F::Cell>();
            F::store(at.add(offset as u64), &bytes[offset..])
        })
    }
    #[inline]
    fn kept(stored: &[F::Stored; N]) -> [F::Kept<'_>; N] {
        std::array::from_fn(|index| F::kept(&stored[index]))
    }
}

impl<F: FrozenField, const N: usize> FrozenField for Array<F, N> {}

impl<F: DefaultInit, const N: usize> DefaultInit for Array<F, N> {
    fn default_init() -> [F::Init; N] {
        std::array::from_fn(|_| F::default_init())
    }
}

impl<'g, F: Field, const N: usize> Place<'g, Array<F, N>> {
    /// The number of elements.
    pub const LEN: usize = N;

    /// Returns the place of element `index`, or `None` past the end. No round trip.
    #[inline]
    pub fn get(self, index: usize) -> Option<Place<'g, F>> {
        (index < N).then(|| Place::at_address(self.address().add((index * size_of::<F::Cell>()) as u64)))
    }

    /// Returns the place of element `index`. No round trip.
    ///
    /// # Panics
    /// If `index` is `N` or more, like indexing. [`get`](Self::get) does not panic.
    #[inline]
    pub fn at(self, index: usize) -> Place<'g, F> {
        self.get(index).unwrap_or_else(|| panic!("index {index} of an array of {N}"))
    }
}
