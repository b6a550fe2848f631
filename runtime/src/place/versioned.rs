//! `Versioned<T>`: a value of several words that is never seen half-written.
//!
//! A sequence lock: a version word in front of the value, even when the value is whole. A writer replaces it by a
//! [token](crate::cluster::tokens) of its own, which is odd, by CAS; that also keeps other writers out. Then it writes the value and the next even
//! version in one chain. A reader reads
//! the version, the value and the version again, in one chain; operations of a chain take effect in program order, so
//! if both versions are the same even number, no write came between and the value is whole. (Reading version and value
//! with one READ would rely on the order in which a READ visits its words, which real NICs do not promise.)

use super::Place;
use crate::cluster::ComputeThread;
use crate::error::Result;
use crate::layout::scratch::bytes;
use crate::layout::{Describer, Field, Pod, WORD_BYTES, fingerprint, invalid_value};
use crate::pointer::Address;

/// A value of any size that readers always see whole and writers replace. A field is declared as `Versioned<T>`; the
/// operations are those of its [`Place`].
///
/// It takes `T`'s size and one word more. In a snapshot it shows its [`Version`] only: one READ can not show the value
/// whole.
#[repr(C, align(8))]
pub struct Versioned<T> {
    version: u64,
    value: T,
}

/// Tells the states of a [`Versioned`] value apart: it changes with each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// Whether a writer is at work.
    pub fn is_being_written(self) -> bool {
        !self.0.is_multiple_of(2)
    }
}

impl<T: Pod> Versioned<T> {
    const VALUE_OFFSET: usize = std::mem::offset_of!(Self, value);
    const VALUE_WORDS: usize = (size_of::<Self>() - Self::VALUE_OFFSET) / WORD_BYTES;
}

impl<T: Pod> Field for Versioned<T> {
    type Cell = Self;
    type Init = T;
    type Value<'g> = Version;
    type Stored = Place<'static, Self>;
    type Kept<'a> = Place<'static, Self>;

    const FINGERPRINT: u64 = fingerprint::wrap("Versioned", T::FINGERPRINT);
    const FROZEN: bool = false;

    fn describe(describer: &mut Describer) {
        describer.versioned(Self::VALUE_OFFSET, T::describe);
    }

    fn encode(init: T, out: &mut [u8]) {
        init.encode(&mut out[Self::VALUE_OFFSET..]);
    }
    fn decode<'g>(_: Address, bytes: &[u8]) -> Result<Self::Value<'g>> {
        Ok(Version(<u64 as Pod>::decode(bytes).unwrap_or_default()))
    }
    fn store(at: Address, _: &[u8]) -> Result<Place<'static, Self>> {
        Ok(Place::from_address(at))
    }
    fn kept(stored: &Place<'static, Self>) -> Place<'static, Self> {
        *stored
    }
}

impl<T: Pod> Place<'_, Versioned<T>> {
    /// The value, whole. One round trip; another for each write that came between.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer),
    /// [`Error::InvalidValue`](crate::Error::InvalidValue) if no `T` has the bits found.
    pub async fn read(self, ct: &ComputeThread) -> Result<T> {
        let at = self.address();
        let value_at = at.add(Versioned::<T>::VALUE_OFFSET as u64);
        let mut backoff = ct.backoff();
        loop {
            let mut chain = ct.empty_chain();
            let before = chain.read(at, 1);
            let value = chain.read(value_at, Versioned::<T>::VALUE_WORDS);
            let after = chain.read(at, 1);
            let done = ct.submit(chain).await?;
            let version = Version(done.word(&before));
            if !version.is_being_written() && done.word(&after) == version.0 {
                return T::decode(bytes(done.words(&value))).ok_or_else(|| invalid_value::<T>(value_at));
            }
            drop(done);
            backoff.wait().await;
        }
    }

    /// Replaces the value. Three round trips: to see the version, to keep other writers out, and to write; more under
    /// contention.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`](crate::Error::InvalidPointer).
    pub async fn write(self, ct: &ComputeThread, value: T) -> Result<()> {
        let at = self.address();
        let lock = WriteLock::acquire(ct, at).await?;
        let words = Versioned::<T>::VALUE_WORDS;
        let mut image = ct.heap().take_image(words);
        value.encode(bytemuck::cast_slice_mut(&mut image));
        let mut chain = ct.empty_chain();
        chain.write(at.add(Versioned::<T>::VALUE_OFFSET as u64), &image);
        chain.write(at, &[lock.even.wrapping_add(2)]);
        ct.heap().return_image(image);
        // Once posted, the chain itself ends the write.
        let written = ct.submit(chain);
        lock.settle();
        written.await.map(drop)
    }
}

/// The right to write: the version word is this writer's token. Dropped before the value was touched, also while the CAS
/// that took it is in flight, it puts the old version back.
struct WriteLock<'a> {
    ct: &'a ComputeThread,
    at: Address,
    even: u64,
    token: u64,
}

impl<'a> WriteLock<'a> {
    async fn acquire(ct: &'a ComputeThread, at: Address) -> Result<Self> {
        let mut backoff = ct.backoff();
        loop {
            let version = Version(ct.read_word(at).await?);
            if !version.is_being_written() {
                let token = ct.token();
                // Exists before the CAS is posted, so that it undoes one that is dropped in flight.
                let lock = Self { ct, at, even: version.0, token };
                if ct.compare_exchange_word(at, version.0, token).await? == version.0 {
                    return Ok(lock);
                }
                lock.settle();
            }
            backoff.wait().await;
        }
    }

    /// There is nothing to undo: the CAS has failed, or the chain is posted that ends the write.
    fn settle(self) {
        self.ct.settle_token(self.token);
        std::mem::forget(self);
    }
}

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        self.ct.post_exchange(self.at, self.token, self.even);
        self.ct.settle_token(self.token);
    }
}
