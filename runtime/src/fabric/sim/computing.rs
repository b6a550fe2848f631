//! Computing: what a thread's own work costs in virtual time.
//!
//! A compute thread is one processor. Its work costs the times of the option `compute`: something for each operation that it posts and
//! for each that completes, for each use of a cached copy, for each request that it serves, and what the program
//! [says](crate::ComputeThread::compute) besides. All tasks of the thread share the processor, so their work is done one after the other.
//!
//! Each thread has a clock of its own, which is at or ahead of the world's: it says until when the thread is *busy* with what its last
//! poll gave it to do. A poll itself happens at one moment of the world, and whatever the thread does in it moves its clock.
//! - What it posts leaves by its clock.
//! - A completion or a timer that arrives while it is busy waits in the thread's completion queue, in the order of arrival. Once the thread is
//!   free it takes one, pays for it, and is polled; then it is busy with what followed from that.
//!
//! Invariant: while completions wait, one [`Event::Wake`] of the thread is on the agenda. Nothing is drawn from the seed for computing
//! alone but the place of that event, so with `compute=0`, where no thread is ever busy, a run is what it would be without all this.
//!
//! The engine pays an addition for each chain, and an event for each completion that finds its thread busy.

use super::config::Picos;
use super::events::Event;
use super::world::{Stage, ThreadState, World};
use farfield_words::units::time;

const NANOSECOND: Picos = 1000;

/// What the work of a thread costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    /// Of each operation that is posted, and of each that completes.
    posted: Picos,
    completed: Picos,
    /// Of each use of a cached copy of an object.
    cached: Picos,
    /// Of each request that is served.
    served: Picos,
    /// Whether a program's own work counts.
    counts: bool,
}

/// Work of a compute thread that the simulator can not see, for [`ComputeThread::compute`](crate::ComputeThread::compute).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// This long.
    Time(std::time::Duration),
    /// The use of something that the thread keeps a copy of: `cached` of the option `compute`.
    /// [`Cached::get`](crate::Cached::get) pays by itself.
    CachedAccess,
    /// A request of another thread that is served: `served` of the option `compute`.
    RequestServed,
}

impl From<std::time::Duration> for Work {
    fn from(time: std::time::Duration) -> Self {
        Self::Time(time)
    }
}

impl Default for Costs {
    /// `Cluster::connect` documents the sources.
    fn default() -> Self {
        Self {
            posted: 60 * NANOSECOND,
            completed: 60 * NANOSECOND,
            cached: 10 * NANOSECOND,
            served: 100 * NANOSECOND,
            counts: true,
        }
    }
}

impl Costs {
    /// Computing takes no time.
    const NONE: Self = Self { posted: 0, completed: 0, cached: 0, served: 0, counts: false };

    /// What the option says: `0`, or a list like `posted:60ns+cached:5ns`; what it does not name keeps its default.
    ///
    /// # Errors
    /// A reason that names the option and its value.
    pub(super) fn parse(name: &str, value: &str) -> Result<Self, String> {
        if value == "0" {
            return Ok(Self::NONE);
        }
        let wrong = || {
            format!(
                "{name}={value} is not understood; write 0, or a list of `posted`, `completed`, `cached` and `served` like posted:60ns+cached:5ns"
            )
        };
        let mut costs = Self::default();
        for part in value.split('+') {
            let (kind, cost) = part.split_once(':').ok_or_else(wrong)?;
            let place = match kind {
                "posted" => &mut costs.posted,
                "completed" => &mut costs.completed,
                "cached" => &mut costs.cached,
                "served" => &mut costs.served,
                _ => return Err(wrong()),
            };
            *place = time(name, cost, 0).map_err(|_| wrong())?;
        }
        Ok(costs)
    }

    /// What work costs.
    pub(super) fn of(&self, work: Work) -> Picos {
        match work {
            Work::CachedAccess => self.cached,
            Work::RequestServed => self.served,
            Work::Time(time) if self.counts => super::config::picos(time),
            Work::Time(_) => 0,
        }
    }

    pub(super) fn of_posting(&self, operations: usize) -> Picos {
        self.posted * operations as u64
    }

    fn of_completing(&self, operations: usize) -> Picos {
        self.completed * operations as u64
    }
}

impl World {
    /// A thread's clock: when it can do something next.
    pub(crate) fn clock(&self, thread: u32) -> Picos {
        let busy_until = self.threads.get(thread as usize).map_or(0, |thread| thread.busy_until);
        self.now.max(busy_until)
    }

    /// A thread works for so long; gives when it is done.
    pub(crate) fn works(&mut self, thread: u32, cost: Picos) -> Picos {
        let done_at = self.clock(thread).saturating_add(cost);
        if cost > 0
            && let Some(thread) = self.threads.get_mut(thread as usize)
        {
            thread.busy_until = done_at;
        }
        done_at
    }

    /// A completion or a timer has reached its thread; gives the thread if it is to be polled.
    pub(super) fn reaches_thread(&mut self, index: u32) -> Option<u32> {
        let number = self.flights[index as usize].thread;
        let thread = &mut self.threads[number as usize];
        if thread.busy_until > self.now || !thread.completions.is_empty() {
            let is_first = thread.completions.is_empty();
            thread.completions.push_back(index);
            if is_first {
                let at = thread.busy_until.max(self.now);
                self.agenda.push(at, Event::Wake(number));
            }
            return None;
        }
        self.takes_completion(index)
    }

    /// A thread takes a completion, which it has to handle.
    fn takes_completion(&mut self, index: u32) -> Option<u32> {
        let flight = &mut self.flights[index as usize];
        flight.stage = Stage::Arrived;
        let (thread, operations) = (flight.thread, flight.chain.ops().len());
        let cost = self.config.compute.of_completing(operations);
        self.works(thread, cost);
        (self.threads[thread as usize].state == ThreadState::Running).then_some(thread)
    }

    /// A thread for which completions wait may be free; gives it if it is to be polled.
    pub(super) fn wakes(&mut self, number: u32) -> Option<u32> {
        let stalled_until = self.computes[self.compute_of(number)].stalled_until;
        let thread = &mut self.threads[number as usize];
        let free_at = thread.busy_until.max(stalled_until);
        if free_at > self.now && thread.state == ThreadState::Running {
            self.agenda.push(free_at, Event::Wake(number));
            return None;
        }
        let mut next = None;
        while let Some(index) = self.threads[number as usize].completions.pop_front() {
            if self.flights[index as usize].stage == Stage::Forgotten {
                self.land(index);
            } else {
                next = self.takes_completion(index);
                break;
            }
        }
        let thread = &self.threads[number as usize];
        if !thread.completions.is_empty() {
            let at = thread.busy_until.max(self.now);
            self.agenda.push(at, Event::Wake(number));
        }
        next
    }

    /// At the end of a run: its last thread to be busy ends it.
    pub(super) fn finish_work(&mut self) {
        let busy_until = self.threads.iter().map(|thread| thread.busy_until).max();
        self.now = self.now.max(busy_until.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_keeps_its_default() {
        let costs = Costs::parse("compute", "posted:1us+cached:0ns").unwrap();
        assert_eq!((costs.of_posting(3), costs.of(Work::CachedAccess)), (3_000_000, 0));
        assert_eq!(costs.of_completing(2), Costs::default().of_completing(2));
        assert_eq!(costs.of(Work::RequestServed), Costs::default().served);
        let none = Costs::parse("compute", "0").unwrap();
        let second = Work::Time(std::time::Duration::from_secs(1));
        assert_eq!((none.of(second), none.of_posting(9), none.of_completing(9)), (0, 0, 0));
        assert_eq!(costs.of(second), 1_000_000_000_000);
    }

    #[test]
    fn each_mistake_names_the_option() {
        for value in ["", "1", "60ns", "posted", "posted:60", "posted:60ns+", "sent:60ns", "posted:2hours"] {
            let reason = Costs::parse("compute", value).unwrap_err();
            assert!(reason.starts_with(&format!("compute={value} ")) && !reason.contains('\n'), "{reason}");
        }
    }
}
