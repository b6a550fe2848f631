//! `Versioned<T>`: a value of several words that is never seen half-written.
//!
//! A sequence lock: in front of the value stand a *right* and a *version*. The right is 0, or the [token](crate::cluster::tokens) of the
//! one writer that may write, which gets it by CAS, as a [lock](super::lock) is taken. The version counts: it is even while the value is
//! whole, and odd while it changes. A writer posts one chain, whose operations take effect in program order: it makes
//! the version odd, writes the value, makes the version even, and gives the right back.
//!
//! A reader reads the version, the value and the version again, in one chain; if both versions are the same even number, no
//! write came between and the value is whole. (Reading version and value
//! with one READ would rely on the order in which a READ visits its words, which real NICs do not promise.)
//!
//! # When a writer dies or fails
//!
//! | right | version | the value is | a reader | a writer |
//! |---|---|---|---|---|
//! | 0 | even | whole | returns it | takes the right, by CAS |
//! | a token | even | whole: the writer has not begun, or has just ended | returns it | waits |
//! | a token | odd | being written | waits | waits |
//! | the token of a dead thread | even | whole | returns it | takes the right, by CAS from the token |
//! | the token of a dead thread | odd | half-written | [`Error::HalfWritten`] | likewise |
//! | an identity, even | even | whole: the write of that thread has failed before it began | returns it | takes the right, by CAS |
//! | an identity, even | odd | half-written: the write has failed in between | [`Error::HalfWritten`] | likewise |
//!
//! Those who wait look now and then whether the writer is still there. There is one copy of the value, so what a dead writer has half
//! replaced is lost until a write replaces all of it.
//!
//! A write that fails while its thread lives on may have taken effect or not. The thread gives the right back all the same, by CAS from
//! its own token, and tries until it has an answer (`io/compensation.rs`); the CAS does nothing if the write did take effect. It leaves
//! its identity there, for the error to name it.
//!
//! Invariant: the version never falls, and only the holder of the right changes it. A new holder reads it in the same chain as the CAS
//! that takes the right, behind it, and the chains of the one before have taken effect or never will (nobody is taken for gone who may
//! still write). So all versions of whole values differ, also over a takeover, and no reader takes the value after it for
//! the one before: 2^63 writes would bring the version round.
//!
//! Invariant: a right that is not a token, with an odd version, says that the value is half-written. The right and the version are not
//! read at one moment, so a reader has to find both twice: the version has then been the same when the right was read for the
//! second time. The same holds for the token of a thread that was found to be gone in between.

use super::Place;
use super::lock::is_owner_gone;
use crate::error::{self, Error, Result};
use crate::io::Purpose;
use crate::io::operations::*;
use crate::io::{Exchange, failed_write};
use crate::session::ComputeThread;
use farfield_sim::Plant;
use farfield_words::Address;
use farfield_words::ThreadId;
use farfield_words::scratch::bytes;
use farfield_words::{Describer, Field, Pod, WORD_BYTES, fingerprint, invalid_value};

/// A value of any size that readers always see whole and writers replace. A field is declared as `Versioned<T>`; the
/// operations are those of its [`Place`].
///
/// It takes `T`'s size and two words more. In a snapshot it shows its [`Version`] only: one READ can not show the value
/// whole.
#[repr(C, align(8))]
pub struct Versioned<T> {
    right: u64,
    version: u64,
    value: T,
}

/// Tells the states of a [`Versioned`] value apart: it changes with each write, and never back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// Whether the value is not whole: a writer is at work, or has died or failed over it.
    pub fn is_being_written(self) -> bool {
        !self.0.is_multiple_of(2)
    }
}

fn is_held(right: u64) -> bool {
    !right.is_multiple_of(2)
}

impl<T: Pod> Versioned<T> {
    const VERSION_OFFSET: usize = std::mem::offset_of!(Self, version);
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
    fn decode<'g>(_: Address, bytes: &[u8]) -> farfield_words::Result<Self::Value<'g>> {
        Ok(Version(<u64 as Pod>::decode(&bytes[Self::VERSION_OFFSET..]).unwrap_or_default()))
    }
    fn store(at: Address, _: &[u8]) -> farfield_words::Result<Place<'static, Self>> {
        Ok(Place::from_address(at))
    }
    fn kept(stored: &Place<'static, Self>) -> Place<'static, Self> {
        *stored
    }
}

/// What a wait has found that may stay as it is for ever.
#[derive(Default)]
struct Unfinished {
    attempts: u32,
    /// The right and the version that were found last, if there is nobody who would go on.
    left: Option<(u64, u64)>,
}

impl Unfinished {
    /// A right and a version have been found. Returns whether they were found before, and have been left so. Mostly no round trip, now and
    /// then one.
    async fn is_left(&mut self, ct: &ComputeThread, right: u64, version: u64) -> Result<bool> {
        if self.left == Some((right, version)) {
            return Ok(true);
        }
        self.attempts += 1;
        let is_left = !is_held(right) || is_owner_gone(ct, right, self.attempts).await?;
        self.left = is_left.then_some((right, version));
        Ok(false)
    }
}

impl<T: Pod> Place<'_, Versioned<T>> {
    fn version_at(self) -> Address {
        self.address().add(Versioned::<T>::VERSION_OFFSET as u64)
    }

    fn value_at(self) -> Address {
        self.address().add(Versioned::<T>::VALUE_OFFSET as u64)
    }

    /// The value, whole. One round trip; another for each write that came between.
    ///
    /// # Errors
    /// [`Error::HalfWritten`] if a writer has died or failed over it, until it is written anew: after two round trips and a wait if that is
    /// known already, after some seven if it has to be found out. [`Error::InvalidPointer`]; [`Error::InvalidValue`] if no `T` has the bits found;
    /// [`Error::CannotConnect`] if the memory node has ended that would know whether the writer has.
    pub async fn read(self, ct: &ComputeThread) -> Result<T> {
        let mut backoff = ct.retry();
        let mut unfinished = Unfinished::default();
        loop {
            let mut chain = ct.empty_chain();
            let before = chain.read(self.address(), 2);
            let value = chain.read(self.value_at(), Versioned::<T>::VALUE_WORDS);
            let after = chain.read(self.version_at(), 1);
            let done = ct.submit(chain).await?;
            let [right, version] = two(done.words(&before));
            let is_same = done.word(&after) == version || ct.has(Plant::SingleLook);
            if version.is_multiple_of(2) && is_same {
                let value = T::decode(bytes(done.words(&value)));
                return value.ok_or_else(|| invalid_value::<T>(self.value_at()).into());
            }
            drop(done);
            if Version(version).is_being_written()
                && let Some(writer) = ThreadId::of_token(right)
                && unfinished.is_left(ct, right, version).await?
            {
                return Err(Error::from(error::HalfWritten { address: self.address(), writer }));
            }
            backoff.wait_for(Purpose::WholeValue(self.address(), right)).await;
        }
    }

    /// Replaces the value. Two round trips: to keep other writers out, and to write; more under contention. A value that a dead writer has
    /// left half-written is replaced like any other.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`]; [`Error::NodeUnreachable`] and [`Error::OperationFailed`], after which the value is the old one, the new one, or
    /// [half-written](Error::HalfWritten): write it again. [`Error::CannotConnect`] as for [`read`](Self::read).
    pub async fn write(self, ct: &ComputeThread, value: T) -> Result<()> {
        let (right, version) = self.take_right(ct).await?;
        let mut image = ct.heap().take_image(Versioned::<T>::VALUE_WORDS);
        value.encode(bytemuck::cast_slice_mut(&mut image));
        let odd = if ct.has(Plant::SameVersion) { 1 } else { version | 1 };
        let mut chain = ct.empty_chain();
        let at_first = if ct.has(Plant::QuietWriter) { odd - 1 } else { odd };
        chain.write(self.version_at(), &[at_first]);
        chain.write(self.value_at(), &image);
        chain.write(self.version_at(), &[odd.wrapping_add(1)]);
        chain.replace(self.address(), right.token, 0);
        ct.heap().return_image(image);
        // Once posted, the chain itself ends the write.
        ct.submit_compensated(chain, right.into_failed_write()).await.map(drop)
    }

    /// Takes the right to write, and reads the version. One round trip if nobody has it.
    async fn take_right(self, ct: &ComputeThread) -> Result<(Right<'_>, u64)> {
        let mut backoff = ct.retry();
        let (mut expected, mut attempts) = (0, 0);
        loop {
            // Exists before the CAS is posted, so that it undoes one that is dropped in flight, or fails.
            let right = Right { ct, at: self.address(), token: ct.token(), old: expected };
            let mut chain = ct.empty_chain();
            let found = chain.compare_exchange(right.at, expected, right.token);
            let version = chain.read(self.version_at(), 1);
            let done = ct.submit(chain).await?;
            let (found, version) = (done.word(&found), done.word(&version));
            drop(done);
            if found == expected {
                return Ok((right, version));
            }
            right.was_not_taken();
            attempts += 1;
            if is_held(found) && !is_owner_gone(ct, found, attempts).await? {
                backoff.wait_for(Purpose::Right(self.address(), found)).await;
                expected = 0;
            } else {
                expected = found;
            }
        }
    }
}

fn two(words: &[u64]) -> [u64; 2] {
    std::array::from_fn(|word| words[word])
}

/// The right to write. Dropped before the value was touched, also while the CAS that took it is in flight, it is given back.
struct Right<'a> {
    ct: &'a ComputeThread,
    at: Address,
    token: u64,
    /// What was there before.
    old: u64,
}

impl Right<'_> {
    /// There is nothing to give back.
    fn was_not_taken(self) {
        self.ct.settle_token(self.token);
        std::mem::forget(self);
    }

    /// What becomes of it if the write fails that is about to be posted.
    fn into_failed_write(self) -> Exchange {
        let exchange = Exchange::new(self.at, self.token, failed_write(self.token));
        std::mem::forget(self);
        exchange
    }
}

impl Drop for Right<'_> {
    fn drop(&mut self) {
        self.ct.compensate(Exchange::new(self.at, self.token, self.old));
    }
}
