//! `Versioned<T>`: a value of several words whose readers never see a partial write.
//!
//! A sequence lock: a *write lock* and a *version* precede the value. The write lock is 0, or the token (`io/tokens.rs`) of the one writer that
//! holds it, which acquires it by CAS, like a [lock](super::lock). The version is even while the value is whole, and odd while it is written. A
//! writer posts one chain, whose operations take effect in program order: it makes the version odd, writes the value, makes the version even, and
//! releases the write lock.
//!
//! A reader reads the version, the value and the version again, in one chain. If both versions are the same even number, no write came between, and
//! the value is whole. (Reading version and value with one READ would rely on the order in which a READ visits its words, which real NICs do not
//! promise.)
//!
//! # When a writer dies or fails
//!
//! | write lock | version | the value is | a reader | a writer |
//! |---|---|---|---|---|
//! | 0 | even | whole | returns it | takes the write lock, by CAS |
//! | a token | even | whole: the write has not begun, or has just ended | returns it | waits |
//! | a token | odd | being written | waits | waits |
//! | the token of a dead thread | even | whole | returns it | takes the write lock, by CAS from the token |
//! | the token of a dead thread | odd | half-written | [`Error::HalfWritten`] | likewise |
//! | an identity, even | even | whole: the write of that thread failed before it began | returns it | takes the write lock, by CAS |
//! | an identity, even | odd | half-written: the write of that thread failed in between | [`Error::HalfWritten`] | likewise |
//!
//! Waiting threads check occasionally whether the writer is alive. There is one copy of the value: a value that a dead writer has half replaced is
//! lost until a write replaces all of it.
//!
//! A write that fails while its thread lives may have taken effect or not. The thread releases the write lock all the same, by CAS from its own
//! token, which it retries until it is answered (`io/compensation.rs`). The CAS fails if the write did take effect. It stores the thread's identity, which
//! the error then names.
//!
//! Invariant: the version never decreases, and only the holder of the write lock changes it. A new holder reads it in the same chain as the CAS that
//! takes the write lock, behind it. The chains of the previous holder have taken effect or never will (a process counts as gone only when it can no
//! longer write). So all versions of whole values differ, also across a takeover, and no reader takes the value after it for the one before: 2^63
//! writes would wrap the version.
//!
//! Invariant: a write lock that is not a token, with an odd version, means that the value is half-written. The write lock and the version are not
//! read at one moment, so a reader must find both twice: then the version did not change before the write lock was read for the second time. The same
//! holds for the token of a thread that was found to be gone in between.

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

/// A value of any size that readers always see whole, and that writers replace. A field is declared as `Versioned<T>`; the operations are methods of
/// its [`Place`].
///
/// It takes two words in addition to `T`'s size. A snapshot contains only its [`Version`]: one READ can not prove that the value is whole.
#[repr(C, align(8))]
pub struct Versioned<T> {
    write_lock: u64,
    version: u64,
    value: T,
}

/// The version of a [`Versioned`] value: it changes with each write, and never repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// Returns whether the value is not whole: a write is in progress, or its writer has died or failed.
    pub fn is_being_written(self) -> bool {
        !self.0.is_multiple_of(2)
    }
}

fn is_held(write_lock: u64) -> bool {
    !write_lock.is_multiple_of(2)
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

/// The observation of a write that may never complete.
#[derive(Default)]
struct Unfinished {
    attempts: u32,
    /// The write lock and the version that were read last, if no live thread would complete the write.
    abandoned: Option<(u64, u64)>,
}

impl Unfinished {
    /// Records a write lock and a version. Returns whether they were recorded before, so that the write is abandoned. Usually no round trip,
    /// occasionally one.
    async fn is_abandoned(&mut self, ct: &ComputeThread, write_lock: u64, version: u64) -> Result<bool> {
        if self.abandoned == Some((write_lock, version)) {
            return Ok(true);
        }
        self.attempts += 1;
        let is_abandoned = !is_held(write_lock) || is_owner_gone(ct, write_lock, self.attempts).await?;
        self.abandoned = is_abandoned.then_some((write_lock, version));
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

    /// Reads the value, which is whole. One round trip, and one for each write that came between.
    ///
    /// # Errors
    /// [`Error::HalfWritten`] if a writer has died or failed in the middle of a write, until the next write: after two round trips and a wait if that
    /// is known already, after some seven otherwise. [`Error::InvalidPointer`]; [`Error::InvalidValue`] if the bits encode no `T`.
    /// [`Error::CannotConnect`] if the memory node has ended that records whether the writer is alive.
    pub async fn read(self, ct: &ComputeThread) -> Result<T> {
        let mut backoff = ct.retry();
        let mut unfinished = Unfinished::default();
        loop {
            let mut chain = ct.empty_chain();
            let before = chain.read(self.address(), 2);
            let value = chain.read(self.value_at(), Versioned::<T>::VALUE_WORDS);
            let after = chain.read(self.version_at(), 1);
            let done = ct.submit(chain).await?;
            let [write_lock, version] = two(done.words(before));
            let is_same = done.word(after) == version || ct.has(Plant::SingleLook);
            if version.is_multiple_of(2) && is_same {
                let value = T::decode(bytes(done.words(value)));
                return value.ok_or_else(|| invalid_value::<T>(self.value_at()).into());
            }
            drop(done);
            if Version(version).is_being_written()
                && let Some(writer) = ThreadId::of_token(write_lock)
                && unfinished.is_abandoned(ct, write_lock, version).await?
            {
                return Err(Error::from(error::HalfWritten { address: self.address(), writer }));
            }
            backoff.wait_for(Purpose::WholeValue(self.address(), write_lock)).await;
        }
    }

    /// Replaces the value. Two round trips: to take the write lock, and to write; more under contention. A value that a dead writer has left
    /// half-written is replaced like any other.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`]. [`Error::NodeUnreachable`] and [`Error::OperationFailed`]: the value is then the old one, the new one, or
    /// [half-written](Error::HalfWritten); write it again. [`Error::CannotConnect`] as for [`read`](Self::read).
    pub async fn write(self, ct: &ComputeThread, value: T) -> Result<()> {
        let (write_lock, version) = self.take_write_lock(ct).await?;
        let mut image = ct.heap().images.take(Versioned::<T>::VALUE_WORDS);
        value.encode(bytemuck::cast_slice_mut(&mut image));
        let odd = if ct.has(Plant::SameVersion) { 1 } else { version | 1 };
        let mut chain = ct.empty_chain();
        let at_first = if ct.has(Plant::QuietWriter) { odd - 1 } else { odd };
        chain.write(self.version_at(), &[at_first]);
        chain.write(self.value_at(), &image);
        chain.write(self.version_at(), &[odd.wrapping_add(1)]);
        chain.replace(self.address(), write_lock.token, 0);
        ct.heap().images.put(image);
        // Once posted, the chain itself releases the write lock.
        ct.submit_compensated(chain, write_lock.into_failed_write()).await.map(drop)
    }

    /// Takes the write lock, and reads the version. One round trip if it is free.
    async fn take_write_lock(self, ct: &ComputeThread) -> Result<(WriteLock<'_>, u64)> {
        let mut backoff = ct.retry();
        let (mut expected, mut attempts) = (0, 0);
        loop {
            // Made before the CAS is posted, so that dropping it undoes a CAS that is in flight or has failed.
            let write_lock = WriteLock { ct, at: self.address(), token: ct.token(), old: expected };
            let mut chain = ct.empty_chain();
            let found = chain.compare_exchange(write_lock.at, expected, write_lock.token);
            let version = chain.read(self.version_at(), 1);
            let done = ct.submit(chain).await?;
            let (found, version) = (done.word(found), done.word(version));
            drop(done);
            if found == expected {
                return Ok((write_lock, version));
            }
            write_lock.was_not_taken();
            attempts += 1;
            if is_held(found) && !is_owner_gone(ct, found, attempts).await? {
                backoff.wait_for(Purpose::WriteLock(self.address(), found)).await;
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

/// A held write lock. Dropping it before the write is posted releases it, also while the CAS that takes it is in flight.
struct WriteLock<'a> {
    ct: &'a ComputeThread,
    at: Address,
    token: u64,
    /// The previous word.
    old: u64,
}

impl WriteLock<'_> {
    /// Records that the CAS has failed: there is nothing to release.
    fn was_not_taken(self) {
        self.ct.settle_token(self.token);
        std::mem::forget(self);
    }

    /// Returns the compensation for the case that the write, which is about to be posted, fails.
    fn into_failed_write(self) -> Exchange {
        let exchange = Exchange::new(self.at, self.token, failed_write(self.token));
        std::mem::forget(self);
        exchange
    }
}

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        self.ct.compensate(Exchange::new(self.at, self.token, self.old));
    }
}
