//! `Atomic<T>`: a word that threads change concurrently.

use std::marker::PhantomData;

use super::{Place, Read};
use crate::error::Result;
use crate::io::operations::*;
use crate::session::ComputeThread;
use farfield_words::Address;
use farfield_words::{DefaultInit, Describer, Field, Integer, Word, fingerprint, invalid_value};

/// A cell that threads read and change atomically. A field is declared as `Atomic<u64>`; the operations are methods of its [`Place`].
///
/// It takes 8 bytes for every `T`: the unit of atomic operations over the network.
#[repr(transparent)]
pub struct Atomic<T>(u64, PhantomData<fn() -> T>);

impl<T: Word> Field for Atomic<T> {
    type Cell = Self;
    type Init = T;
    type Value<'g> = T;
    type Stored = Place<'static, Self>;
    type Kept<'a> = Place<'static, Self>;

    const FINGERPRINT: u64 = fingerprint::wrap("Atomic", T::FINGERPRINT);
    const FROZEN: bool = false;

    fn describe(describer: &mut Describer) {
        describer.atomic(T::describe);
    }

    #[inline]
    fn encode(init: T, out: &mut [u8]) {
        farfield_words::Pod::encode(init.to_word(), out);
    }
    #[inline]
    fn decode<'g>(at: Address, bytes: &[u8]) -> farfield_words::Result<Self::Value<'g>> {
        from_word(at, <u64 as farfield_words::Pod>::decode(bytes).unwrap_or_default())
    }
    #[inline]
    fn store(at: Address, _: &[u8]) -> farfield_words::Result<Place<'static, Self>> {
        Ok(Place::from_address(at))
    }
    #[inline]
    fn kept(stored: &Place<'static, Self>) -> Place<'static, Self> {
        *stored
    }
}

impl<T: Word> DefaultInit for Atomic<T> {
    fn default_init() -> T {
        T::initial()
    }
}

#[inline]
fn from_word<T: Word>(at: Address, word: u64) -> farfield_words::Result<T> {
    T::from_word(word).ok_or_else(|| invalid_value::<T>(at))
}

/// Operations are sequentially consistent. The network executes `load`, `store`, `compare_exchange`, and `fetch_add` and `fetch_sub` of 64-bit
/// integers, in one round trip. The others are a load and a CAS, repeated until the CAS succeeds: two round trips without contention.
///
/// All fail with [`Error::InvalidPointer`](crate::Error::InvalidPointer) if the object is not in far memory. Those that return a value fail with
/// [`Error::InvalidValue`](crate::Error::InvalidValue) if the bits encode no `T`.
impl<'g, T: Word> Place<'g, Atomic<T>> {
    /// Returns the value. One round trip.
    #[inline]
    pub fn load(self, ct: &'g ComputeThread) -> Read<'g, Atomic<T>> {
        Read::new(self.address(), ct)
    }

    /// Replaces the value. One round trip.
    #[inline]
    pub async fn store(self, ct: &ComputeThread, value: T) -> Result<()> {
        ct.write_word(self.address(), value.to_word()).await
    }

    /// Replaces the value by `new` if it is `current`. Returns the previous value, as `Ok` if it was replaced. One round trip.
    #[inline]
    pub async fn compare_exchange(self, ct: &ComputeThread, current: T, new: T) -> Result<Result<T, T>> {
        let expected = current.to_word();
        let found = ct.compare_exchange_word(self.address(), expected, new.to_word()).await?;
        let old = from_word(self.address(), found)?;
        Ok(if found == expected { Ok(old) } else { Err(old) })
    }

    /// Replaces the value and returns the previous one. Two round trips, more under contention.
    pub async fn swap(self, ct: &ComputeThread, value: T) -> Result<T> {
        self.update(ct, |_| value).await
    }

    /// Replaces the value by `f(value)`; `None` leaves it. Returns the previous value, as `Ok` if it was replaced. `f` may be called several times.
    /// Two round trips, more under contention.
    pub async fn fetch_update(
        self,
        ct: &ComputeThread,
        mut f: impl FnMut(T) -> Option<T>,
    ) -> Result<Result<T, T>> {
        let at = self.address();
        let mut word = ct.read_word(at).await?;
        let mut backoff = ct.retry();
        loop {
            let current = from_word(at, word)?;
            let Some(new) = f(current) else { return Ok(Err(current)) };
            let found = ct.compare_exchange_word(at, word, new.to_word()).await?;
            if found == word {
                return Ok(Ok(current));
            }
            word = found;
            backoff.wait().await;
        }
    }

    async fn update(self, ct: &ComputeThread, mut f: impl FnMut(T) -> T) -> Result<T> {
        Ok(self.fetch_update(ct, |value| Some(f(value))).await?.unwrap_or_else(|value| value))
    }
}

impl<T: Integer> Place<'_, Atomic<T>> {
    /// Adds modulo 2 to the number of bits. Returns the previous value. One round trip for 64-bit integers, two for narrower ones.
    #[inline]
    pub async fn fetch_add(self, ct: &ComputeThread, addend: T) -> Result<T> {
        if T::WHOLE_WORD {
            return Ok(from_word(
                self.address(),
                ct.fetch_add_word(self.address(), addend.to_word()).await?,
            )?);
        }
        self.update(ct, |value| value.wrapping_add(addend)).await
    }

    /// Subtracts modulo 2 to the number of bits. Returns the previous value. One round trip for 64-bit integers, two for narrower ones.
    #[inline]
    pub async fn fetch_sub(self, ct: &ComputeThread, subtrahend: T) -> Result<T> {
        if T::WHOLE_WORD {
            let addend = subtrahend.to_word().wrapping_neg();
            return Ok(from_word(self.address(), ct.fetch_add_word(self.address(), addend).await?)?);
        }
        self.update(ct, |value| value.wrapping_sub(subtrahend)).await
    }

    /// Replaces the value by the maximum of itself and `other`. Returns the previous value. Two round trips; one if the value does not change.
    pub async fn fetch_max(self, ct: &ComputeThread, other: T) -> Result<T> {
        let changed = self.fetch_update(ct, |value| (other > value).then_some(other)).await?;
        Ok(changed.unwrap_or_else(|value| value))
    }

    /// Replaces the value by the minimum of itself and `other`. Returns the previous value. Two round trips; one if the value does not change.
    pub async fn fetch_min(self, ct: &ComputeThread, other: T) -> Result<T> {
        let changed = self.fetch_update(ct, |value| (other < value).then_some(other)).await?;
        Ok(changed.unwrap_or_else(|value| value))
    }
}

macro_rules! bitwise {
    ($($name:ident $trait:ident $op:tt $what:literal)*) => {
        impl<T: Word> Place<'_, Atomic<T>> {$(
            #[doc = concat!("Replaces the value by its bitwise ", $what, " with `other`. Returns the previous value. Two round trips.")]
            pub async fn $name(self, ct: &ComputeThread, other: T) -> Result<T>
            where
                T: std::ops::$trait<Output = T>,
            {
                self.update(ct, |value| value $op other).await
            }
        )*}
    };
}
bitwise! {
    fetch_and BitAnd & "and"
    fetch_or BitOr | "or"
    fetch_xor BitXor ^ "exclusive or"
}
