//! Several locks, and the objects that they protect, in one round trip.

use std::sync::atomic::AtomicU64;
use std::thread::panicking;

use crate::cell::chain::taken_twice;
use crate::cell::lock::expected_after;
use crate::cell::op::{read, try_lock_from};
use crate::cell::read::check_aligned;
use crate::cell::{Lock, LockGuard, Place};
use crate::error::{Error, Result};
use crate::io::Purpose;
use crate::io::operations::*;
use crate::io::{FirstPoll, OwnLock, at_first_poll, wait_for_locks};
use crate::pointer::Guard;
use crate::pointer::Shared;
use crate::session::ComputeThread;
use farfield_fabric::host::{Host, load};
use farfield_words::scratch::{Scratch, bytes};
use farfield_words::{Address, Remote, WORD_BYTES, try_array};

impl Guard<'_> {
    /// Takes several locks and reads the objects that they protect: one round trip if all are free and on one memory node.
    ///
    /// Each lock is tried before its object is read, so the lock covers the READ. If one is held, the others are released, and all are retried after
    /// a backoff. The thread never waits while it holds some of them, so the order of the locks does not matter. A lock whose owner is gone is taken
    /// over: see [`LockGuard::needs_recovery`].
    ///
    /// # Errors
    /// Those of a CAS and a READ. [`Error::LockTakenTwice`] if a lock is listed twice, or belongs to this task (see
    /// [`Place::<Lock>::acquire`](Place#method.acquire)).
    #[inline]
    pub fn lock_and_read<'g, T: Remote, const N: usize>(
        &'g self,
        nodes: [(Place<'g, Lock>, Shared<'g, T>); N],
    ) -> impl Future<Output = Result<[(LockGuard<'g>, T::Value<'g>); N]>> {
        let attempt = LockAndRead { guard: self, nodes, held: None };
        at_first_poll(attempt, |attempt| self.post_lock_and_read(attempt.nodes, attempt.held))
    }

    /// Takes the locks and reads the objects by chains. `held` is a lock that was found to be held, and its word.
    async fn post_lock_and_read<'g, T: Remote, const N: usize>(
        &'g self,
        nodes: [(Place<'g, Lock>, Shared<'g, T>); N],
        held: Option<Held>,
    ) -> Result<[(LockGuard<'g>, T::Value<'g>); N]> {
        let found = match held {
            Some((held, word)) => std::array::from_fn(|index| if index == held { Err(word) } else { Ok(0) }),
            None => match self.try_to_lock_and_read(nodes, [0; N]).await? {
                Ok(got) => return Ok(got),
                Err(found) => found,
            },
        };
        let own = [const { OwnLock::new() }; N];
        wait_for_locks(&self.io.task_stack, &own, self.wait_to_lock_and_read(nodes, &own, found)).await
    }

    /// Takes all locks that are free and reads the objects, on an immediate fabric: the accesses of
    /// [`try_to_lock_and_read`](Self::try_to_lock_and_read) without a chain, up to the first lock that is held.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn lock_and_read_here<'g, T: Remote, const N: usize>(
        &'g self,
        host: &Host,
        nodes: &[(Place<'g, Lock>, Shared<'g, T>); N],
    ) -> Result<[(LockGuard<'g>, T::Value<'g>); N], Stop> {
        let ct: &'g ComputeThread = self;
        for (index, (lock, _)) in nodes.iter().enumerate() {
            if nodes[..index].iter().any(|(earlier, _)| earlier.address() == lock.address()) {
                return Err(Stop::Failed(taken_twice(lock.address())));
            }
        }
        ct.io.task_stack.makes_step();
        // All that can fail comes before the locks are taken, except that a lock may be held and a value invalid.
        let words = Scratch::<T::Cell>::WORDS;
        let objects: [&[AtomicU64]; N] = try_array(|index| {
            let at = nodes[index].1.address();
            check_aligned(at, align_of::<T::Cell>()).and_then(|()| Ok(host.words(at, words)?))
        })
        .map_err(Stop::Failed)?;
        ct.accesses();
        ct.posts_chain();
        let mut tokens = [0; N];
        for index in 0..N {
            tokens[index] = ct.token();
            let found = host.compare_exchange(nodes[index].0.address(), 0, tokens[index]);
            if !found.as_ref().is_ok_and(|found| *found == 0) {
                return Err(self.stop(nodes, tokens, index, found));
            }
            ct.io.task_stack.takes(tokens[index]);
        }
        let addresses = nodes.iter().flat_map(|(lock, node)| [lock.address(), node.address()]);
        ct.count_chained(2 * N as u64 - self.count_parts(addresses).min(2 * N as u64));
        ct.io.counters.exchanges.add_all(N as u32, 0);
        ct.io.counters.reads.add_all(N as u32, (N * words) as u32);
        let is_panicking = panicking();
        try_array(|index| {
            let (lock, node) = nodes[index];
            let guard = LockGuard::held(ct, lock.address(), tokens[index], is_panicking);
            let mut scratch = Scratch::<T::Cell>::new();
            match T::decode(node.address(), bytes(load(objects[index], scratch.words()))) {
                Ok(value) => Ok((guard, value)),
                Err(error) => {
                    self.release_all(&nodes[index + 1..], &tokens[index + 1..]);
                    Err(Stop::Failed(error.into()))
                }
            }
        })
    }

    /// Returns the number of parts of a chain with accesses to these addresses.
    #[inline(always)]
    #[allow(clippy::inline_always)] // mostly it is 1
    fn count_parts(&self, addresses: impl Iterator<Item = Address>) -> u64 {
        if self.nodes() == 1 {
            return 1;
        }
        let mut last = None;
        let nodes = addresses.map(|at| Some(self.node_of(at)));
        nodes.filter(|node| std::mem::replace(&mut last, *node) != *node).count() as u64
    }

    /// Ends an attempt whose CAS on lock `index` has `found` another word, or an error: releases the locks that were taken.
    #[cold]
    fn stop<'g, T: Remote, const N: usize>(
        &'g self,
        nodes: &[(Place<'g, Lock>, Shared<'g, T>); N],
        tokens: [u64; N],
        index: usize,
        found: farfield_fabric::Result<u64>,
    ) -> Stop {
        self.settle_token(tokens[index]);
        let parts = self.count_parts(nodes[..=index].iter().map(|(lock, _)| lock.address()));
        self.io.counters.exchanges.add_all(index as u32 + 1, u32::from(found.is_ok()));
        self.count_chained(index as u64 + 1 - parts);
        self.release_all(&nodes[..index], &tokens);
        found.map_or_else(|error| Stop::Failed(error.into()), |word| Stop::Held { index, word })
    }

    #[cold]
    fn release_all<'g, T: Remote>(&'g self, nodes: &[(Place<'g, Lock>, Shared<'g, T>)], tokens: &[u64]) {
        for ((lock, _), token) in nodes.iter().zip(tokens) {
            drop(LockGuard::held(self, lock.address(), *token, panicking()));
        }
    }

    async fn wait_to_lock_and_read<'g, T: Remote, const N: usize>(
        &'g self,
        nodes: [(Place<'g, Lock>, Shared<'g, T>); N],
        own: &[OwnLock; N],
        mut found: [Result<u64, u64>; N],
    ) -> Result<[(LockGuard<'g>, T::Value<'g>); N]> {
        let ct: &'g ComputeThread = self;
        let mut backoff = ct.retry();
        for attempts in 1.. {
            let mut expected = [0; N];
            let mut is_taken = false;
            for index in 0..N {
                expected[index] = match found[index] {
                    Ok(free) => {
                        own[index].is_free();
                        free
                    }
                    Err(word) => {
                        let lock = nodes[index].0.address();
                        let next = expected_after(ct, lock, &own[index], word, attempts).await?;
                        if next == 0 {
                            backoff.waits_for(lock);
                        }
                        is_taken |= next == 0;
                        next
                    }
                };
            }
            if is_taken {
                backoff.wait_for(waits_for(&nodes, &expected, &found)).await;
            }
            match self.try_to_lock_and_read(nodes, expected).await? {
                Ok(got) => return Ok(got),
                Err(now) => found = now,
            }
        }
        unreachable!("the loop ends with all locks")
    }

    /// Takes all locks whose words are as expected, and reads the objects. If one word differs, the locks that were taken are released without
    /// waiting. Returns for each lock its word after that release, or as an error the word that was found.
    async fn try_to_lock_and_read<'g, T: Remote, const N: usize>(
        &'g self,
        nodes: [(Place<'g, Lock>, Shared<'g, T>); N],
        expected: [u64; N],
    ) -> Result<Result<[(LockGuard<'g>, T::Value<'g>); N], [Result<u64, u64>; N]>> {
        let mut index = 0;
        let chain = self.chain(nodes.map(|(lock, node)| {
            index += 1;
            (try_lock_from(lock, expected[index - 1]), read(node))
        }));
        let tried = chain.submit().await?;
        if tried.iter().all(|(lock, _)| lock.is_ok()) {
            return Ok(Ok(tried.map(|(lock, seen)| match lock {
                Ok(guard) => (guard, seen),
                Err(_) => unreachable!("all are taken"),
            })));
        }
        // Dropping the guards releases the locks that were taken.
        Ok(Err(tried.map(|(lock, _)| lock.map(|lock| lock.word_when_free()))))
    }
}

/// A lock that was found to be held: its index and its word.
type Held = (usize, u64);

/// An attempt to take locks and read the objects on an immediate fabric.
struct LockAndRead<'g, G, T, const N: usize> {
    guard: &'g G,
    nodes: [(Place<'g, Lock>, Shared<'g, T>); N],
    held: Option<Held>,
}

impl<'g, T: Remote, const N: usize> FirstPoll for LockAndRead<'g, Guard<'g>, T, N> {
    type Output = Result<[(LockGuard<'g>, T::Value<'g>); N]>;
    type Rest = Self;

    #[inline(always)]
    #[allow(clippy::inline_always)] // or guards and values are moved through memory
    fn poll_first(mut self) -> Result<Self::Output, Self> {
        let Some(host) = self.guard.io.endpoint.immediate().filter(|_| align_of::<T::Cell>() >= WORD_BYTES)
        else {
            return Err(self);
        };
        match self.guard.lock_and_read_here(host, &self.nodes) {
            Ok(got) => Ok(Ok(got)),
            Err(Stop::Failed(error)) => Ok(Err(error)),
            Err(Stop::Held { index, word }) => {
                self.held = Some((index, word));
                Err(self)
            }
        }
    }
}

/// The end of an attempt to take several locks.
enum Stop {
    /// A lock was held, with this word.
    Held {
        index: usize,
        word: u64,
    },
    Failed(Error),
}

/// Returns the first lock that was held, with its word.
fn waits_for<T, const N: usize>(
    nodes: &[(Place<'_, Lock>, T); N],
    expected: &[u64; N],
    found: &[Result<u64, u64>; N],
) -> Purpose<'static> {
    let taken = (0..N).find(|index| expected[*index] == 0 && found[*index].is_err());
    match taken.map(|index| (nodes[index].0.address(), found[index])) {
        Some((at, Err(word))) => Purpose::Lock(at, word),
        _ => Purpose::Retry,
    }
}
