//! Waits, for reports of stalls: what a thread waits for, noted where stalls are reported, and nowhere else.

use std::sync::Arc;

use farfield_fabric::stall::{Task, Waiting, Waits as Table};
use farfield_sim::KEEPER_TASK;
use farfield_words::{Address, ThreadId};

use super::posting::{Operations, Thread};

/// What a retry loop waits for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// The user's own, or one that needs nothing of others.
    Retry,
    /// A lock, whose word was found to be this.
    Lock(Address, u64),
    /// The right to write a `Versioned` value, which has this word.
    Right(Address, u64),
    /// That a `Versioned` value is whole again.
    WholeValue(Address, u64),
    /// A root or a barrier's entry that another thread makes.
    Name(&'a str, Option<ThreadId>),
    /// The other threads of the run.
    Barrier { name: &'a str, arrived: u64, threads: u64 },
    /// Memory, which others may give back.
    Memory,
    /// That the epoch advances.
    Epoch,
    /// That a process ends its collection or checkpoint, or its sweep, by the process's number.
    Collector(u64),
    /// That other processes answer this one's sweep, or leave their guards.
    Sweep,
    /// That free memory of this thread gets to the pool.
    Pool,
}

/// Notes of a thread's waits.
pub(crate) trait Waits: Operations {
    /// Says what a retry loop waits for, if stalls are reported. Called before each wait.
    #[cold]
    fn note_wait(&self, waits: &Arc<Table>, waiting: &mut Option<Waiting>, purpose: Purpose<'_>) {
        let word = match purpose {
            Purpose::Lock(_, word) | Purpose::Right(_, word) | Purpose::WholeValue(_, word) => word,
            Purpose::Name(_, by) => by.map_or(0, |by| by.number().get()),
            Purpose::Barrier { arrived, .. } => arrived,
            Purpose::Collector(process) => process,
            Purpose::Retry | Purpose::Memory | Purpose::Epoch | Purpose::Sweep | Purpose::Pool => 0,
        };
        let about = match purpose {
            Purpose::Lock(at, _) | Purpose::Right(at, _) | Purpose::WholeValue(at, _) => at.bits(),
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

    /// A wait begins that is no retry loop's; over when what this returns is dropped. As [`waits_for`](Self::waits_for), for what others wait
    /// for, too.
    fn waits_as(&self, purpose: Purpose<'_>) -> Option<Waiting> {
        let mut waiting = None;
        self.note_wait(self.io().stalls.as_ref()?, &mut waiting, purpose);
        waiting
    }

    /// The task that runs, as reports name it.
    fn waiting_task(&self) -> Task {
        match self.task_number() {
            KEEPER_TASK => Task::None,
            task => Task::Number(task),
        }
    }

    /// A wait begins that is no retry loop's; over when what this returns is dropped.
    fn waits_for(&self, what: impl FnOnce() -> String) -> Option<Waiting> {
        let waits = self.io().stalls.as_ref()?;
        let text = what();
        Some(waits.enter(self.waiting_task(), 0, 0, Box::new(move |_| text.clone())))
    }
}

impl<T: Thread> Waits for T {}
