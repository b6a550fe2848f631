//! Barriers: all threads of a run wait for each other.
//!
//! A barrier is a named word in the [directory](super::directory): the number of the run that uses it and how many
//! arrivals that run has counted. With `n` threads, arrivals `k * n` to `k * n + n - 1` are one use; a thread waits
//! until the count has reached the end of its use. A new run starts over at 0, whatever an earlier one left behind.
//!
//! Where other processes have runs of their own, whose barriers may have the same names, the count of a run of one process is not
//! in far memory but in its own; it works the same. That of a [group](super::group) has the group's name before it.
//!
//! A thread that has ended can not arrive. Whoever waits looks for that and gets [`Error::BarrierBroken`].

use super::ComputeThread;
use super::directory::barrier_entry;
use crate::error::{self, Error, Result};
use crate::task::Backoff;

/// How often a thread looks at a barrier between two looks whether the other processes of its run are there.
const LOOKS_PER_SEARCH: u32 = 64;
/// Bits of the count; the run's number has the others.
const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

impl ComputeThread {
    /// Waits until every thread of the run has called it with the same name as often as this one.
    ///
    /// A name can be used again and again; each use is a barrier of its own. One task of each thread takes part. Costs
    /// four round trips, and one for each time the thread looks again; none in a run of one process on `shm:` or `rdma:`.
    ///
    /// # Errors
    /// [`Error::BarrierBroken`] if a thread ends without arriving; [`Error::InvalidName`] and
    /// [`Error::DirectoryFull`] as for roots.
    pub async fn barrier(&self, name: &str) -> Result<()> {
        let at = match self.run.joint() {
            Some(joint) => barrier_entry(self, &joint.group.qualify(name)).await?,
            None if self.cluster().shared.has_strangers() => return self.barrier_here(name).await,
            None => barrier_entry(self, name).await?,
        };
        let run = self.run.number() & (u64::MAX >> COUNT_BITS);
        let threads = self.threads() as u64;
        let arrival = loop {
            let word = self.read_word(at).await?;
            if word >> COUNT_BITS == run {
                // One FAA, however many arrive at once.
                break self.fetch_add_word(at, 1).await? & COUNT_MASK;
            }
            if self.compare_exchange_word(at, word, run << COUNT_BITS | 1).await? == word {
                break 0;
            }
        };
        let complete = (arrival / threads + 1) * threads;
        let mut backoff = Backoff::for_others(self);
        let mut looks = 0_u32;
        loop {
            // In this order: a thread that arrived and then ended is counted before it is missed.
            let mut departed = self.run.anyone_departed();
            looks += 1;
            if let Some(joint) = self.run.joint()
                && looks.is_multiple_of(LOOKS_PER_SEARCH)
            {
                self.cluster().shared.check_memory_node()?;
                departed |= joint.anyone_departed(self).await?;
            }
            let word = self.read_word(at).await?;
            // Another run that uses the name has counted from 0: this run is over, so everyone had arrived.
            if word >> COUNT_BITS != run || word & COUNT_MASK >= complete {
                return Ok(());
            }
            if departed {
                let arrived = (word & COUNT_MASK) - (complete - threads);
                return Err(Error::from(error::BarrierBroken { name: name.into(), arrived, threads }));
            }
            backoff.wait().await;
        }
    }

    /// As [`barrier`](Self::barrier), among threads of one process.
    async fn barrier_here(&self, name: &str) -> Result<()> {
        let threads = self.threads() as u64;
        let complete = (self.run.arrive(name) / threads + 1) * threads;
        let mut backoff = Backoff::for_others(self);
        loop {
            let departed = self.run.anyone_departed();
            let count = self.run.arrivals(name);
            if count >= complete {
                return Ok(());
            }
            if departed {
                let arrived = count - (complete - threads);
                return Err(Error::from(error::BarrierBroken { name: name.into(), arrived, threads }));
            }
            backoff.wait().await;
        }
    }
}
