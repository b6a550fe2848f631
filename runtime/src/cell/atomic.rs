//! `Atomic<T>`: a word that threads change concurrently.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

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
pub(super) fn from_word<T: Word>(at: Address, word: u64) -> farfield_words::Result<T> {
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
    pub fn store<'t>(
        self,
        ct: &'t ComputeThread,
        value: T,
    ) -> impl Future<Output = Result<()>> + use<'t, 'g, T> {
        ct.write_word(self.address(), value.to_word())
    }

    /// Replaces the value by `new` if it is `current`. Returns the previous value, as `Ok` if it was replaced. One round trip.
    #[inline]
    pub fn compare_exchange<'t>(
        self,
        ct: &'t ComputeThread,
        current: T,
        new: T,
    ) -> impl Future<Output = Result<Result<T, T>>> + use<'t, 'g, T> {
        let (at, expected) = (self.address(), current.to_word());
        ct.compare_exchange_word(at, expected, new.to_word()).convert(move |found| {
            let old = from_word(at, found)?;
            Ok(if found == expected { Ok(old) } else { Err(old) })
        })
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

impl<'g, T: Integer> Place<'g, Atomic<T>> {
    /// Adds modulo 2 to the number of bits. Returns the previous value. One round trip for 64-bit integers, two for narrower ones.
    #[inline]
    pub fn fetch_add<'t>(
        self,
        ct: &'t ComputeThread,
        addend: T,
    ) -> impl Future<Output = Result<T>> + use<'t, 'g, T> {
        if T::WHOLE_WORD {
            let at = self.address();
            let add = ct.fetch_add_word(at, addend.to_word());
            return Addition::Whole { add: add.convert(move |old| Ok(from_word(at, old)?)) };
        }
        Addition::Narrow { update: self.update(ct, move |value| value.wrapping_add(addend)) }
    }

    /// Subtracts modulo 2 to the number of bits. Returns the previous value. One round trip for 64-bit integers, two for narrower ones.
    #[inline]
    pub fn fetch_sub<'t>(
        self,
        ct: &'t ComputeThread,
        subtrahend: T,
    ) -> impl Future<Output = Result<T>> + use<'t, 'g, T> {
        if T::WHOLE_WORD {
            let at = self.address();
            let add = ct.fetch_add_word(at, subtrahend.to_word().wrapping_neg());
            return Addition::Whole { add: add.convert(move |old| Ok(from_word(at, old)?)) };
        }
        Addition::Narrow { update: self.update(ct, move |value| value.wrapping_sub(subtrahend)) }
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

pin_project! {
    /// The future of an addition: one operation, or a loop for a part of a word. Which of the two is constant for a type.
    #[project = ProjectedAddition]
    enum Addition<A, U> {
        Whole { #[pin] add: A },
        Narrow { #[pin] update: U },
    }
}

impl<R, A: Future<Output = R>, U: Future<Output = R>> Future for Addition<A, U> {
    type Output = R;

    #[inline(always)]
    #[allow(clippy::inline_always)] // the addition itself is, on the host fabric
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        match self.project() {
            ProjectedAddition::Whole { add } => add.poll(context),
            ProjectedAddition::Narrow { update } => update.poll(context),
        }
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
