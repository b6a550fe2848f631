//! Several locks, and what they protect, in one round trip.

use crate::cluster::ComputeThread;
use crate::error::{Error, Result};
use crate::layout::{Remote, try_map};
use crate::memory::guard::Guard;
use crate::place::lock::expected_after;
use crate::place::{Lock, LockGuard, Place};
use crate::pointer::Shared;

impl Guard<'_> {
    /// Takes several locks and reads the objects that they protect, in one round trip if all are free and on one
    /// memory node.
    ///
    /// Each lock is tried before its object is read, so what is read is what the lock protects. If one is taken, those
    /// that were free are given back, and after a while all are tried again: whoever holds some never waits for others, so
    /// the order of the locks does not matter. A lock whose owner is gone is taken from it: see
    /// [`LockGuard::needs_recovery`].
    ///
    /// # Errors
    /// Those of a CAS and a READ.
    pub async fn lock_and_read<'g, T: Remote, const N: usize>(
        &'g self,
        nodes: [(Place<'g, Lock>, Shared<'g, T>); N],
    ) -> Result<[(LockGuard<'g>, T::Value<'g>); N]> {
        let ct: &'g ComputeThread = self;
        let mut backoff = ct.backoff();
        let mut expected = [0; N];
        for attempts in 1.. {
            let mut chain = self.chain();
            let mut index = 0;
            let tried = nodes.map(|(lock, node)| {
                index += 1;
                (chain.try_lock_from(lock, expected[index - 1]), chain.read(node))
            });
            chain.submit().await?;
            let got = try_map(tried, |(lock, seen)| Ok::<_, Error>((lock.get_or_word()?, seen)))?;
            if got.iter().all(|(lock, _)| lock.is_ok()) {
                return try_map(got, |(lock, seen)| match lock {
                    Ok(lock) => Ok((lock, seen.get()?)),
                    Err(_) => unreachable!("all are held"),
                });
            }
            let found = got.each_ref().map(|(lock, _)| match lock {
                Ok(lock) => Ok(lock.word_when_free()),
                Err(word) => Err(*word),
            });
            // Those that were free are given back, without waiting.
            drop(got);
            let mut is_taken = false;
            for (expected, found) in expected.iter_mut().zip(found) {
                *expected = match found {
                    Ok(free) => free,
                    Err(word) => {
                        let next = expected_after(ct, word, attempts).await?;
                        is_taken |= next == 0;
                        next
                    }
                };
            }
            if is_taken {
                backoff.wait().await;
            }
        }
        unreachable!("it goes on until it has them all")
    }
}
