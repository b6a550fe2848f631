//! What a report says of a run that does not end: who waits for what and since when, and who has it.
//!
//! One line. Threads without progress come first: those in loops, by the number of their attempts, then the others.

use super::loops::{Loop, LoopKind};
use super::stuck::Waits;
use super::world::{ThreadState, World};
use crate::sim::trace::{Record, Time};

/// How many threads, and how many of anything else, a report names.
const NAMED: usize = 4;

impl World {
    /// Who waits, what each last did, and who has what they wait for.
    pub(super) fn waiting(&self) -> String {
        let (waits, loops) = (self.waits(), self.patience.loops.outermost(self.threads.len()));
        let tries = |index: usize| loops[index].iter().map(|each| each.tries).max().unwrap_or_default();
        let mut running: Vec<usize> = (0..self.threads.len())
            .filter(|index| self.threads[*index].state == ThreadState::Running)
            .collect();
        running.sort_by_key(|index| std::cmp::Reverse(tries(*index)));
        let mut parts: Vec<String> = running
            .iter()
            .take(NAMED)
            .map(|index| self.thread_waits(*index, waits[*index], &loops[*index]))
            .collect();
        if running.len() > NAMED {
            parts.push(format!("and {} more", running.len() - NAMED));
        }
        for (index, thread) in self.threads.iter().enumerate() {
            if let ThreadState::Dead(at) = thread.state {
                parts.push(format!("thread {index} died at {}", Time(at)));
            }
        }
        parts.join("; ")
    }

    /// `thread 2 waits after "CAS 0:0x4150 Node.lock …" at 12.000 us, tried 128 times since 3.000 us`.
    fn thread_waits(&self, index: usize, waits: Waits, loops: &[Loop]) -> String {
        let mut text = match self.threads[index].last {
            None => format!("thread {index} waits after no operation"),
            Some(last) => {
                format!("thread {index} waits after {} at {}", self.action(&last), Time(last.who.at))
            }
        };
        if waits.is_nothing() {
            text += ", and not for an operation, a lock, a sleep or a barrier of Farfield's: the runtime does not know what \
                     it waits for (a channel, or a timer of tokio or another library: in virtual time nothing wakes it)";
        }
        let mut loops: Vec<&Loop> = loops.iter().collect();
        loops.sort_by_key(|each| std::cmp::Reverse(each.tries));
        for each in loops.iter().take(NAMED) {
            text += &format!(", {}", self.loop_waits_for(index, each));
        }
        if loops.len() > NAMED {
            text += &format!(" and in {} loops more", loops.len() - NAMED);
        }
        text
    }

    fn loop_waits_for(&self, index: usize, each: &Loop) -> String {
        let task = if each.task > 0 { format!("task {} ", each.task) } else { String::new() };
        let tried = format!("{task}tried {} times since {}", each.tries, Time(each.since));
        let what = match each.purpose {
            LoopKind::Turn(at) => format!(" to get {}", self.books.names().place_of(at)),
            LoopKind::Others => " for others to come".to_owned(),
            LoopKind::Attempt | LoopKind::Ends => match each.last {
                // Another task of the thread did what the thread did last.
                Some(last) if self.threads[index].last.is_some_and(|of_thread| of_thread.at != last.at) => {
                    format!(", last {}", self.action(&last))
                }
                _ => String::new(),
            },
        };
        tried + &what
    }

    fn action(&self, record: &Record) -> String {
        let action = self.books.names().action(record);
        format!("`{}`", action.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}
