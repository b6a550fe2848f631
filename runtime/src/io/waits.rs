//! The purposes of a thread's waits, for stall reports. Without stall reports this costs a branch.

use std::sync::Arc;

use farfield_fabric::stall::{DescribeWait, Task, Waiting, Waits as Table};
use farfield_sim::KEEPER_TASK;
use farfield_words::{Address, ThreadId};

use super::posting::{Operations, Thread};

/// The purpose of a retry loop's waits.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// A loop of the program, or one that depends on no other thread.
    Retry,
    /// A lock that was found with this word.
    Lock(Address, u64),
    /// The write lock of a `Versioned` value, with this word.
    WriteLock(Address, u64),
    /// The end of a write of a `Versioned` value.
    WholeValue(Address, u64),
    /// A root or a barrier's entry that another thread is creating.
    Name(&'a str, Option<ThreadId>),
    /// The other threads of the run.
    Barrier { name: &'a str, arrived: u64, threads: u64 },
    /// Free memory, which other threads may return.
    Memory,
    /// An advance of the epoch.
    Epoch,
    /// The end of a collection, checkpoint or sweep by the process with this number.
    Collector(u64),
    /// Answers of other processes to this process's sweep, or the end of their guards.
    Sweep,
    /// The transfer of this thread's free memory to the pool.
    Pool,
}

/// Entries of a thread's waits in stall reports.
pub(crate) trait Waits: Operations {
    /// Enters a wait of a retry loop. Called before each wait, if stalls are reported.
    #[cold]
    fn note_wait(&self, waits: &Arc<Table>, waiting: &mut Option<Waiting>, purpose: Purpose<'_>) {
        let word = match purpose {
            Purpose::Lock(_, word) | Purpose::WriteLock(_, word) | Purpose::WholeValue(_, word) => word,
            Purpose::Name(_, by) => by.map_or(0, |by| by.number().get()),
            Purpose::Barrier { arrived, .. } => arrived,
            Purpose::Collector(process) => process,
            Purpose::Retry | Purpose::Memory | Purpose::Epoch | Purpose::Sweep | Purpose::Pool => 0,
        };
        let about = match purpose {
            Purpose::Lock(at, _) | Purpose::WriteLock(at, _) | Purpose::WholeValue(at, _) => at.bits(),
            _ => 0,
        };
        match waiting {
            Some(waiting) if waiting.is_about(about) => waiting.set_word(word),
            Some(waiting) => waiting.change_target(about, word, self.describes(purpose)),
            None => {
                *waiting = Some(waits.enter(self.waiting_task(), about, word, self.describes(purpose)));
            }
        }
    }

    /// Like [`waits_for`](Self::waits_for), for a purpose that retry loops have as well.
    fn waits_as(&self, purpose: Purpose<'_>) -> Option<Waiting> {
        let mut waiting = None;
        self.note_wait(self.io().stalls.as_ref()?, &mut waiting, purpose);
        waiting
    }

    /// Returns the running task as reports name it.
    fn waiting_task(&self) -> Task {
        match self.task_number() {
            KEEPER_TASK => Task::None,
            task => Task::Number(task),
        }
    }

    /// Enters a wait that is not a retry loop's, until the result is dropped.
    #[inline]
    fn waits_for(&self, what: impl FnOnce() -> String) -> Option<Waiting> {
        let waits = self.io().stalls.as_ref()?;
        Some(waits.enter(self.waiting_task(), 0, 0, describe(what())))
    }
}

#[cold]
fn describe(text: String) -> DescribeWait {
    Box::new(move |_| text.clone())
}

impl<T: Thread> Waits for T {}
