//! Barriers: all threads of a run wait for each other.
//!
//! A barrier counts arrivals. With `n` threads, arrivals `k * n` to `k * n + n - 1` belong to use `k`. A thread waits until the count has reached the
//! end of its use. Names of barriers belong to a run: other runs and roots may have the same names.
//!
//! | the run's threads are | the count is |
//! |---|---|
//! | in this process | in the run: no round trip |
//! | simulated, or in a group | in a named word of the [directory](super::roots) |
//!
//! The word holds the number of the run that uses it and that run's count. A new run starts at 0, even if an earlier run has left a count. No two runs
//! use one word at the same time: a simulated cluster has one run at a time, and names in a group begin with the group's name.
//!
//! A thread that has ended can not arrive. Waiting threads detect that, and return [`Error::BarrierBroken`].

use super::roots::{barrier_entry, check_name};
use crate::error::{self, Error, Result};
use crate::io::Purpose;
use crate::io::Retry;
use crate::io::operations::*;
#[cfg(doc)]
use crate::session::Cluster;
use crate::session::ComputeThread;
use farfield_sim::Plant;

/// The number of polls of a barrier between two checks that the other processes of the run are connected.
const LOOKS_PER_SEARCH: u32 = 64;
/// Bits of the count. The run's number takes the others.
const COUNT_BITS: u32 = 40;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Reports to the simulator that a task waits at a barrier.
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
    /// A name can be used again: each use is a barrier of its own. Names belong to the run, so other runs and roots may use the same ones. One task
    /// of each thread should call it.
    ///
    /// No round trip if all threads of the run are in one process. On `sim:` and in a [group](Cluster::in_group) it takes four, and one for each
    /// poll.
    ///
    /// # Errors
    /// [`Error::BarrierBroken`] if a thread ends without arriving. [`Error::InvalidName`] for a name that is empty or longer than 47 bytes; in a
    /// group the group's name and a `/` count, too. [`Error::DirectoryFull`] for more than 128 names of roots and barriers, on `sim:` and in groups.
    pub async fn barrier(&self, name: &str) -> Result<()> {
        self.wait_at_barrier(name).await?;
        self.passes_quiescent_point();
        Ok(())
    }

    async fn wait_at_barrier(&self, name: &str) -> Result<()> {
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
                // One FAA, however many threads arrive concurrently.
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
            // The order matters: a thread that arrived and then ended must be counted before its end is seen.
            let mut departed = self.run.has_departures() && !self.has(Plant::EndlessBarrier);
            looks += 1;
            if let Some(joint) = self.run.joint()
                && looks.is_multiple_of(LOOKS_PER_SEARCH)
            {
                self.cluster().shared.check_memory_node()?;
                departed |= joint.has_departures(self).await?;
            }
            let word = self.read_word(at).await?;
            // Another run has reset the word, so this run is over, and all its threads had arrived.
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

    /// Like [`barrier`](Self::barrier), for a run within one process.
    async fn barrier_here(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let threads = self.threads() as u64;
        let complete = self.run.arrive(name);
        let mut backoff = Retry::for_peers(self.worker());
        loop {
            // The order matters: a thread that arrived and then ended must be counted before its end is seen.
            let departed = self.run.has_departures();
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
