//! Barriers: all threads of a run wait for each other.
//!
//! A barrier counts arrivals. With `n` threads, arrivals `k * n` to `k * n + n - 1` are one use; a thread waits until the count has
//! reached the end of its use. Names of barriers belong to a run: they are neither those of another run's barriers nor of roots.
//!
//! | threads of the run are | arrivals are counted |
//! |---|---|
//! | in this process | in the [run](super::run): no round trip |
//! | simulated, or those of a [group](super::group) | in a named word of the [directory](super::directory) |
//!
//! The word has the number of the run that uses it and how many arrivals that run has counted; a new run starts over at 0,
//! whatever an earlier one left behind. No two runs use one word at a time: a simulated cluster has one run at a time, and a group's
//! words begin with its name.
//!
//! A thread that has ended can not arrive. A thread that waits looks for that and gets [`Error::BarrierBroken`].

use super::roots::{barrier_entry, check_name};
use crate::error::{self, Error, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
#[cfg(doc)]
use crate::session::Cluster;
use crate::session::ComputeThread;
use farfield_sim::Plant;

/// How often a thread looks at a barrier between two looks whether the other processes of its run are there.
const LOOKS_PER_SEARCH: u32 = 64;
/// Bits of the count; the run's number has the others.
const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Tells the simulator who waits at which barrier.
struct Arrived<'a> {
    ct: &'a ComputeThread,
    barrier: &'a str,
}

impl<'a> Arrived<'a> {
    fn at(ct: &'a ComputeThread, barrier: &'a str) -> Self {
        if let Some(sim) = ct.io.endpoint.virtual_time() {
            sim.enters_barrier(barrier);
        }
        Self { ct, barrier }
    }
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        if let Some(sim) = self.ct.io.endpoint.virtual_time() {
            sim.leaves_barrier(self.barrier);
        }
    }
}

impl ComputeThread {
    /// Waits until every thread of the run has called it with the same name as often as this one.
    ///
    /// A name can be used again and again; each use is a barrier of its own. Names belong to the run: other runs and roots may have the
    /// same. One task of each thread takes part.
    ///
    /// No round trip where all threads of the run are in one process. On `sim:` and in a [group](Cluster::in_group) four, and one for
    /// each time that the thread looks again.
    ///
    /// # Errors
    /// [`Error::BarrierBroken`] if a thread ends without arriving; [`Error::InvalidName`] for a name that is empty or longer than
    /// 47 bytes, of which in a group that name and a `/` take their part; [`Error::DirectoryFull`] past 128 names of roots and
    /// barriers, on `sim:` and in groups.
    pub async fn barrier(&self, name: &str) -> Result<()> {
        self.compensate_now().await;
        let at = match self.run.joint() {
            Some(joint) => barrier_entry(self, &joint.group.qualify(name)).await?,
            None if self.cluster().shared.world().is_none() => return self.barrier_here(name).await,
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
        let _arrived = Arrived::at(self, name);
        let mut backoff = Retry::for_peers(self.worker());
        let mut looks = 0_u32;
        loop {
            // In this order: a thread that arrived and then ended is counted before it is missed.
            let mut departed = self.run.anyone_departed() && !self.has(Plant::EndlessBarrier);
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
                let arrived = (word & COUNT_MASK).saturating_sub(complete - threads);
                return Err(Error::from(error::BarrierBroken { name: name.into(), arrived, threads }));
            }
            let arrived = (word & COUNT_MASK).saturating_sub(complete - threads);
            backoff.wait_for(Purpose::Barrier { name, arrived, threads }).await;
        }
    }

    /// As [`barrier`](Self::barrier), among threads of one process.
    async fn barrier_here(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let threads = self.threads() as u64;
        let complete = self.run.arrive(name);
        let mut backoff = Retry::for_peers(self.worker());
        loop {
            // In this order: a thread that arrived and then ended is counted before it is missed.
            let departed = self.run.anyone_departed();
            let Err(count) = self.run.pass(name, complete) else { return Ok(()) };
            if departed {
                let arrived = count - (complete - threads);
                return Err(Error::from(error::BarrierBroken { name: name.into(), arrived, threads }));
            }
            let arrived = count - (complete - threads);
            backoff.wait_for(Purpose::Barrier { name, arrived, threads }).await;
        }
    }
}
