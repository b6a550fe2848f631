//! Backoff: what a retry loop does between attempts.

use std::hint::spin_loop;

use rand::RngExt;

use super::yield_now;
use crate::cluster::ComputeThread;

/// The longest spin is `1 << MAX_SHIFT` pauses.
const MAX_SHIFT: u32 = 6;

/// Waits a little longer each time, by a random amount, and always gives way to the thread's other tasks: whoever holds
/// what one waits for may be one of them.
///
/// Made by [`ComputeThread::backoff`].
///
/// ```
/// # use farfield::prelude::*;
/// async fn increment_slowly(counter: Place<Atomic<u64>>, ct: &ComputeThread) -> farfield::Result<()> {
///     let mut backoff = ct.backoff();
///     loop {
///         let seen = counter.load(ct).await?;
///         if counter.compare_exchange(ct, seen, seen + 1).await?.is_ok() {
///             return Ok(());
///         }
///         backoff.wait().await;
///     }
/// }
/// ```
pub struct Backoff<'a> {
    ct: &'a ComputeThread,
    shift: u32,
}

impl<'a> Backoff<'a> {
    pub(crate) fn new(ct: &'a ComputeThread) -> Self {
        Self { ct, shift: 0 }
    }

    /// Waits.
    pub async fn wait(&mut self) {
        let pauses = self.ct.rng().random_range(0..=1_u32 << self.shift);
        for _ in 0..pauses {
            spin_loop();
        }
        self.shift = (self.shift + 1).min(MAX_SHIFT);
        yield_now().await;
    }
}
