//! Several locks, and the objects that they protect, in one round trip.

use crate::cell::lock::expected_after;
use crate::cell::{Lock, LockGuard, Pending, PendingLock, Place};
use crate::error::{Error, Result};
use crate::io::Purpose;
use crate::io::operations::*;
use crate::io::{OwnLock, wait_for_locks};
use crate::pointer::Guard;
use crate::pointer::Shared;
use crate::session::ComputeThread;
use farfield_words::{Remote, try_map};

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
    pub async fn lock_and_read<'g, T: Remote, const N: usize>(
        &'g self,
        nodes: [(Place<'g, Lock>, Shared<'g, T>); N],
    ) -> Result<[(LockGuard<'g>, T::Value<'g>); N]> {
        let ct: &'g ComputeThread = self;
        let found = match self.try_to_lock_and_read(nodes, [0; N]).await? {
            Ok(got) => return Ok(got),
            Err(found) => found,
        };
        let own = [const { OwnLock::new() }; N];
        wait_for_locks(&ct.io.task_stack, &own, self.wait_to_lock_and_read(nodes, &own, found)).await
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
        let mut chain = self.chain();
        let mut index = 0;
        let tried = nodes.map(|(lock, node)| {
            index += 1;
            (chain.try_lock_from(lock, expected[index - 1]), chain.read(node))
        });
        chain.submit().await?;
        let mut are_taken = true;
        for (lock, _) in &tried {
            are_taken &= lock.is_taken()?;
        }
        if are_taken {
            let get = |(lock, seen): (PendingLock<'g>, Pending<'g, _>)| {
                let lock = lock.confirmed().expect("its outcome is read once");
                Ok::<_, Error>((lock, seen.get()?))
            };
            return try_map(tried, get).map(Ok);
        }
        // Dropping the guards releases the locks that were taken.
        let found = try_map(tried, |(lock, _)| {
            Ok::<_, Error>(match lock.get_or_word()? {
                Ok(lock) => Ok(lock.word_when_free()),
                Err(word) => Err(word),
            })
        });
        found.map(Err)
    }
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
