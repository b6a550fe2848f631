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
//! A guard that is dropped by a panic leaves the same mark: the panic may have come between two changes. What was released but
//! may not be, because the memory node did not answer, is released again: by [`LockGuard::release`], whose error has the guard, or by
//! the thread by itself (see `io/compensation.rs`).
//!
//! # The owner's own attempts
//!
//! A lock is held by the *task* that took it, and a task that waits for its own lock is told so ([`Error::LockTakenTwice`]). Other
//! tasks of the thread wait, as other threads do. The rules, and how they are told apart from futures of one task that wait for
//! each other, are in `io/task_stack.rs`; a [`Chain`](crate::Chain) that takes a lock twice is refused before it is posted.
//!
//! A lock excludes threads, it does not order memory by itself: on every fabric, what the owner wrote before the
//! release is seen by whoever acquires after it, because single-word operations are sequentially consistent.

use std::fmt;
use std::thread::panicking;

use super::{Place, Read};
use crate::error::{self, Error, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::io::{ABANDONED, Acquisition, Exchange, Hold};
use crate::io::{OwnLock, wait_for_locks};
use crate::memory::worker::Worker;
use crate::session::ComputeThread;
use farfield_sim::Plant;
use farfield_words::Address;
use farfield_words::ThreadId;
use farfield_words::{DefaultInit, Describer, Field, Pod, fingerprint};

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

/// After how many attempts to take a lock there is a first look whether its owner is there, and after how many further ones
/// another.
const ATTEMPTS_TO_LOOK: u32 = 4;
const ATTEMPTS_PER_LOOK: u32 = 16;

/// Returns whether the owner of a token is found to be gone, after so many attempts in vain. Most attempts do not look. One round
/// trip at most; none if the owner is a thread of this process.
pub(super) async fn is_owner_gone(ct: &ComputeThread, token: u64, attempts: u32) -> Result<bool> {
    if attempts % ATTEMPTS_PER_LOOK == ATTEMPTS_TO_LOOK
        && let Some(owner) = ThreadId::of_token(token)
    {
        ct.cluster().shared.check_memory_node()?;
        return Ok(!ct.is_live(owner).await? || ct.has(Plant::HastyTakeover));
    }
    Ok(false)
}

/// What an attempt to take a lock expects to find, given what the last has found: `attempts` were in vain.
///
/// # Errors
/// [`Error::LockTakenTwice`] if the lock is the waiting task's own.
pub(super) async fn expected_after(
    ct: &ComputeThread,
    at: Address,
    own: &OwnLock,
    found: u64,
    attempts: u32,
) -> Result<u64> {
    if found == ABANDONED {
        own.is_free();
        return Ok(ABANDONED);
    }
    if own.is_hopeless(&ct.io.task_stack, found) {
        let how = "the task that waits for it holds it, or its parent does: release it first";
        return Err(Error::from(error::LockTakenTwice { lock: at, how }));
    }
    Ok(if is_owner_gone(ct, found, attempts).await? { found } else { 0 })
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
    fn decode<'g>(_: Address, bytes: &[u8]) -> farfield_words::Result<Self::Value<'g>> {
        Ok(LockState { token: <u64 as Pod>::decode(bytes).unwrap_or_default() })
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
        // After an error, too, the lock may be taken.
        let found = ct.compare_exchange_word(self.address(), expected, token).await?;
        if found == expected {
            guard.confirm();
            Ok(Ok(guard))
        } else {
            guard.forget();
            Ok(Err(found))
        }
    }

    /// Takes the lock, waiting for it. One round trip if it is free. If its owner is gone, it is taken from it: see
    /// [`LockGuard::needs_recovery`].
    ///
    /// Locks are not reentrant. A lock is held by the [task](ComputeThread::tasks) that took it, and by the task that waits for that
    /// one once it has ended, wherever the guard is moved.
    ///
    /// # Errors
    /// Those of a CAS; [`Error::LockTakenTwice`] if this task holds the lock, or one that waits for this one to end;
    /// [`Error::CannotConnect`] if the memory node has ended that would know whether the owner has.
    ///
    /// Futures of one task that are joined may wait for each other's locks as long as the one that holds the lock
    /// waits for nothing but this crate's futures; while it waits for something else, its lock counts as one that is never released.
    #[inline]
    pub async fn acquire(self, ct: &'g ComputeThread) -> Result<LockGuard<'g>> {
        match self.attempt(ct, 0).await? {
            Ok(guard) => Ok(guard),
            Err(found) => self.wait_and_acquire(ct, found).await,
        }
    }

    async fn wait_and_acquire(self, ct: &'g ComputeThread, mut found: u64) -> Result<LockGuard<'g>> {
        let own = [OwnLock::new()];
        let attempts = async {
            let mut backoff = Retry::for_holder(ct.worker());
            let mut attempts = 1;
            loop {
                let expected = expected_after(ct, self.address(), &own[0], found, attempts).await?;
                if expected == 0 {
                    backoff.wait_for(Purpose::Lock(self.address(), found)).await;
                }
                match self.attempt(ct, expected).await? {
                    Ok(guard) => return Ok(guard),
                    Err(now) => found = now,
                }
                attempts += 1;
            }
        };
        wait_for_locks(&ct.io.task_stack, &own, attempts).await
    }

    /// Whether it is held at this moment, and by whom. One round trip.
    #[inline]
    pub fn state(self, ct: &'g ComputeThread) -> Read<'g, Lock> {
        Read::new(self.address(), ct)
    }
}

/// A held lock. Dropping it releases the lock without waiting; [`release`](Self::release) waits until it is released
/// and reports errors.
///
/// If a panic drops it that began while it was held, what the lock protects may be half changed, and the next owner is
/// [told so](Self::needs_recovery).
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard<'ct> {
    ct: &'ct Worker,
    parts: Acquisition,
}

/// A release that has failed: the memory node did not answer, so the lock may be released or not. The guard can try
/// again; dropped, it does so by itself until it is known that the lock is released.
///
/// `?` turns it into its [`Error`], and drops the guard.
pub struct ReleaseError<'ct> {
    /// What went wrong.
    pub error: Error,
    /// The lock, which may be held.
    pub guard: LockGuard<'ct>,
}

impl fmt::Debug for ReleaseError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReleaseError")
            .field("error", &self.error)
            .field("lock", &self.guard.address())
            .finish()
    }
}

impl fmt::Display for ReleaseError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock at {} may still be held: {}", self.guard.address(), self.error)
    }
}

impl std::error::Error for ReleaseError<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<ReleaseError<'_>> for Error {
    fn from(failed: ReleaseError<'_>) -> Self {
        failed.error
    }
}

impl<'ct> LockGuard<'ct> {
    /// A guard for a CAS from `expected` to `token` that is about to be posted.
    #[inline]
    pub(super) fn in_flight(ct: &'ct Worker, at: Address, token: u64, expected: u64) -> Self {
        ct.io.task_stack.takes(token);
        // A lock that is taken from its last owner is taken with what that owner has left.
        let needs_recovery = expected != 0 && !ct.has(Plant::UnmarkedTakeover);
        let was_panicking = panicking();
        Self { ct, parts: Acquisition { at, token, held: Hold::Taking, needs_recovery, was_panicking } }
    }

    /// Whether what the lock protects may be half changed: the lock was taken from an owner that died, an owner's panic has
    /// released it, or a chain that was to change something and release it has failed.
    ///
    /// Whoever is told so brings that to an end, or undoes it, and then says so with [`recovered`](Self::recovered). Until then the
    /// next owner is told, too. What a lock protects that is changed by one word needs no recovery, and whoever takes it need not ask.
    pub fn needs_recovery(&self) -> bool {
        self.parts.needs_recovery
    }

    /// What the lock protects is whole again.
    pub fn recovered(&mut self) {
        self.parts.needs_recovery = false;
    }

    /// What the lock's word becomes when it is released.
    #[inline]
    pub(super) fn word_when_free(&self) -> u64 {
        self.parts.free()
    }

    /// The CAS has succeeded.
    pub(super) fn confirm(&mut self) {
        if self.parts.held == Hold::Taking {
            self.parts.held = Hold::Yes;
        }
    }

    /// Where the lock is and how it is held, for a chain that releases it in this guard's stead.
    pub(super) fn into_parts(mut self) -> Acquisition {
        let none = Acquisition { held: Hold::No, ..self.parts };
        std::mem::replace(&mut self.parts, none)
    }

    /// There is nothing to release: the CAS has failed.
    pub(super) fn forget(&mut self) {
        if self.parts.held == Hold::Taking {
            self.ct.io.task_stack.lets_go(self.parts.token);
            self.ct.settle_token(self.parts.token);
        }
        self.parts.held = Hold::No;
    }

    /// Leaves the CAS that is in flight, or will be, to somebody else, who is to make amends for it.
    pub(super) fn abandon(&mut self) -> Option<Exchange> {
        if self.parts.held != Hold::Taking {
            return None;
        }
        let Acquisition { at, token, .. } = self.parts;
        self.ct.io.task_stack.lets_go(token);
        self.parts.held = Hold::No;
        Some(Exchange::new(at, token, self.parts.free()))
    }

    /// The lock's word while it is held.
    pub(super) fn token(&self) -> u64 {
        self.parts.token
    }

    /// Where the lock is.
    pub(super) fn address(&self) -> Address {
        self.parts.at
    }

    /// Releases the lock. One round trip.
    ///
    /// # Errors
    /// Those of a WRITE, with the guard, which may still hold the lock: [`ReleaseError`].
    #[inline]
    pub async fn release(mut self) -> Result<(), ReleaseError<'ct>> {
        let Acquisition { at, token, held, .. } = self.parts;
        let free = self.parts.free();
        let mut chain = self.ct.empty_chain();
        match held {
            Hold::Yes => {
                chain.replace(at, token, free);
            }
            // Another thread may own it by now.
            Hold::Taking | Hold::Releasing => {
                chain.compare_exchange(at, token, free);
            }
            Hold::No => return Ok(()),
        }
        let released = self.ct.submit(chain);
        // Posted, so it takes effect also if this future is dropped; another WRITE could hit the next owner's lock.
        self.parts.held = Hold::Releasing;
        match released.await {
            Ok(_) => {
                self.ct.io.task_stack.lets_go(token);
                self.ct.settle_token(token);
                self.parts.held = Hold::No;
                Ok(())
            }
            Err(error) => Err(ReleaseError { error, guard: self }),
        }
    }
}

impl Drop for LockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.parts.end(self.ct);
    }
}
