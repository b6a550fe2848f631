//! Sole membership: exclusion of other processes while one collects memory, or saves or restores a checkpoint.
//!
//! A process that joins meanwhile waits. The two exclude each other like in Dekker's algorithm: a joining process writes its record and then
//! checks for a collector; a collector announces itself and then checks for records. So at least one of them sees the other.

use std::time::Duration;

use crate::error::{self, Error, Result};
use crate::io::operations::*;
use crate::io::{Exchange, Purpose};
use crate::segment::control;
use crate::segment::record::SeenMember;
use crate::session::ComputeThread;

/// The time for which a joining process waits for one that excludes it. A checkpoint of a large memory takes longer. Without a limit a corrupt word
/// that names a live process would block it for ever.
const PATIENCE: Duration = Duration::from_secs(8);

/// Excludes other processes from joining, until it is dropped, also by an error.
struct SoleMember<'a> {
    ct: &'a ComputeThread,
    word: u64,
}

impl SoleMember<'_> {
    /// Admits other processes again. One round trip.
    async fn end(self) -> Result<()> {
        let mut chain = self.ct.empty_chain();
        chain.replace(control::collector(), self.word, 0);
        self.ct.submit(chain).await?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for SoleMember<'_> {
    fn drop(&mut self) {
        self.ct.compensate(Exchange::of_word(control::collector(), self.word, 0));
    }
}

impl ComputeThread {
    /// Excludes other processes if this one is the only member. `collector` is the word of the previous collector.
    async fn exclude_others(&self, me: u32, collector: u64) -> Result<Option<SoleMember<'_>>> {
        // A previous collector that has died is no member.
        let is_free = collector == 0 || !self.is_member(collector - 1).await?;
        if !is_free || self.may_still_exchange(control::collector()) {
            return Ok(None);
        }
        let word = u64::from(me) + 1;
        if self.compare_exchange_word(control::collector(), collector, word).await? != collector {
            return Ok(None);
        }
        let alone = SoleMember { ct: self, word };
        let is_alone = self.members().await?.iter().all(|member| member.identity == me);
        if !is_alone {
            alone.end().await?;
            return Ok(None);
        }
        // This process's keeper may be sweeping. It checks for a collector like other processes, so it starts no new sweep.
        let (mut backoff, began) = (self.retry().bounded(), self.now());
        while self.read_word(control::sweeper()).await? == word {
            if self.now().saturating_sub(began) > PATIENCE {
                alone.end().await?;
                return Ok(None);
            }
            backoff.wait_for(Purpose::Collector(word - 1)).await;
        }
        Ok(Some(alone))
    }

    /// Runs `body` if this process is the cluster's only member; otherwise returns the other members.
    pub(crate) async fn while_alone<R>(
        &self,
        body: impl AsyncFnOnce(&Self) -> Result<R>,
    ) -> Result<Result<R, Vec<SeenMember>>> {
        let Some(me) = self.process.member().map(|member| member.identity) else {
            return Ok(Err(Vec::new()));
        };
        let collector = self.read_word(control::collector()).await?;
        let Some(alone) = self.exclude_others(me, collector).await? else {
            let mut others = self.members().await?;
            others.retain(|other| other.identity != me);
            return Ok(Err(others));
        };
        let done = body(self).await;
        alone.end().await?;
        done.map(Ok)
    }

    /// Waits until no process collects memory. For a process that has written its record.
    pub(crate) async fn wait_for_collector(&self, me: u32) -> Result<()> {
        let (mut backoff, began) = (self.retry().bounded(), self.now());
        loop {
            let collector = self.read_word(control::collector()).await?;
            if collector == 0 || collector == u64::from(me) + 1 || !self.is_member(collector - 1).await? {
                return Ok(());
            }
            self.cluster().shared.check_memory_node()?;
            if self.now().saturating_sub(began) > PATIENCE {
                let (address, process) = (self.cluster().url().into(), collector - 1);
                let reason =
                    format!("process {process} excludes others for a checkpoint or a collection").into();
                return Err(Error::from(error::CannotConnect { address, reason }));
            }
            backoff.wait_for(Purpose::Collector(collector - 1)).await;
        }
    }

    /// Returns whether a process with this identity is a member, and is not gone.
    pub(crate) async fn is_member(&self, identity: u64) -> Result<bool> {
        let members = self.members().await?;
        Ok(members.iter().any(|member| u64::from(member.identity) == identity && !member.is_gone()))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
