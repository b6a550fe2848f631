//! The report of a stuck run: what each thread waits for and since when, and which thread owns it.
//!
//! The report is one line. Threads in loops come first, by the number of their attempts, then the others.

use std::fmt::Write;

use super::hosted::HostedRange;
use super::loops::{Loop, LoopKind};
use super::progress::PendingWaits;
use super::world::{Thread, ThreadState, World};
use crate::books::trace::{Actor, Micros, Record};
use farfield_words::Address;
use farfield_words::ThreadId;

/// The most threads that a report names, and the most items of each other list.
const MAX_NAMED: usize = 4;
/// The hint if a thread waits although no operation, lock, sleep or barrier of the runtime is pending in it.
const FOREIGN_WAIT_HINT: &str = "the runtime does not know what such a thread waits for, usually a channel or tokio's timers, tasks or locks: in \
                         virtual time nothing wakes it";

impl World {
    /// Returns the report: waiting threads, their last operations, and the owners of what they wait for.
    pub fn waiting(&self) -> String {
        if !self.run_state.is_running() {
            return String::new();
        }
        let (waits, loops) = (self.waits(), self.monitor.loops.outermost(self.threads.len()));
        let tries = |index: usize| loops[index].iter().map(|each| each.tries).max().unwrap_or_default();
        let mut running: Vec<usize> = (0..self.threads.len())
            .filter(|index| self.threads[*index].state == ThreadState::Running)
            .collect();
        running.sort_by_key(|index| std::cmp::Reverse(tries(*index)));
        let mut parts: Vec<String> = running
            .iter()
            .take(MAX_NAMED)
            .map(|index| self.thread_waits(*index, waits[*index], &loops[*index]))
            .collect();
        if running.len() > MAX_NAMED {
            parts.push(format!("and {} more", running.len() - MAX_NAMED));
        }
        for (index, thread) in self.threads.iter().enumerate() {
            if let ThreadState::Dead(at) = thread.state {
                parts.push(format!("thread {index} died at {}", Micros(at)));
            }
        }
        let is_foreign = |index: &&usize| waits[**index].is_nothing() && self.hosted_by(**index).is_none();
        if running.iter().any(|index| is_foreign(&index)) {
            parts.push(FOREIGN_WAIT_HINT.to_owned());
        }
        let awaited: Vec<Address> = loops.iter().flatten().filter_map(Loop::awaited).collect();
        parts.extend(self.locks(&awaited));
        parts.extend(self.barriers());
        parts.extend(self.claims());
        parts.join("; ")
    }

    /// Returns the addresses that waiting threads wait for or accessed last.
    pub(super) fn awaited_objects(&self) -> Vec<Address> {
        let loops = self.monitor.loops.outermost(self.threads.len());
        let loops = loops.iter().flatten();
        let awaited = loops.clone().filter_map(Loop::awaited);
        let tried = loops.filter_map(|each| each.last.map(|last| last.at));
        let running = self.threads.iter().filter(|thread| thread.state == ThreadState::Running);
        let last = running.filter_map(|thread| thread.last.map(|last| last.at));
        let hosts = |range: &&HostedRange| self.threads[range.thread as usize].state == ThreadState::Running;
        let hosted = self.hosted.all().filter(hosts).map(|range| range.at);
        awaited.chain(tried).chain(last).chain(hosted).collect()
    }

    /// Lists held locks, awaited ones first.
    fn locks(&self, awaited: &[Address]) -> Option<String> {
        let mut held = self.books.held_words.all();
        held.retain(|(at, word, _)| ThreadId::of_token(*word).is_some() && self.peek(*at) == *word);
        held.retain(|(at, ..)| self.books.object(*at).is_some());
        held.sort_by_key(|(at, ..)| !awaited.contains(at));
        let names = self.books.names();
        let each = |(at, _, actor): &(Address, u64, Actor)| {
            let dead = match self.threads.get(actor.thread as usize).map(|thread| thread.state) {
                Some(ThreadState::Running) => "",
                _ => ", which is gone",
            };
            let Actor { thread, task, at: since } = *actor;
            let waiting = match awaited.iter().filter(|awaited| *awaited == at).count() {
                0 => String::new(),
                1 => " (1 waits for it)".to_owned(),
                more => format!(" ({more} wait for it)"),
            };
            format!(
                "{} by thread {thread}, task {task}{dead} since {}{waiting}",
                names.place_of(*at),
                Micros(since)
            )
        };
        list("held", &held, each)
    }

    /// Lists barriers, with the threads that have arrived and those that are missing.
    fn barriers(&self) -> Option<String> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.threads.iter().flat_map(|thread| &thread.barriers) {
            if !names.contains(&&**name) {
                names.push(name);
            }
        }
        let each = |name: &&str| {
            let waits = |thread: &Thread| thread.barriers.iter().any(|(at, _)| **at == **name);
            let running = || {
                let threads = self.threads.iter().enumerate();
                threads.filter(|(_, thread)| thread.state == ThreadState::Running)
            };
            let since = running().flat_map(|(_, thread)| &thread.barriers).filter(|(at, _)| **at == **name);
            let since = since.map(|(_, since)| *since).min().unwrap_or_default();
            let arrived: Vec<usize> =
                running().filter(|(_, thread)| waits(thread)).map(|(index, _)| index).collect();
            let missing: Vec<usize> =
                running().filter(|(_, thread)| !waits(thread)).map(|(index, _)| index).collect();
            let missing = if missing.is_empty() { "no thread".to_owned() } else { numbers(&missing) };
            format!("`{name}` since {}: {} arrived, {missing} missing", Micros(since), numbers(&arrived))
        };
        list("barriers", &names, each)
    }

    /// Lists claimed names.
    fn claims(&self) -> Option<String> {
        let claims = self.books.claims(|at| self.peek(at));
        let each = |(at, name, owner): &(Address, String, ThreadId)| {
            let name = if name.is_empty() { String::new() } else { format!("`{name}` ") };
            let since = self
                .books
                .held_words
                .of(*at)
                .map_or(String::new(), |(_, actor)| format!(" since {}", Micros(actor.at)));
            match owner.number().get().checked_sub(self.books.first_id) {
                Some(thread) => format!("{name}by thread {thread}{since}"),
                None => format!("{name}by a thread of an earlier run ({owner})"),
            }
        };
        list("claimed names", &claims, each)
    }

    /// `thread 2 waits after "CAS 0:0x4150 Node.lock …" at 12.000 us, tried 128 times since 3.000 us`.
    fn thread_waits(&self, index: usize, waits: PendingWaits, loops: &[Loop]) -> String {
        let mut text = match self.threads[index].last {
            None => format!("thread {index} waits after no operation"),
            Some(last) => {
                format!("thread {index} waits after {} at {}", self.action(&last), Micros(last.actor.at))
            }
        };
        if waits.is_nothing() {
            text += &self
                .hosted_by(index)
                .unwrap_or_else(|| ", for nothing that the runtime knows of".to_owned());
        }
        if let Some((since, epoch)) = self.threads[index].pinned {
            let _ = write!(text, ", with a guard since {} (epoch {epoch})", Micros(since));
        }
        let mut loops: Vec<&Loop> = loops.iter().collect();
        loops.sort_by_key(|each| std::cmp::Reverse(each.tries));
        for each in loops.iter().take(MAX_NAMED) {
            let _ = write!(text, ", {}", self.loop_waits_for(index, each));
        }
        if loops.len() > MAX_NAMED {
            let _ = write!(text, " and in {} loops more", loops.len() - MAX_NAMED);
        }
        text
    }

    /// `, for words in its hosted memory (4 words at 0:0x4180)`.
    fn hosted_by(&self, index: usize) -> Option<String> {
        let ranges: Vec<&HostedRange> = self.hosted.of_thread(index as u32).collect();
        let each = |range: &&HostedRange| format!("{} words at {}", range.words, range.at);
        list("for words in its hosted memory", &ranges, each).map(|hosted| format!(", {hosted}"))
    }

    fn loop_waits_for(&self, index: usize, each: &Loop) -> String {
        let task = if each.task > 0 { format!("task {} ", each.task) } else { String::new() };
        let tried = format!("{task}tried {} times since {}", each.tries, Micros(each.since));
        let what = match each.purpose {
            LoopKind::Ownership(at) => format!(" to get {}", self.books.names().place_of(at)),
            LoopKind::Rendezvous => " for other threads to arrive".to_owned(),
            LoopKind::Attempt | LoopKind::Bounded => match each.last {
                // The thread's last operation belongs to another task.
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

/// Returns the first items of a list: `held: … , … and 3 more`.
fn list<T>(what: &str, all: &[T], each: impl Fn(&T) -> String) -> Option<String> {
    if all.is_empty() {
        return None;
    }
    let named: Vec<String> = all.iter().take(MAX_NAMED).map(each).collect();
    let more =
        if all.len() > MAX_NAMED { format!(" and {} more", all.len() - MAX_NAMED) } else { String::new() };
    Some(format!("{what}: {}{more}", named.join(", ")))
}

/// Returns `thread 1`, or `threads 1, 2, 3, 4 and 7 more`.
fn numbers(threads: &[usize]) -> String {
    let named: Vec<String> = threads.iter().take(MAX_NAMED).map(usize::to_string).collect();
    let more = if threads.len() > MAX_NAMED {
        format!(" and {} more", threads.len() - MAX_NAMED)
    } else {
        String::new()
    };
    format!("thread{} {}{more}", if threads.len() == 1 { "" } else { "s" }, named.join(", "))
}
