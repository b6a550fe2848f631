//! Descriptions of waits in reports of stalls: the holder of a lock, the thread that delays the epoch, names and barriers.
//!
//! The mechanism is in `fabric/stall`. This module adds meaning: an address belongs to a field of an object, a token names a thread, and a thread
//! belongs to a live or dead process. The other processes are known from this process's last call of `ComputeThread::members` (`membership/members.rs`). Its keeper calls it
//! every few milliseconds, so a report needs no round trip.

use std::sync::{Arc, Mutex};

use super::Cluster;
use super::run::Run;
use super::{Shared, lock};
use crate::error::Printable;
use crate::io::Purpose;
use crate::memory::process::Process;
use crate::segment::record::SeenMember;
use farfield_fabric::stall::{self, Clock, DescribeWait, Waits};
use farfield_words::Address;
use farfield_words::ThreadId;

/// The members as of the last look, for reports only.
#[derive(Default)]
pub(crate) struct Others(Mutex<Vec<Other>>);

#[derive(Clone, Copy)]
struct Other {
    identity: u32,
    pid: u32,
    is_gone: bool,
    slot: Address,
    /// The last list of a sweep that it has answered.
    sweep_answer: u64,
}

impl Others {
    fn find(&self, which: impl Fn(&Other) -> bool) -> Option<Other> {
        lock(&self.0).iter().find(|other| which(other)).copied()
    }
}

impl Shared {
    /// Describes the holder of a word with this token.
    fn holder(&self, token: u64, asks: ThreadId) -> String {
        match ThreadId::of_token(token) {
            None if token == 0 => "which was free when it was last tried".to_owned(),
            None => "which a dead owner has left locked".to_owned(),
            Some(owner) if owner == asks => "held by this thread itself, for another of its tasks".to_owned(),
            Some(owner) => format!("held by {}", self.thread(owner)),
        }
    }

    /// Describes a thread: its process, and whether it is alive.
    fn thread(&self, thread: ThreadId) -> String {
        let here = self.backing.identity();
        match self.process_of(thread).filter(|process| here.is_some_and(|here| here != *process)) {
            None if self.runs_here(thread) => format!("thread {thread} of this process, which runs"),
            None => format!("thread {thread} of this process, which has ended"),
            Some(process) => format!("thread {thread} of {}", self.process_in_words(process)),
        }
    }

    fn process_in_words(&self, process: u32) -> String {
        match self.others.find(|other| other.identity == process) {
            Some(Other { pid, is_gone: false, .. }) => {
                format!("process {process} (pid {pid}), which is alive")
            }
            Some(Other { pid, is_gone: true, .. }) => format!("process {process} (pid {pid}), which is gone"),
            None => format!("process {process}, which is gone"),
        }
    }

    /// Describes the epoch, and the thread or process that delays it.
    fn epoch_in_words(&self, run: &Run, process: &Process) -> String {
        let epoch = process.collector.epoch();
        let behind = match (process.collector.laggard(), process.behind()) {
            (Some(thread), _) => format!("thread {thread} of this process is behind, with a guard"),
            (None, Some(slot)) => match self.world().and_then(|_| run.process_in_slot(slot)) {
                Some((node, other)) => match other.collector.oldest_guard() {
                    Some((_, thread)) => {
                        format!("thread {thread} on compute node {node} is behind, with a guard")
                    }
                    None => format!("compute node {node} is behind and idle"),
                },
                None => match self.others.find(|other| other.slot == slot) {
                    Some(other) => format!("{}, is behind", self.process_in_words(other.identity)),
                    None => format!("the process with the slot {slot} is behind"),
                },
            },
            (None, None) => "no thread of this process is behind".to_owned(),
        };
        format!("the epoch is {epoch}, and {behind}")
    }

    /// Describes the processes that a sweep of this process waits for.
    fn sweep_in_words(&self, run: &Run, process: &Process) -> String {
        let (sweep_barrier, answer) = (&process.sweep_barrier, process.sweep_barrier.answer());
        let silent = sweep_barrier.unacknowledged_threads();
        if sweep_barrier.is_active() && silent > 0 {
            return format!("{silent} idle threads of this process have not answered");
        }
        match self
            .others
            .find(|other| sweep_barrier.is_active() && !other.is_gone && other.sweep_answer != answer)
        {
            Some(other) => format!("{}, has not answered", self.process_in_words(other.identity)),
            None => self.epoch_in_words(run, process),
        }
    }

    /// Returns the name of the field at an address, with a leading space, if the simulator knows it.
    fn field(&self, at: Address) -> String {
        let Some(world) = self.world() else { return String::new() };
        let field = world.lock().field_at(at);
        field.map_or_else(String::new, |field| format!(" ({field})"))
    }

    /// Makes a table of a thread's waits, if stalls are reported. Only then is the thread's description computed.
    pub(crate) fn waits_of(&self, who: impl FnOnce() -> String) -> Option<Arc<Waits>> {
        let (limit, who) = (self.stall_limit?, who());
        let Some(world) = self.world() else {
            let waits = Waits::new(who, limit, Clock::Real);
            // A system without room for the reporting thread is no reason to fail.
            return stall::watch(&waits).is_ok().then_some(waits);
        };
        let simulated = world.lock().stalls.clone()?;
        let waits = Waits::new(who, limit, Clock::Virtual(Arc::clone(&simulated.now)));
        simulated.add(&waits);
        Some(waits)
    }

    /// Stores the members, for reports.
    pub(crate) fn note_members(&self, members: &[SeenMember]) {
        if self.stall_limit.is_some() {
            let other = |seen: &SeenMember| Other {
                identity: seen.identity,
                pid: seen.pid(),
                is_gone: seen.is_gone(),
                slot: seen.slot(),
                sweep_answer: seen.words.sweep_answer,
            };
            *lock(&self.others.0) = members.iter().map(other).collect();
        }
    }
}

impl Cluster {
    /// Returns a function that describes a wait when it is reported.
    pub(crate) fn describes(
        &self,
        purpose: Purpose<'_>,
        asks: ThreadId,
        run: &Arc<Run>,
        index_here: usize,
    ) -> DescribeWait {
        let shared = Arc::clone(&self.shared);
        let (run, process) = (Arc::clone(run), Arc::clone(run.process_of(index_here)));
        match purpose {
            Purpose::Retry => Box::new(|_| "between the attempts of a retry loop".to_owned()),
            Purpose::Lock(at, _) => Box::new(move |word| {
                format!("the lock at {at}{}, {}", shared.field(at), shared.holder(word, asks))
            }),
            Purpose::WriteLock(at, _) => Box::new(move |word| {
                format!(
                    "the write lock of the value at {at}{}, {}",
                    shared.field(at),
                    shared.holder(word, asks)
                )
            }),
            Purpose::WholeValue(at, _) => Box::new(move |word| {
                format!("the value at {at}{} to be written, {}", shared.field(at), shared.holder(word, asks))
            }),
            Purpose::Name(name, _) => {
                let name = Printable(name).to_string();
                Box::new(move |word| match std::num::NonZeroU64::new(word).map(ThreadId::new) {
                    Some(by) => format!("the name `{name}`, which {} makes", shared.thread(by)),
                    None => format!("the name `{name}`"),
                })
            }
            Purpose::Barrier { name, threads, .. } => {
                let name = Printable(name).to_string();
                Box::new(move |arrived| {
                    format!("the barrier `{name}`, which {arrived} of {threads} threads have reached")
                })
            }
            Purpose::Memory => {
                Box::new(move |_| format!("free memory; {}", shared.epoch_in_words(&run, &process)))
            }
            Purpose::Epoch => Box::new(move |_| shared.epoch_in_words(&run, &process)),
            Purpose::Collector(_) => Box::new(move |process| {
                format!("a collection, checkpoint or sweep of {}", shared.process_in_words(process as u32))
            }),
            Purpose::Sweep => Box::new(move |_| {
                format!("its sweep of dead members' memory; {}", shared.sweep_in_words(&run, &process))
            }),
            Purpose::Pool => Box::new(|_| "the return of its surplus blocks to the pool".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Cluster;

    #[test]
    fn a_thread_is_not_named_where_stalls_are_not_reported() {
        for url in ["local:size=1MiB", "sim:"] {
            let mut cluster = Cluster::connect(url).unwrap();
            let shared = Arc::get_mut(&mut cluster.shared).expect("there is no other handle");
            shared.stall_limit = None;
            assert!(shared.waits_of(|| unreachable!("it is formatted for nobody")).is_none());
        }
    }
}
