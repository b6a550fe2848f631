//! Several locks, and what they protect, in one round trip.

use crate::cluster::ComputeThread;
use crate::error::{Error, Result};
use crate::layout::{Remote, try_map};
use crate::memory::guard::Guard;
use crate::place::{Lock, LockGuard, Place};
use crate::pointer::Shared;

impl Guard<'_> {
    /// Takes several locks and reads the objects that they protect, in one round trip if all are free and on one
    /// memory node.
    ///
    /// Each lock is tried before its object is read, so what is read is what the lock protects. If one is taken, those
    /// that were free are given back, and after a while all are tried again: whoever holds some never waits for others, so
    /// the order of the locks does not matter.
    ///
    /// # Errors
    /// Those of a CAS and a READ.
    pub async fn lock_and_read<'g, T: Remote, const N: usize>(
        &'g self,
        nodes: [(Place<Lock>, Shared<'g, T>); N],
    ) -> Result<[(LockGuard<'g>, T::Value<'g>); N]> {
        let ct: &'g ComputeThread = self;
        let mut backoff = ct.backoff();
        loop {
            let mut chain = ct.chain();
            let tried = nodes.map(|(lock, node)| (chain.try_lock(lock), chain.read(node)));
            chain.submit().await?;
            let got = try_map(tried, |(lock, seen)| Ok::<_, Error>((lock.get()?, seen)))?;
            if got.iter().all(|(lock, _)| lock.is_some()) {
                return try_map(got, |(lock, seen)| match lock {
                    Some(lock) => Ok((lock, seen.get()?)),
                    None => unreachable!("all are held"),
                });
            }
            // Those that were free are given back, without waiting.
            drop(got);
            backoff.wait().await;
        }
    }
}
