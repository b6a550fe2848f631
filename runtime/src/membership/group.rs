//! Groups: several processes that run together.
//!
//! A process that is part `k` of `n` of a group writes `k`, `n` and its number of threads into its [record](super::members), and waits. Once
//! all `n` parts wait, part 0 draws a number for the run and writes it into each part's record, together with the identity that it has read
//! there. Each part waits for this word. Then it reads all parts' records, numbers the threads, those of part 0 first, and writes into its
//! record that it has *entered*. No part begins before all have entered, so all have read the same records: a record changes only when its
//! process begins another run.
//!
//! Threads that wait at a barrier detect a part that has ended or has begun another run: its record is gone, or has another run.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{self, Error, Result};
use crate::io::block_on;
use crate::io::operations::*;
use crate::segment::control;
use crate::segment::control::Record;
use crate::segment::record::{DEPARTED_SHIFT, SeenMember};
use crate::session::group::{Group, Joint};
use crate::session::run::Run;
use crate::session::{Cluster, ComputeThread};
use farfield_words::Address;
use farfield_words::fingerprint;

/// The interval between reads of the other parts' records.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// A flag in a record's round while the part waits. The lower bits are the number of its threads.
const WAITS: u64 = 1 << 32;
/// A flag in the round once the part has read all parts of the run. The higher bits are the number of its threads that have ended.
const ENTERED: u64 = 1 << 33;
const _: () = assert!(ENTERED << 1 == 1 << DEPARTED_SHIFT);
const THREADS: u64 = WAITS - 1;
/// The number of bits of a run's number, which shares a word with a barrier's count.
const RUN_BITS: u32 = 24;

impl Cluster {
    /// The same cluster, for runs of several processes: this one is part `part` of `parts` of the group called `name`.
    ///
    /// [`run`](Self::run) then waits until all parts call it. The threads of all parts are numbered consecutively,
    /// [`threads`](ComputeThread::threads) counts all of them, and a [`barrier`](ComputeThread::barrier) waits for all. `run`
    /// returns the values of this process's threads.
    ///
    /// A part that ends breaks the barriers at which the others wait. It can be restarted for the next run.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such part, if the name contains `/`, or for several parts where a cluster has only one process (`local:`, `sim:`).
    pub fn in_group(&self, name: &str, part: u16, parts: u16) -> Result<Self> {
        let invalid = |reason| {
            let value = format!("part {part} of {parts}").into();
            Err(Error::from(error::InvalidArgument { argument: "group", value, reason }))
        };
        if part >= parts {
            return invalid("parts are numbered from 0");
        }
        if name.contains('/') {
            return invalid("its name contains `/`, which separates it from the name of a barrier");
        }
        if parts > 1 && !self.shared.is_shared() {
            return invalid("the cluster is private to this process: several parts need `shm:` or `rdma:`");
        }
        let mut cluster = self.clone();
        cluster.group = (parts > 1).then(|| Arc::new(Group { name: name.into(), part, parts }));
        Ok(cluster)
    }

    /// Runs `body` on a thread of its own while this process is the cluster's only member.
    pub(crate) fn alone<R>(
        &self,
        what: &'static str,
        body: impl AsyncFnOnce(&ComputeThread) -> Result<R>,
    ) -> Result<R> {
        let invalid = |reason| {
            let value = format!("of {}", self.url()).into();
            Err(Error::from(error::InvalidArgument { argument: what, value, reason }))
        };
        if !self.shared.is_shared() {
            return invalid("it is for clusters that several processes can share");
        }
        if self.shared.active_runs() > 0 {
            return invalid("runs are active");
        }
        let run = Arc::new(Run::in_background(self)?);
        let ct = ComputeThread::new(self, &run, 0);
        let done = block_on(ct.worker(), async {
            let done = ct.while_alone(body).await;
            ct.release_heap().await;
            ct.leave_members().await;
            done
        });
        done?.map_err(|others| in_the_way(what, &others))
    }

    /// Waits for the other parts, if this process is one of several. Returns their agreement.
    pub(crate) fn meet(&self, threads: usize) -> Result<Option<Joint>> {
        let Some(group) = &self.group else { return Ok(None) };
        let run = Arc::new(Run::in_background(self)?);
        let ct = ComputeThread::new(self, &run, 0);
        let met = block_on(ct.worker(), async {
            let met = meet(&ct, group, threads).await;
            ct.leave_members().await;
            met
        });
        met.map(Some)
    }
}

/// The error for an operation that requires a cluster without other processes.
pub(crate) fn in_the_way(what: &'static str, others: &[SeenMember]) -> Error {
    let others: Vec<_> =
        others.iter().map(|other| format!("{} (pid {})", other.identity, other.pid())).collect();
    let value = match others.as_slice() {
        [] => "beside a process that has just left".to_owned(),
        [one] => format!("beside process {one}"),
        several => format!("beside processes {}", several.join(", ")),
    };
    let reason = "it needs a cluster that no other process uses: end those first";
    Error::from(error::InvalidArgument { argument: what, value: value.into(), reason })
}

impl Group {
    fn word(&self) -> u64 {
        self.name_word() | u64::from(self.part) << 16 | u64::from(self.parts)
    }

    fn name_word(&self) -> u64 {
        fingerprint::name(&self.name) >> 32 << 32
    }

    /// The word of another part.
    fn word_of(&self, part: u16) -> u64 {
        Self { part, ..self.clone() }.word()
    }

    fn broken(&self, part: u16) -> Error {
        Error::from(error::GroupBroken { group: self.name.clone(), part, parts: self.parts })
    }

    /// Checks that other parts agree with this one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if one has another number of parts, or the same part.
    fn check(&self, members: &[SeenMember], me: u32) -> Result<()> {
        let invalid = |value: String, reason| {
            Err(Error::from(error::InvalidArgument { argument: "group", value: value.into(), reason }))
        };
        let others = members.iter().filter(|other| other.identity != me && !other.is_gone());
        for other in others.filter(|other| other.words.group >> 32 << 32 == self.name_word()) {
            let (part, parts) = (other.words.group >> 16 & 0xffff, other.words.group & 0xffff);
            let (pid, name) = (other.pid(), &self.name);
            if parts != u64::from(self.parts) {
                let value = format!("{} parts of `{name}`", self.parts);
                tracing::info!(pid, parts, "the group has another number of parts");
                return invalid(value, "another process of the group has another number of parts");
            }
            // Of two processes with one part, the one with the larger identity fails.
            if part == u64::from(self.part) && other.identity < me {
                let value = format!("part {part} of `{name}`");
                tracing::info!(pid, part, "the part is taken");
                return invalid(value, "another process already has this part");
            }
        }
        Ok(())
    }

    /// A fitting process for each part, in order. The error is the first part without one.
    fn parts<'a>(
        &self,
        members: &'a [SeenMember],
        fits: impl Fn(&SeenMember) -> bool,
    ) -> Result<Vec<&'a SeenMember>, u16> {
        let find = |part| {
            let word = self.word_of(part);
            let found =
                members.iter().find(|member| member.words.group == word && !member.is_gone() && fits(member));
            found.ok_or(part)
        };
        (0..self.parts).map(find).collect()
    }
}

async fn meet(ct: &ComputeThread, group: &Group, threads: usize) -> Result<Joint> {
    let Some(member) = ct.process.member() else {
        return Err(Error::other("a process without a record can not be part of a group"));
    };
    let (me, record) = (member.identity, member.record());
    group.check(&ct.members().await?, me)?;
    // The group, the round, in which no thread has ended, and no run.
    let words = [group.word(), WAITS | threads as u64, 0];
    member.note_group();
    ct.write_words(Record::group(record), &words).await?;
    let joint = enter(ct, group, me, record, threads).await;
    if joint.is_err() {
        // Another process may have the part.
        ct.write_words(Record::group(record), &[0; 3]).await?;
    }
    joint
}

/// Waits for a run, reads its parts, and waits until all have entered.
async fn enter(ct: &ComputeThread, group: &Group, me: u32, record: Address, threads: usize) -> Result<Joint> {
    let number = wait_for_run(ct, group, me, Record::run(record)).await?;
    let members = ct.members().await?;
    let parts = group.parts(&members, |member| member.run() >> 32 == number);
    let parts = parts.map_err(|part| group.broken(part))?;
    let threads_of = |part: &&SeenMember| (part.words.round & THREADS) as usize;
    let joint = Joint {
        group: group.clone(),
        number,
        first: parts.iter().take(usize::from(group.part)).map(threads_of).sum(),
        threads: parts.iter().map(threads_of).sum(),
        roster: parts.iter().map(|part| part.identity).collect(),
        record,
    };
    ct.write_word(Record::round(record), ENTERED | threads as u64).await?;
    // Parts that are gone, have given up, or are already in another run are skipped.
    let is_entering = |member: &SeenMember| {
        let is_part = member.words.group >> 32 << 32 == group.name_word() && member.run() >> 32 == number;
        is_part && !member.is_gone() && member.words.round & ENTERED == 0
    };
    let _waiting = ct.waits_for(|| format!("the other parts of the group `{}` to enter the run", group.name));
    while ct.members().await?.iter().any(is_entering) {
        ct.cluster().shared.check_memory_node()?;
        ct.park(POLL_INTERVAL);
    }
    Ok(joint)
}

/// Waits until all parts wait and part 0 has drawn a number for the run. Returns the number.
async fn wait_for_run(ct: &ComputeThread, group: &Group, me: u32, mine: Address) -> Result<u64> {
    let _waiting = ct.waits_for(|| {
        format!(
            "all {} parts of the group `{}`, of which this is part {}",
            group.parts, group.name, group.part
        )
    });
    loop {
        let word = ct.read_word(mine).await?;
        if word & u64::from(u32::MAX) == u64::from(me) && word >> 32 > 0 {
            return Ok(word >> 32);
        }
        ct.cluster().shared.check_memory_node()?;
        let members = ct.members().await?;
        group.check(&members, me)?;
        if group.part == 0
            && let Ok(parts) = group.parts(&members, |member| member.words.round & WAITS != 0)
        {
            let number = ct.fetch_add_word(control::runs_of_groups(), 1).await? % ((1 << RUN_BITS) - 1) + 1;
            for part in parts {
                let at = Record::run(part.record());
                // The word is 0, or was written for the record's previous process.
                ct.compare_exchange_word(at, part.words.run, number << 32 | u64::from(part.identity)).await?;
            }
            continue;
        }
        ct.park(POLL_INTERVAL);
    }
}

impl Joint {
    /// Returns whether a part has ended, or a thread of it.
    pub(crate) async fn has_departures(&self, ct: &ComputeThread) -> Result<bool> {
        let members = ct.members().await?;
        let is_there = |identity: &u32| {
            members.iter().any(|member| {
                member.identity == *identity
                    && !member.is_gone()
                    && member.run() >> 32 == self.number
                    && member.departed() == 0
            })
        };
        Ok(!self.roster.iter().all(is_there))
    }
}
