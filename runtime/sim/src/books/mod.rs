//! The books: what the simulator knows about far memory beyond its words.

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

/// How many objects of a run that did not end are shown from their beginnings.
const MAX_AWAITED_OBJECTS: usize = 8;
/// How many identities the threads of a run have at most.
const MAX_IDENTITIES: u64 = 1 << 20;

/// Objects, names, what has happened, and what was found wrong.
pub(crate) struct Books {
    pub trace: Trace,
    pub allocations: Allocations,
    /// The words that name the thread that has them.
    pub held_words: HeldWords,
    /// When the run began, and which threads have died in which run (by when that began), and when.
    run_began: u64,
    deaths: Vec<(u64, u32, u64)>,
    /// Where the objects are that a run waited for which did not end.
    awaited_objects: Vec<Address>,
    /// The identity of thread 0 of the run that is under way, or of the last.
    pub first_id: u64,
    /// Whether accesses are judged. The conformance suite uses memory that nobody allocated.
    judging: bool,
    meaning: Box<dyn Meaning>,
    seed: u64,
    /// The first thing that was found wrong.
    finding: Option<(Finding, u64, String)>,
}

/// Whether an operation may find that.
fn tolerates(op: &Op, invalid_use: &InvalidUse) -> bool {
    match op {
        Op::Read { scope: ReadScope::MaybeFreed, .. } => matches!(invalid_use, InvalidUse::Freed(_)),
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
        Names { allocations: &self.allocations, meaning: &*self.meaning, first_id: self.first_id }
    }

    /// The names that are claimed, in memory whose words `load` loads.
    pub(crate) fn claims(&self, load: impl Fn(Address) -> u64) -> Vec<(Address, String, ThreadId)> {
        self.meaning.claims(&load)
    }

    /// True for the words of epochs.
    #[inline]
    pub(crate) fn is_of_epochs(&self, at: Address) -> bool {
        self.meaning.is_of_epochs(at)
    }

    /// Enters an executed operation; one that its thread repeats, with the same result, is not shown.
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

    /// What happened, in so many lines.
    pub(crate) fn table(&self, lines: usize) -> String {
        let mut records: Vec<Record> =
            self.awaited_objects.iter().flat_map(|at| self.allocations.records(*at)).collect();
        records.sort_by_key(|record| record.actor.at);
        self.trace.table(lines, &records, &self.names())
    }

    /// These addresses are what a run waits for that is about to be found not to end.
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

    /// Notes what is wrong; the first time counts.
    pub(crate) fn find(&mut self, finding: Finding, at: u64, report: String) {
        if self.finding.is_none() {
            self.trace.freeze();
            self.finding = Some((finding, at, report));
        }
    }

    /// What was found wrong, if anything was.
    pub(crate) fn finding(&self) -> Option<Error> {
        let (finding, at, report) = self.finding.as_ref()?;
        Some(Error::from(error::Simulation {
            finding: *finding,
            seed: self.seed,
            at: trace::since_start(*at),
            report: report.as_str().into(),
        }))
    }

    /// The object that `at` is in.
    #[inline]
    pub(crate) fn object(&self, at: Address) -> Option<(ObjectType, Address)> {
        self.allocations.at(at).map(|block| (block.object_type, block.start))
    }

    /// Judges an operation before its first word.
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

    /// Judges an operation before later words of it: what was freed in between must not be touched either.
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

    /// Judges the use of a copy of an object that a thread has kept, as if it were a READ.
    pub(crate) fn check_cached(&mut self, at: Address, words: usize, actor: Actor) -> Result<()> {
        if !self.judging {
            return Ok(());
        }
        match self.allocations.accessed(at, words) {
            Ok(_) => Ok(()),
            Err(invalid_use) => Err(self.report_invalid_use("cached READ", at, words, &invalid_use, actor)),
        }
    }

    /// What an operation is known by if it is done again and again: its kind, its place and its words. Objects that were made after
    /// `since` count by their types, tokens by their threads; what the runtime does with words of its own is left out.
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
                words[slot.clone()].iter().copied().for_each(&mut word);
            }
            Op::CompareExchange { expected, new, slot, .. } => {
                [*expected, *new, words[*slot]].into_iter().for_each(&mut word);
            }
            Op::FetchAdd { addend, slot, .. } => [*addend, words[*slot]].into_iter().for_each(&mut word),
        }
        Some(hasher.finish())
    }

    /// Whether an identity is one of a thread of this run, or of those that it may have got besides.
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

    // ---- objects' lives ----------------------------------------------------------------------------------------

    pub(crate) fn allocated(&mut self, at: Address, bytes: u64, object_type: ObjectType, actor: Actor) {
        if let Some(other) = self.allocations.allocated(at, bytes, object_type, actor) {
            let report = format!(
                "the `{}` at {at}, allocated by thread {}, in the place of {other}",
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

    /// Memory that processes have left that died is a block of the runtime's until it is freed.
    pub(crate) fn lost(&mut self, at: Address, bytes: u64, actor: Actor) {
        self.allocations.lost(at, bytes, actor);
        self.allocated(at, bytes, ObjectType::internal("lost block"), actor);
    }

    /// Reports what neither a root nor any object that a root leads to leads to.
    pub(crate) fn look_for_leaks(&mut self, roots: Vec<u64>, at: u64, word: impl Fn(Address) -> u64) {
        let mut lost = self.allocations.unreachable(roots, word);
        // What living threads have leaked comes first: it is the program's.
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
            "; a thread that dies leaves what it had not linked yet, or had unlinked and not retired: where that is expected, say \
             `leaks=ignore` in the cluster's URL"
        };
        let report = format!("never freed, and no root leads to it: {first}{death}{others}{advice}");
        self.find(Finding::Leak, at, report);
    }

    /// Reports blocks that a sweep has left behind although no process holds them. A sweep takes any word for a link, so those that look like the address
    /// of the first one may explain it.
    #[cold]
    pub(crate) fn report_lost_blocks(&mut self, blocks: &[Block], pointing: &[Address], at: u64) {
        let Some(first) = blocks.first() else { return };
        let bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
        let action = self.allocations.at(first.address).map(|block| format!(", {block}")).unwrap_or_default();
        let words: Vec<String> = pointing.iter().map(ToString::to_string).collect();
        let words = match words.len() {
            0 => "no word points there".to_owned(),
            _ => format!("it may be pointed to by the words at {}", words.join(", ")),
        };
        let report = format!(
            "{bytes} bytes in {} blocks are lost after the last sweep: no root leads to them and no process has them; the first is at {}, {} \
             bytes{action}; {words}",
            blocks.len(),
            first.address,
            first.bytes
        );
        self.find(Finding::Leak, at, report);
    }

    /// A run begins.
    pub(crate) fn run_begins(&mut self, at: u64) {
        self.run_began = at;
    }

    /// Whether any thread's compute node has died.
    pub(crate) fn has_deaths(&self) -> bool {
        !self.deaths.is_empty()
    }

    /// A thread's compute node has died.
    pub(crate) fn died(&mut self, thread: u32, at: u64) {
        self.deaths.push((self.run_began, thread, at));
        self.note(Some(thread), at, Action::Died);
    }

    /// When a thread died after it had done something, if it did. Threads of different runs have the same numbers.
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

    /// Something that happens to the cluster itself.
    pub(crate) fn note(&mut self, thread: Option<u32>, at: u64, action: Action) {
        let actor = Actor { thread: thread.unwrap_or(NO_THREAD), task: 0, at };
        self.trace.record(Record { actor, action, at: Address::NULL, object: None });
    }
}
