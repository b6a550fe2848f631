//! `Tail<F>`: an array whose length is chosen when its object is allocated.

use std::fmt;
use std::ops::Range;

use super::Place;
use crate::error::{self, Error, Result};
use crate::io::operations::*;
use crate::pointer::Guard;
use crate::session::ComputeThread;
use farfield_words::Address;
use farfield_words::scratch::bytes;
use farfield_words::{Describer, Field, Pod, WORD_BYTES, fingerprint};

/// The last field of a struct whose objects have different lengths: a frozen length, and that many `F`.
///
/// It is built from a `Vec` of initial values, whose length becomes the tail's. The operations are methods of its [`Place`]. A snapshot contains a
/// [`TailRef`], which includes the length.
#[repr(C, align(8))]
pub struct Tail<F: Field> {
    length: u64,
    elements: [F::Cell; 0],
}

impl<F: Field> Tail<F> {
    const ELEMENTS_OFFSET: usize = std::mem::offset_of!(Self, elements);
}

impl<F: Field> Field for Tail<F> {
    type Cell = Self;
    type Init = Vec<F::Init>;
    type Value<'g> = TailRef<'g, F>;
    type Stored = TailRef<'static, F>;
    type Kept<'a> = TailRef<'static, F>;

    const FINGERPRINT: u64 = {
        assert!(F::TAIL_STRIDE == 0, "a tail's elements can not have tails");
        assert!(size_of::<F::Cell>() > 0, "a tail's elements need a size");
        fingerprint::wrap("Tail", F::FINGERPRINT)
    };
    const FROZEN: bool = true;
    const TAIL_STRIDE: usize = size_of::<F::Cell>();

    fn describe(describer: &mut Describer) {
        describer.tail(Self::ELEMENTS_OFFSET, size_of::<F::Cell>(), F::describe);
    }

    fn tail_bytes(init: &Vec<F::Init>) -> usize {
        init.len().saturating_mul(size_of::<F::Cell>())
    }

    fn encode(init: Vec<F::Init>, out: &mut [u8]) {
        Pod::encode(init.len() as u64, out);
        for (index, element) in init.into_iter().enumerate() {
            F::encode(element, &mut out[Self::ELEMENTS_OFFSET + index * size_of::<F::Cell>()..]);
        }
    }
    fn decode<'g>(at: Address, bytes: &[u8]) -> farfield_words::Result<Self::Value<'g>> {
        let length = <u64 as Pod>::decode(bytes).unwrap_or_default();
        Ok(TailRef { place: Place::at_address(at), length })
    }
    fn store(at: Address, bytes: &[u8]) -> farfield_words::Result<TailRef<'static, F>> {
        Self::decode(at, bytes)
    }
    fn kept(stored: &TailRef<'static, F>) -> TailRef<'static, F> {
        *stored
    }
}

impl<'g, F: Field> Place<'g, Tail<F>> {
    /// Returns the number of elements. One READ.
    pub async fn len(self, ct: &ComputeThread) -> Result<u64> {
        ct.read_word(self.address()).await
    }

    /// Returns the place of element `index`, without a bounds check: past the end there are other objects, or none. [`TailRef::get`] checks. No round
    /// trip.
    pub fn at(self, index: u64) -> Place<'g, F> {
        let offset = index.saturating_mul(size_of::<F::Cell>() as u64);
        Place::at_address(self.address().add(Tail::<F>::ELEMENTS_OFFSET as u64).add(offset))
    }
}

impl<'g, F: Field> Place<'g, Tail<F>> {
    /// Reads elements `range`, without a bounds check. One READ.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if they reach past the segment; [`Error::InvalidValue`] if the bits encode no value; [`Error::InvalidArgument`] for
    /// more than 64 MiB.
    pub async fn read(self, g: &'g Guard<'_>, range: Range<u64>) -> Result<Vec<F::Value<'g>>> {
        let count = range.end.saturating_sub(range.start) as usize;
        if count == 0 {
            return Ok(Vec::new());
        }
        let start = self.at(range.start).address();
        let within = (start.bits() % WORD_BYTES as u64) as usize;
        let span = within.saturating_add(count.saturating_mul(size_of::<F::Cell>()));
        let argument = |reason| {
            Error::from(error::InvalidArgument {
                argument: "range",
                value: format!("{range:?}").into(),
                reason,
            })
        };
        if span > MAX_READ_BYTES {
            return Err(argument("one READ reads at most 64 MiB"));
        }
        g.read_words(Address::from_bits(start.bits() - within as u64), span.div_ceil(WORD_BYTES), |words| {
            let bytes = &bytes(words)[within..];
            let mut elements = Vec::with_capacity(count);
            for offset in (0..count).map(|index| index * size_of::<F::Cell>()) {
                elements.push(F::decode(start.add(offset as u64), &bytes[offset..])?);
            }
            Ok(elements)
        })
        .await
    }
}

/// The largest READ of a tail, in bytes. It bounds the buffer if the length is corrupt.
const MAX_READ_BYTES: usize = 64 << 20;

/// A tail with its length: the value of a [`Tail`] in a snapshot or a handle.
pub struct TailRef<'g, F: Field> {
    place: Place<'g, Tail<F>>,
    length: u64,
}

impl<'g, F: Field> TailRef<'g, F> {
    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the place of element `index`, or `None` past the end. No round trip.
    pub fn get(&self, index: u64) -> Option<Place<'g, F>> {
        (index < self.length).then(|| self.place.at(index))
    }

    /// Returns the tail's place.
    pub fn place(&self) -> Place<'g, Tail<F>> {
        self.place
    }
}

impl<'g, F: Field> TailRef<'g, F> {
    /// Reads all elements. One READ.
    ///
    /// # Errors
    /// Those of [`Place::read`](Place#method.read).
    pub async fn read(&self, g: &'g Guard<'_>) -> Result<Vec<F::Value<'g>>> {
        self.place.read(g, 0..self.length).await
    }
}

impl<F: Field> Clone for TailRef<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: Field> Copy for TailRef<'_, F> {}
impl<F: Field> fmt::Debug for TailRef<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} elements at {}]", self.length, self.place.address())
    }
}
