//! The books: the simulator's records about far memory, beyond its words.
//!
//! | module | contents |
//! |---|---|
//! | `allocations` | the life of each object, and the check of each access |
//! | `changes` | the first and last changes of each object, and the owners of locks |
//! | `trace` | the hash of a run, and the records of its beginning and end |

pub(crate) mod allocations;
mod changes;
pub(crate) mod trace;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::meaning::Meaning;
use allocations::{Allocations, InvalidUse, ObjectType};
use changes::HeldWords;
use farfield_fabric::chain::{Op, ReadScope};
use farfield_fabric::error::{self, Error, Finding, Result};
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::ThreadId;
use farfield_words::WORD_BYTES;
use trace::{Action, Actor, Micros, Record, Trace};
use trace::{NO_THREAD, Names};

/// The most awaited objects whose lives a report shows.
const MAX_AWAITED_OBJECTS: usize = 8;
/// The most identities of the threads of a run.
const MAX_IDENTITIES: u64 = 1 << 20;

/// Objects, names, the trace, and the first finding.
pub(crate) struct Books {
    pub trace: Trace,
    pub allocations: Allocations,
    /// The words that name an owning thread.
    pub held_words: HeldWords,
    /// The start of the run; and for each death the start of its run, the thread, and the time.
    run_began: u64,
    deaths: Vec<(u64, u32, u64)>,
    /// The addresses of the objects that the threads of a stuck run wait for.
    awaited_objects: Vec<Address>,
    /// The identity of thread 0 of the current or last run.
    pub first_id: u64,
    /// The number of memory nodes. Greater node numbers are those of compute nodes that host memory.
    pub memory_nodes: u16,
    /// True if accesses are checked. The conformance suite uses memory that was never allocated.
    judging: bool,
    meaning: Box<dyn Meaning>,
    seed: u64,
    /// The first finding.
    finding: Option<(Finding, u64, String)>,
}

/// Returns whether an operation may make this access, by its [`ReadScope`].
fn tolerates(op: &Op, invalid_use: &InvalidUse) -> bool {
    match op {
        // The memory may have been reused for a smaller object.
        Op::Read { scope: ReadScope::MaybeFreed, .. } => {
            matches!(invalid_use, InvalidUse::Freed(_) | InvalidUse::Overrun(_))
        }
        Op::Read { scope: ReadScope::Any, .. } => true,
        _ => false,
    }
}

impl Books {
    pub(crate) fn new(seed: u64, judging: bool, meaning: Box<dyn Meaning>) -> Self {
        let (trace, allocations) = (Trace::new(seed), Allocations::default());
        let (held_words, awaited_objects) = (HeldWords::default(), Vec::new());
        Self {
            trace,
            allocations,
            held_words,
            awaited_objects,
            run_began: 0,
            deaths: Vec::new(),
            first_id: 1,
            memory_nodes: u16::MAX,
            judging,
            meaning,
            seed,
            finding: None,
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn names(&self) -> Names<'_> {
        Names {
            allocations: &self.allocations,
            meaning: &*self.meaning,
            first_id: self.first_id,
            memory_nodes: self.memory_nodes,
        }
    }

    /// Returns the claimed names, in memory whose words `load` loads.
    pub(crate) fn claims(&self, load: impl Fn(Address) -> u64) -> Vec<(Address, String, ThreadId)> {
        self.meaning.claims(&load)
    }

    /// Returns whether the word belongs to epochs.
    #[inline]
    pub(crate) fn is_of_epochs(&self, at: Address) -> bool {
        self.meaning.is_of_epochs(at)
    }

    /// Records an executed operation. If its thread repeats it with the same result, the trace does not show it.
    #[inline]
    pub(crate) fn executed(&mut self, record: Record, repeated: bool) {
        match record.action {
            Action::Write { words, written } => {
                self.allocations.changed(&record);
                if words == 1 && (record.object.is_some() || !self.meaning.is_claim(record.at, written[0])) {
                    self.held_words.released(record.at);
                }
            }
            Action::CompareExchange { expected, new, found } if found == expected => {
                self.allocations.changed(&record);
                let owner = ThreadId::of_token(new).filter(|owner| new & 1 == 1 && self.is_of_run(*owner));
                if owner.is_some() || (record.object.is_none() && self.meaning.is_claim(record.at, new)) {
                    self.held_words.acquired(record.at, new, record.actor);
                } else {
                    self.held_words.released(record.at);
                }
            }
            Action::FetchAdd { .. } => self.allocations.changed(&record),
            _ => {}
        }
        self.trace.operation(record, repeated);
    }

    /// Returns the trace in at most `lines` lines.
    pub(crate) fn table(&self, lines: usize) -> String {
        let mut records: Vec<Record> =
            self.awaited_objects.iter().flat_map(|at| self.allocations.records(*at)).collect();
        records.sort_by_key(|record| record.actor.at);
        self.trace.table(lines, &records, &self.names())
    }

    /// Records the addresses that the threads of a stuck run wait for, before the finding is reported.
    pub(crate) fn add_awaited_objects(&mut self, addresses: impl IntoIterator<Item = Address>) {
        for at in addresses {
            let start = self.allocations.at(at).map(|block| block.start);
            if let Some(start) = start.filter(|start| !self.awaited_objects.contains(start))
                && self.awaited_objects.len() < MAX_AWAITED_OBJECTS
            {
                self.awaited_objects.push(start);
            }
        }
    }

    /// Records a finding; only the first is kept.
    pub(crate) fn find(&mut self, finding: Finding, at: u64, report: String) {
        if self.finding.is_none() {
            self.trace.freeze();
            self.finding = Some((finding, at, report));
        }
    }

    /// Returns the first finding as an error.
    pub(crate) fn finding(&self) -> Option<Error> {
        let (finding, at, report) = self.finding.as_ref()?;
        Some(Error::from(error::Simulation {
            finding: *finding,
            seed: self.seed,
            at: trace::since_start(*at),
            report: report.as_str().into(),
        }))
    }

    /// Returns the type and start of the object that contains `at`.
    #[inline]
    pub(crate) fn object(&self, at: Address) -> Option<(ObjectType, Address)> {
        self.allocations.at(at).map(|block| (block.object_type, block.start))
    }

    /// Checks an operation before its first word is accessed.
    #[inline]
    pub(crate) fn check(&mut self, op: &Op, actor: Actor) -> Result<()> {
        if !self.judging || !self.meaning.is_heap(op.at()) {
            return Ok(());
        }
        match self.allocations.accessed(op.at(), op.words()) {
            Ok(_) => Ok(()),
            Err(invalid_use) if tolerates(op, &invalid_use) => Ok(()),
            Err(invalid_use) => {
                Err(self.report_invalid_use(op.name(), op.at(), op.words(), &invalid_use, actor))
            }
        }
    }

    /// Checks an operation before later words of it are accessed: an object that was freed in between must not be touched either.
    #[inline]
    pub(crate) fn check_again(&mut self, op: &Op, words: Range<usize>, actor: Actor) -> Result<()> {
        let at = op.at().add((words.start * WORD_BYTES) as u64);
        if !self.judging || !self.meaning.is_heap(at) || self.allocations.accessed(at, words.len()).is_ok() {
            return Ok(());
        }
        // The memory may have become several objects.
        for word in words {
            let at = op.at().add((word * WORD_BYTES) as u64);
            match self.allocations.accessed(at, 1) {
                Ok(_) => {}
                Err(invalid_use) if tolerates(op, &invalid_use) => {}
                Err(invalid_use) => {
                    return Err(self.report_invalid_use(op.name(), op.at(), op.words(), &invalid_use, actor));
                }
            }
        }
        Ok(())
    }

    /// Checks the use of a thread's cached copy of an object, as if it were a READ.
    pub(crate) fn check_cached(&mut self, at: Address, words: usize, actor: Actor) -> Result<()> {
        if !self.judging {
            return Ok(());
        }
        match self.allocations.accessed(at, words) {
            Ok(_) => Ok(()),
            Err(invalid_use) => Err(self.report_invalid_use("cached READ", at, words, &invalid_use, actor)),
        }
    }

    /// Returns the fingerprint by which repetitions of an operation are recognised: its kind, its field and its words. Objects that were
    /// allocated after `since` count by their types, and tokens by their threads. Operations on the runtime's own words have none.
    #[cold]
    pub(crate) fn fingerprint(&self, op: &Op, words: &[u64], since: u64) -> Option<u64> {
        let (at, mut hasher) = (op.at(), DefaultHasher::new());
        op.name().hash(&mut hasher);
        match self.allocations.at(at) {
            Some(block) if !block.object_type.is_object => return None,
            Some(block) => {
                (at.bits() - block.start.bits()).hash(&mut hasher);
                block.identify(since, &mut hasher);
            }
            None if self.meaning.is_bookkeeping(at) => return None,
            None => at.bits().hash(&mut hasher),
        }
        let mut word = |word: u64| match (ThreadId::of_token(word), self.allocations.pointed_to(word)) {
            (_, Some((block, marks))) => {
                marks.hash(&mut hasher);
                block.identify(since, &mut hasher);
            }
            (Some(owner), None) if word & 1 == 1 && self.is_of_run(owner) => owner.hash(&mut hasher),
            _ => word.hash(&mut hasher),
        };
        match op {
            Op::Read { slot, .. } | Op::Write { slot, .. } => {
                words[slot.range()].iter().copied().for_each(&mut word);
            }
            Op::CompareExchange { expected, new, slot, .. } => {
                [*expected, *new, words[*slot as usize]].into_iter().for_each(&mut word);
            }
            Op::FetchAdd { addend, slot, .. } => {
                [*addend, words[*slot as usize]].into_iter().for_each(&mut word);
            }
        }
        Some(hasher.finish())
    }

    /// Returns whether an identity belongs to this run, including identities that its threads took later.
    fn is_of_run(&self, thread: ThreadId) -> bool {
        thread.number().get().checked_sub(self.first_id).is_some_and(|index| index < MAX_IDENTITIES)
    }

    #[cold]
    fn report_invalid_use(
        &mut self,
        name: &'static str,
        at: Address,
        words: usize,
        invalid_use: &InvalidUse,
        actor: Actor,
    ) -> Error {
        let bytes = words * WORD_BYTES;
        let report = format!("{name} of {bytes} bytes at {at} by thread {} {invalid_use}", actor.thread);
        let action = Action::Refused { operation: name, words: words as u32 };
        self.trace.record(Record { actor, action, at, object: self.object(at) });
        let finding = match invalid_use {
            InvalidUse::NeverAllocated | InvalidUse::Overrun(_) => Finding::WildAccess,
            _ => Finding::UseAfterFree,
        };
        self.find(finding, actor.at, report);
        self.finding().expect("just found")
    }

    // ---- lives of objects ----------------------------------------------------------------------------------------

    pub(crate) fn allocated(&mut self, at: Address, bytes: u64, object_type: ObjectType, actor: Actor) {
        if let Some(other) = self.allocations.allocated(at, bytes, object_type, actor) {
            let report = format!(
                "the `{}` at {at}, allocated by thread {}, overlaps {other}",
                object_type.name, actor.thread
            );
            self.find(Finding::DoubleAllocation, actor.at, report);
        }
        self.trace.record(Record {
            actor,
            action: Action::Allocated { bytes },
            at,
            object: Some((object_type, at)),
        });
    }

    pub(crate) fn retired(&mut self, at: Address, expires: u64, actor: Actor) {
        match self.allocations.retired(at, expires, actor) {
            Ok(object_type) => self.trace.record(Record {
                actor,
                action: Action::Retired,
                at,
                object: Some((object_type, at)),
            }),
            Err(invalid_use) => {
                self.find(
                    Finding::DoubleFree,
                    actor.at,
                    format!("retirement of {at} by thread {} {invalid_use}", actor.thread),
                );
            }
        }
    }

    pub(crate) fn freed(&mut self, at: Address, actor: Actor) {
        match self.allocations.freed(at, actor) {
            Ok(object_type) => self.trace.record(Record {
                actor,
                action: Action::Freed,
                at,
                object: Some((object_type, at)),
            }),
            Err(invalid_use) => self.find(
                Finding::DoubleFree,
                actor.at,
                format!("free of {at} by thread {} {invalid_use}", actor.thread),
            ),
        }
    }

    /// Records memory that a dead process has lost: a block of the runtime until it is freed.
    pub(crate) fn lost(&mut self, at: Address, bytes: u64, actor: Actor) {
        self.allocations.lost(at, bytes, actor);
        self.allocated(at, bytes, ObjectType::internal("lost block"), actor);
    }

    /// Reports objects that are not reachable from any root.
    pub(crate) fn look_for_leaks(&mut self, roots: Vec<u64>, at: u64, word: impl Fn(Address) -> u64) {
        let mut lost = self.allocations.unreachable(roots, word);
        // Leaks of live threads come first: they are the program's own.
        lost.sort_by_key(|block| self.death_of(block.allocated_by()).is_some());
        let Some(first) = lost.first() else { return };
        let others = match lost.len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        let death = match self.death_of(first.allocated_by()) {
            Some(died) => format!(", whose compute node died at {}", Micros(died)),
            None => String::new(),
        };
        let advice = if self.deaths.is_empty() {
            ""
        } else {
            "; a dead thread leaks objects that it had not linked yet, or had unlinked and not retired: if that is expected, set \
             `leaks=ignore` in the cluster's URL"
        };
        let report = format!("never freed, and not reachable from any root: {first}{death}{others}{advice}");
        self.find(Finding::Leak, at, report);
    }

    /// Reports blocks that a sweep did not free although no process holds them. A sweep takes any word for a link, so words that look like the
    /// address of the first block may explain it.
    #[cold]
    pub(crate) fn report_lost_blocks(&mut self, blocks: &[Block], pointing: &[Address], at: u64) {
        let Some(first) = blocks.first() else { return };
        let bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
        let object = self.allocations.at(first.address).map(|block| format!(", {block}")).unwrap_or_default();
        let words: Vec<String> = pointing.iter().map(ToString::to_string).collect();
        let words = match words.len() {
            0 => "no word points there".to_owned(),
            _ => format!("the words at {} may point to it", words.join(", ")),
        };
        let report = format!(
            "{bytes} bytes in {} blocks are lost after the last sweep: no root reaches them and no process holds them; the first is at {}, {} \
             bytes{object}; {words}",
            blocks.len(),
            first.address,
            first.bytes
        );
        self.find(Finding::Leak, at, report);
    }

    /// Records the start of a run.
    pub(crate) fn run_begins(&mut self, at: u64) {
        self.run_began = at;
    }

    /// Returns whether any thread's compute node has died.
    pub(crate) fn has_deaths(&self) -> bool {
        !self.deaths.is_empty()
    }

    /// Records the death of a thread's compute node.
    pub(crate) fn died(&mut self, thread: u32, at: u64) {
        self.deaths.push((self.run_began, thread, at));
        self.note(Some(thread), at, Action::Died);
    }

    /// Returns the time at which a thread died after an action, if it did. Threads of different runs have the same numbers.
    fn death_of(&self, actor: Actor) -> Option<u64> {
        let of = |(began, thread, died): &&(u64, u32, u64)| {
            *thread == actor.thread && (*began..=*died).contains(&actor.at)
        };
        self.deaths.iter().find(of).map(|(.., died)| *died)
    }

    pub(crate) fn ended(&mut self, thread: u32, at: u64, failed: bool) {
        let actor = Actor { thread, task: 0, at };
        self.trace.record(Record {
            actor,
            action: Action::Ended { failed },
            at: Address::NULL,
            object: None,
        });
    }

    /// Records an event of the cluster or of a thread's compute node.
    pub(crate) fn note(&mut self, thread: Option<u32>, at: u64, action: Action) {
        let actor = Actor { thread: thread.unwrap_or(NO_THREAD), task: 0, at };
        self.trace.record(Record { actor, action, at: Address::NULL, object: None });
    }
}
