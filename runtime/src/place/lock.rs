//! `Lock`: mutual exclusion in far memory.
//!
//! The word is 0, or a [token](crate::cluster::tokens): the identity of the thread that holds the lock and a number that tells
//! this acquisition from others of the thread that are not over. Acquiring is a CAS from 0, releasing a WRITE of 0.
//! A waiting thread backs off and lets its other tasks run, since one of them may be the owner.
//!
//! Those who wait try again by CAS, without looking first: by the time a look has come back, whoever released the lock
//! and wants it again has it. Nothing orders them, so fairness is statistical. Simulated, with threads that do nothing but
//! acquire, add and release, for 10,000 round trips: Jain's index of their shares is 1.00 for 2 threads and for 8, and 0.96
//! for 64; the longest wait was 32, 210 and 2,238 round trips, where an exact queue would take about 4 for each thread.
//!
//! # When the owner dies
//!
//! Whoever waits looks now and then whether the owner [is still there](crate::cluster::members). If it is gone, the waiting thread
//! takes the lock by a CAS from the *owner's* token: of several one succeeds, and a dead thread puts its token nowhere again. What the
//! lock protects may be half changed then, so the [guard says so](LockGuard::needs_recovery). Until its holder says
//! that it has put things right, releasing the lock leaves the word at 1 instead of 0: free, but the next owner is told again, also
//! if this one dies or gives up in the middle.
//!
//! A lock excludes threads, it does not order memory by itself: on every fabric, what the owner wrote before the
//! release is seen by whoever acquires after it, because single-word operations are sequentially consistent.

use super::{Place, Read};
use crate::cluster::{ComputeThread, ThreadId};
use crate::error::Result;
use crate::layout::{DefaultInit, Describer, Field, Pod, fingerprint};
use crate::pointer::Address;
use crate::task::Backoff;

/// A spin lock in far memory that knows its owner. Declared as a field of type `Lock`; the operations are those of its
/// [`Place`].
#[repr(transparent)]
pub struct Lock(u64);

/// Whether a lock is held, and by whom, at the moment of a READ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockState {
    /// The lock's word, as it was read: most snapshots are taken for other fields, so it is not looked into.
    token: u64,
}

impl LockState {
    /// The thread that holds it: the [identity](ComputeThread::id) of that thread. A thread that holds several hundred locks for
    /// a long time gets further identities, and takes further locks under those.
    pub fn owner(self) -> Option<ThreadId> {
        ThreadId::of_token(self.token)
    }

    /// Whether any thread holds it; that thread may be gone.
    pub fn is_held(self) -> bool {
        self.token > ABANDONED
    }

    /// Whether it is free, but an owner of it died and nobody has put right yet what it protects.
    pub fn is_abandoned(self) -> bool {
        self.token == ABANDONED
    }
}

/// A free lock whose last owner died and left something to be put right. No token: those begin above it.
pub(crate) const ABANDONED: u64 = 1;

/// After how many attempts to take a lock there is a first look whether its owner is there, and after how many further ones
/// another.
const ATTEMPTS_TO_LOOK: u32 = 4;
const ATTEMPTS_PER_LOOK: u32 = 16;

/// What an attempt to take a lock expects to find, given what the last has found: `attempts` were in vain.
pub(in crate::place) async fn expected_after(ct: &ComputeThread, found: u64, attempts: u32) -> Result<u64> {
    if found == ABANDONED {
        return Ok(ABANDONED);
    }
    if attempts % ATTEMPTS_PER_LOOK == ATTEMPTS_TO_LOOK
        && let Some(owner) = ThreadId::of_token(found)
    {
        ct.cluster().shared.check_memory_node()?;
        if !ct.is_live(owner).await? {
            return Ok(found);
        }
    }
    Ok(0)
}

impl Field for Lock {
    type Cell = Self;
    /// A new lock is free.
    type Init = ();
    type Value<'g> = LockState;
    type Stored = Place<'static, Self>;
    type Kept<'a> = Place<'static, Self>;

    const FINGERPRINT: u64 = fingerprint::name("Lock");
    const FROZEN: bool = false;

    fn describe(describer: &mut Describer) {
        describer.lock();
    }

    #[inline]
    fn encode((): (), _: &mut [u8]) {}
    #[inline]
    fn decode<'g>(_: Address, bytes: &[u8]) -> Result<Self::Value<'g>> {
        Ok(LockState { token: <u64 as Pod>::decode(bytes).unwrap_or_default() })
    }
    #[inline]
    fn store(at: Address, _: &[u8]) -> Result<Place<'static, Self>> {
        Ok(Place::from_address(at))
    }
    #[inline]
    fn kept(stored: &Place<'static, Self>) -> Place<'static, Self> {
        *stored
    }
}

impl DefaultInit for Lock {
    fn default_init() {}
}

impl<'g> Place<'g, Lock> {
    /// Takes the lock if it is free. One round trip, two if its last owner [died](LockGuard::needs_recovery).
    #[inline]
    pub async fn try_acquire(self, ct: &'g ComputeThread) -> Result<Option<LockGuard<'g>>> {
        match self.attempt(ct, 0).await? {
            Ok(guard) => Ok(Some(guard)),
            Err(ABANDONED) => Ok(self.attempt(ct, ABANDONED).await?.ok()),
            Err(_) => Ok(None),
        }
    }

    /// Takes the lock if its word is `expected`; otherwise gives the word.
    #[inline]
    async fn attempt(self, ct: &'g ComputeThread, expected: u64) -> Result<Result<LockGuard<'g>, u64>> {
        let token = ct.token();
        // The guard exists before the CAS is posted: if the future is dropped while it is in flight, the lock may be
        // taken, and only the guard knows what to undo.
        let mut guard = LockGuard::in_flight(ct, self.address(), token, expected);
        let found = ct.compare_exchange_word(self.address(), expected, token).await;
        if matches!(found, Ok(found) if found == expected) {
            guard.confirm();
        } else {
            guard.forget();
        }
        let found = found?;
        Ok(if found == expected { Ok(guard) } else { Err(found) })
    }

    /// Takes the lock, waiting for it. One round trip if it is free. If its owner is gone, it is taken from it: see
    /// [`LockGuard::needs_recovery`].
    ///
    /// Locks are not reentrant: a task that acquires one it holds waits for itself.
    ///
    /// # Errors
    /// Those of a CAS; [`Error::CannotConnect`](crate::Error::CannotConnect) if the memory node has ended that would know
    /// whether the owner has.
    #[inline]
    pub async fn acquire(self, ct: &'g ComputeThread) -> Result<LockGuard<'g>> {
        match self.attempt(ct, 0).await? {
            Ok(guard) => Ok(guard),
            Err(found) => self.wait_and_acquire(ct, found).await,
        }
    }

    async fn wait_and_acquire(self, ct: &'g ComputeThread, mut found: u64) -> Result<LockGuard<'g>> {
        let mut backoff = Backoff::for_turn(ct);
        let mut attempts = 1;
        loop {
            let expected = expected_after(ct, found, attempts).await?;
            if expected == 0 {
                backoff.wait().await;
            }
            match self.attempt(ct, expected).await? {
                Ok(guard) => return Ok(guard),
                Err(now) => found = now,
            }
            attempts += 1;
        }
    }

    /// Whether it is held at this moment, and by whom. One round trip.
    #[inline]
    pub fn state(self, ct: &'g ComputeThread) -> Read<'g, Lock> {
        Read::new(self.address(), ct)
    }
}

/// A held lock. Dropping it releases the lock without waiting; [`release`](Self::release) waits until it is released
/// and reports errors.
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard<'ct> {
    ct: &'ct ComputeThread,
    at: Address,
    held: Held,
    /// What the lock's word becomes when it is released: 0, or [`ABANDONED`].
    free: u64,
}

pub(in crate::place) enum Held {
    Yes {
        token: u64,
    },
    No,
    /// The CAS that is to take it is in flight, or was when its future was dropped; or so is a WRITE that releases it.
    InFlight {
        token: u64,
    },
}

impl Held {
    /// A WRITE that releases the lock is posted; whether it will be done is known later.
    pub(in crate::place) fn may_be_released(&mut self) {
        if let Self::Yes { token } = *self {
            *self = Self::InFlight { token };
        }
    }
}

impl<'ct> LockGuard<'ct> {
    /// A guard for a CAS from `expected` to `token` that is about to be posted.
    #[inline]
    pub(in crate::place) fn in_flight(
        ct: &'ct ComputeThread,
        at: Address,
        token: u64,
        expected: u64,
    ) -> Self {
        // What is taken from somebody is taken with what he has left.
        Self { ct, at, held: Held::InFlight { token }, free: expected.min(ABANDONED) }
    }

    /// Whether the lock was taken from an owner that died, so that what it protects may be half changed.
    ///
    /// Whoever is told so brings that to an end, or undoes it, and then says so with [`recovered`](Self::recovered). Until then the
    /// next owner is told, too. What a lock protects that is changed by one word needs no recovery, and whoever takes it need not ask.
    pub fn needs_recovery(&self) -> bool {
        self.free == ABANDONED
    }

    /// What the lock protects is whole again.
    pub fn recovered(&mut self) {
        self.free = 0;
    }

    /// What the lock's word becomes when it is released.
    #[inline]
    pub(in crate::place) fn word_when_free(&self) -> u64 {
        self.free
    }

    /// The CAS has succeeded.
    pub(in crate::place) fn confirm(&mut self) {
        if let Held::InFlight { token } = self.held {
            self.held = Held::Yes { token };
        }
    }

    /// Where the lock is and how it is held, for who releases it in this guard's stead.
    pub(in crate::place) fn into_parts(mut self) -> (Address, Held, u64) {
        (self.at, std::mem::replace(&mut self.held, Held::No), self.free)
    }

    /// The guard again.
    pub(in crate::place) fn from_parts(
        ct: &'ct ComputeThread,
        (at, held, free): (Address, Held, u64),
    ) -> Self {
        Self { ct, at, held, free }
    }

    /// There is nothing to release: the CAS has failed, or the WRITE that releases the lock is posted.
    pub(in crate::place) fn forget(&mut self) {
        if let Held::Yes { token } | Held::InFlight { token } = std::mem::replace(&mut self.held, Held::No) {
            self.ct.settle_token(token);
        }
    }

    /// Leaves the CAS that is in flight, or will be, to the caller, and returns its token, which the caller settles.
    pub(in crate::place) fn abandon(&mut self) -> Option<u64> {
        match std::mem::replace(&mut self.held, Held::No) {
            Held::InFlight { token } => Some(token),
            Held::Yes { .. } | Held::No => None,
        }
    }

    /// Where the lock is.
    pub(in crate::place) fn address(&self) -> Address {
        self.at
    }

    /// Releases the lock. One round trip.
    ///
    /// # Errors
    /// Those of a WRITE.
    #[inline]
    pub async fn release(mut self) -> Result<()> {
        let mut chain = self.ct.empty_chain();
        chain.write(self.at, &[self.free]);
        let released = self.ct.submit(chain);
        // Posted, so it takes effect also if this future is dropped; another WRITE could hit the next owner's lock.
        self.forget();
        released.await.map(drop)
    }
}

impl Drop for LockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.held {
            Held::Yes { .. } => self.ct.post_word(self.at, self.free),
            Held::No => return,
            // Releases it if this acquisition succeeded; any other owner is left alone.
            Held::InFlight { token } => self.ct.post_exchange(self.at, token, self.free),
        }
        self.forget();
    }
}
