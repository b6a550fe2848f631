//! `Lock`: mutual exclusion in far memory.
//!
//! The word is 0 if the lock is free, or a token (`io/tokens.rs`): the identity of the owner thread, and a number that distinguishes this
//! acquisition from others of the thread that are not completed. Acquiring is a CAS from 0, releasing a WRITE of 0. A waiting thread backs off and
//! polls its other tasks, since one of them may be the owner.
//!
//! Waiting threads retry the CAS without a READ before it: by the time the READ returns, a thread that releases the lock and wants it again has taken
//! it. Waiting threads are not queued, so fairness is statistical. Simulated, with threads that only acquire, add and release, for 10,000 round
//! trips: Jain's index of their shares is 1.00 for 2 threads and for 8, and 0.96 for 64; the longest wait was 32, 210 and 2,238 round trips, where an
//! exact queue would take about 4 for each thread.
//!
//! # When the owner dies
//!
//! A waiting thread checks occasionally whether the owner is gone (`membership/members.rs`). Then it takes the lock by a CAS from the *owner's*
//! token: of several waiting threads one succeeds, and a dead thread writes its token nowhere again. The data under the lock may be half changed, so
//! [`LockGuard::needs_recovery`] is true. Until its holder calls [`LockGuard::recovered`], a release leaves the word at 1 instead of 0: free, but the
//! next owner is notified again, also if this owner dies or fails in the middle.
//!
//! A guard that is dropped by a panic leaves the same mark: the panic may have occurred between two changes. A release whose memory node does not
//! answer has an unknown outcome, and is retried: by [`LockGuard::release`], whose error contains the guard, or by the background thread (see
//! `io/compensation.rs`).
//!
//! # Locks of the same thread
//!
//! A lock belongs to the *task* that took it. A task that waits for its own lock gets [`Error::LockTakenTwice`]. Other tasks of the thread wait, like
//! other threads. The rules, and how tasks are distinguished from joined futures of one task, are in `io/task_stack.rs`. A [`Chain`](crate::Chain) that
//! takes a lock twice is refused before it is posted.
//!
//! A lock excludes threads; it does not order memory by itself. On every fabric a thread that acquires the lock sees all writes before its release,
//! because single-word operations are sequentially consistent.

use std::fmt;
use std::thread::panicking;

use super::{Place, Read};
use crate::error::{self, Error, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
use crate::io::{ABANDONED, Acquisition, Hold, at_first_poll};
use crate::io::{OwnLock, wait_for_locks};
use crate::memory::worker::Worker;
use crate::session::ComputeThread;
use farfield_fabric::host::Host;
use farfield_sim::Plant;
use farfield_words::Address;
use farfield_words::ThreadId;
use farfield_words::{DefaultInit, Describer, Field, Pod, fingerprint};

/// A spin lock in far memory that knows its owner. Declared as a field of type `Lock`; the operations are methods of its [`Place`].
#[repr(transparent)]
pub struct Lock(u64);

/// The state of a lock at the moment of a READ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockState {
    /// The lock's word. It is decoded only on request: most snapshots are read for other fields.
    token: u64,
}

impl LockState {
    /// Returns the owner's [identity](ComputeThread::id). A thread that holds several hundred locks for a long time gets further identities, and
    /// takes further locks under those.
    pub fn owner(self) -> Option<ThreadId> {
        ThreadId::of_token(self.token)
    }

    /// Returns whether a thread holds the lock. That thread may be dead.
    pub fn is_held(self) -> bool {
        self.token > ABANDONED
    }

    /// Returns whether the lock is free, but an owner has died and no later owner has called [`LockGuard::recovered`].
    pub fn is_abandoned(self) -> bool {
        self.token == ABANDONED
    }
}

/// The number of failed attempts before the first check that the owner is alive, and between two checks.
const ATTEMPTS_TO_LOOK: u32 = 4;
const ATTEMPTS_PER_LOOK: u32 = 16;

/// Returns whether the owner of a token is known to be gone, after `attempts` failed attempts. Most calls do not check. At most one round trip; none
/// if the owner is a thread of this process.
pub(super) async fn is_owner_gone(ct: &ComputeThread, token: u64, attempts: u32) -> Result<bool> {
    if attempts % ATTEMPTS_PER_LOOK == ATTEMPTS_TO_LOOK
        && let Some(owner) = ThreadId::of_token(token)
    {
        ct.cluster().shared.check_memory_node()?;
        return Ok(!ct.is_live(owner).await? || ct.has(Plant::HastyTakeover));
    }
    Ok(false)
}

/// Returns the word that the next attempt to take a lock expects, given the word `found` by the last of `attempts` failed ones.
///
/// # Errors
/// [`Error::LockTakenTwice`] if the waiting task holds the lock.
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
    /// Takes the lock if it is free. One round trip; two if its last owner [died](LockGuard::needs_recovery).
    #[inline]
    pub async fn try_acquire(self, ct: &'g ComputeThread) -> Result<Option<LockGuard<'g>>> {
        match self.attempt(ct, 0).await? {
            Ok(guard) => Ok(Some(guard)),
            Err(ABANDONED) => Ok(self.attempt(ct, ABANDONED).await?.ok()),
            Err(_) => Ok(None),
        }
    }

    /// Takes the lock if its word is `expected`. Otherwise returns the word.
    #[inline]
    async fn attempt(self, ct: &'g ComputeThread, expected: u64) -> Result<Result<LockGuard<'g>, u64>> {
        let token = ct.token();
        // The guard exists before the CAS is posted. If the future is dropped while the CAS is in flight, the lock may be taken, and only the guard
        // undoes that.
        let mut guard = LockGuard::in_flight(ct, self.address(), token, expected);
        // The lock may be taken after an error, too.
        let found = ct.compare_exchange_word(self.address(), expected, token).await?;
        if found == expected {
            guard.confirm();
            Ok(Ok(guard))
        } else {
            guard.forget();
            Ok(Err(found))
        }
    }

    /// Takes the lock; waits while another task or thread holds it. One round trip if it is free. If its owner is gone, the lock is taken over: see
    /// [`LockGuard::needs_recovery`].
    ///
    /// Locks are not reentrant. A lock belongs to the [task](ComputeThread::tasks) that took it. When that task has ended, it belongs to the task
    /// that awaits it, wherever the guard is moved.
    ///
    /// # Errors
    /// Those of a CAS. [`Error::LockTakenTwice`] if the lock belongs to this task, or to a task that awaits this one. [`Error::CannotConnect`] if the
    /// memory node has ended that records whether the owner is alive.
    ///
    /// Joined futures of one task may wait for each other's locks, as long as the future with the lock awaits only futures of this crate. While it
    /// awaits another future, its lock counts as never released.
    #[inline]
    pub fn acquire(self, ct: &'g ComputeThread) -> impl Future<Output = Result<LockGuard<'g>>> {
        at_first_poll(
            move || match ct.io.endpoint.immediate() {
                Some(host) => match self.take_here(ct, host) {
                    Ok(Ok(guard)) => Ok(Ok(guard)),
                    Ok(Err(found)) => Err(Some(found)),
                    Err(error) => Ok(Err(error)),
                },
                None => Err(None),
            },
            move |found| self.wait_and_acquire(ct, found),
        )
    }

    /// Takes the lock on an immediate fabric if it is free. Otherwise returns its word.
    #[inline]
    fn take_here(self, ct: &'g ComputeThread, host: &Host) -> Result<Result<LockGuard<'g>, u64>> {
        let token = ct.token();
        ct.accesses();
        let found = host.compare_exchange(self.address(), 0, token);
        let is_taken = found.as_ref().is_ok_and(|found| *found == 0);
        ct.count_exchange(!is_taken && found.is_ok());
        if is_taken {
            ct.io.task_stack.takes(token);
            return Ok(Ok(LockGuard::held(ct, self.address(), token, panicking())));
        }
        ct.settle_token(token);
        Ok(Err(found?))
    }

    /// Takes the lock; waits while another task or thread holds it. `found` is its word if an attempt has failed.
    async fn wait_and_acquire(self, ct: &'g ComputeThread, found: Option<u64>) -> Result<LockGuard<'g>> {
        let mut found = match found {
            Some(found) => found,
            None => match self.attempt(ct, 0).await? {
                Ok(guard) => return Ok(guard),
                Err(found) => found,
            },
        };
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

    /// Returns whether a live thread holds the lock. If not, no operation of an owner is in flight any more, and nobody holds it before it is taken again. One round trip,
    /// and one more if another process holds it.
    ///
    /// # Errors
    /// Those of a READ.
    pub async fn is_held(self, ct: &'g ComputeThread) -> Result<bool> {
        match self.state(ct).await?.owner() {
            None => Ok(false),
            Some(owner) => ct.is_live(owner).await,
        }
    }

    /// Reads the lock's state. One round trip.
    #[inline]
    pub fn state(self, ct: &'g ComputeThread) -> Read<'g, Lock> {
        Read::new(self.address(), ct)
    }
}

/// A held lock. Dropping it releases the lock without waiting. [`release`](Self::release) waits for the release and returns its errors.
///
/// If the guard is dropped by a panic that began while it was held, the data under the lock may be half changed, and the next owner is
/// [notified](Self::needs_recovery).
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard<'ct> {
    ct: &'ct Worker,
    parts: Acquisition,
}

/// The error of a release whose memory node did not answer: the lock may be released or not. The guard can retry. Dropping the guard retries in the
/// background until the lock is known to be released.
///
/// `?` turns it into its [`Error`], and drops the guard.
pub struct ReleaseError<'ct> {
    /// The cause.
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
    /// Makes a guard for a CAS from `expected` to `token` that is about to be posted.
    #[inline]
    pub(super) fn in_flight(ct: &'ct Worker, at: Address, token: u64, expected: u64) -> Self {
        ct.io.task_stack.takes(token);
        // A takeover inherits the last owner's unfinished changes.
        let needs_recovery = expected != 0 && !ct.has(Plant::UnmarkedTakeover);
        let mut parts = Acquisition::new(at, token, Hold::Taking, panicking());
        parts.set_needs_recovery(needs_recovery);
        Self { ct, parts }
    }

    /// Makes a guard for a lock that this thread has taken from 0, panicking or not.
    #[inline]
    pub(super) fn held(ct: &'ct Worker, at: Address, token: u64, is_panicking: bool) -> Self {
        Self { ct, parts: Acquisition::new(at, token, Hold::Yes, is_panicking) }
    }

    /// Returns whether the data under the lock may be half changed: the lock was taken over from an owner that died, released by an owner's panic, or
    /// released by a chain that failed.
    ///
    /// The owner then completes or undoes the changes and calls [`recovered`](Self::recovered). Until then each next owner is notified, too. A
    /// critical section that changes a single word needs no recovery, and need not check.
    pub fn needs_recovery(&self) -> bool {
        self.parts.needs_recovery()
    }

    /// Declares that the data under the lock is consistent again.
    pub fn recovered(&mut self) {
        self.parts.set_needs_recovery(false);
    }

    /// Returns the lock's word after a release.
    #[inline]
    pub(super) fn word_when_free(&self) -> u64 {
        self.parts.free()
    }

    /// Returns the lock's address and state.
    #[inline]
    pub(super) fn acquisition(&self) -> &Acquisition {
        &self.parts
    }

    /// Returns the lock's word while it is held.
    #[inline]
    pub(super) fn token(&self) -> u64 {
        self.parts.token
    }

    /// A chain that releases the lock is about to be posted.
    pub(super) fn may_be_released(&mut self) {
        self.parts.may_be_released(self.ct);
    }

    /// A chain has released the lock.
    #[inline]
    pub(super) fn is_released(&mut self) {
        self.parts.is_released(self.ct);
        self.parts.set_held(Hold::No);
    }

    /// Records that the CAS has succeeded.
    pub(super) fn confirm(&mut self) {
        if self.parts.held() == Hold::Taking {
            self.parts.set_held(Hold::Yes);
        }
    }

    /// Takes the lock's address and state, for a chain that releases the lock instead of this guard.
    pub(super) fn take_parts(&mut self) -> Acquisition {
        let parts = self.parts;
        self.parts.set_held(Hold::No);
        parts
    }

    /// Returns the lock's address and state, for a chain that releases the lock instead of this guard.
    #[inline]
    pub(super) fn into_parts(self) -> Acquisition {
        let parts = self.parts;
        std::mem::forget(self);
        parts
    }

    /// Records that the CAS has failed: there is nothing to release.
    pub(super) fn forget(&mut self) {
        if self.parts.held() == Hold::Taking {
            self.ct.io.task_stack.lets_go(self.parts.token);
            self.ct.settle_token(self.parts.token);
        }
        self.parts.set_held(Hold::No);
    }

    /// Returns the lock's address.
    pub(super) fn address(&self) -> Address {
        self.parts.at
    }

    /// Releases the lock. One round trip.
    ///
    /// # Errors
    /// Those of a WRITE, with the guard, whose lock may still be held: [`ReleaseError`].
    #[inline]
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError<'ct>>> {
        at_first_poll(
            move || match self.ct.io.endpoint.immediate() {
                Some(host) if self.parts.held() == Hold::Yes => {
                    let (ct, lock) = (self.ct, self.into_parts());
                    ct.replace_here(host, lock.at, lock.token, lock.free());
                    lock.is_released(ct);
                    Ok(Ok(()))
                }
                _ => Err(self),
            },
            Self::post_release,
        )
    }

    async fn post_release(mut self) -> Result<(), ReleaseError<'ct>> {
        let Acquisition { at, token, .. } = self.parts;
        let free = self.parts.free();
        let mut chain = self.ct.empty_chain();
        match self.parts.held() {
            Hold::Yes => {
                chain.replace(at, token, free);
            }
            // Another thread may own the lock by now.
            Hold::Taking | Hold::Releasing => {
                chain.compare_exchange(at, token, free);
            }
            Hold::No => return Ok(()),
        }
        let released = self.ct.submit(chain);
        // Once posted, the WRITE takes effect also if this future is dropped. A second WRITE could hit the next owner's lock.
        self.parts.set_held(Hold::Releasing);
        match released.await {
            Ok(_) => {
                self.ct.io.task_stack.lets_go(token);
                self.ct.settle_token(token);
                self.parts.set_held(Hold::No);
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
