//! The books: what the simulator knows about far memory beyond its words.

pub(crate) mod blocks;
mod changes;
pub(crate) mod trace;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::meaning::Meaning;
use blocks::{Blocks, Kind, Misuse};
use changes::Held;
use farfield_fabric::chain::{Op, Sight};
use farfield_fabric::error::{self, Error, Finding, Result};
use farfield_words::Address;
use farfield_words::Block;
use farfield_words::ThreadId;
use farfield_words::WORD_BYTES;
use trace::{NOBODY, Names};
use trace::{Record, Time, Trace, What, Who};

/// How many objects of a run that did not end are shown from their beginnings.
const MOST_CONCERNED: usize = 8;
/// How many identities the threads of a run have at most.
const MOST_IDENTITIES: u64 = 1 << 20;

/// Objects, names, what has happened, and what was found wrong.
pub(crate) struct Books {
    pub trace: Trace,
    pub blocks: Blocks,
    /// The words that name the thread that has them.
    pub held: Held,
    /// When the run began, and which threads have died in which run (by when that began), and when.
    run_began: u64,
    deaths: Vec<(u64, u32, u64)>,
    /// Where the objects are that a run waited for which did not end.
    concerned: Vec<Address>,
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
fn sees(op: &Op, misuse: &Misuse) -> bool {
    match op {
        Op::Read { sight: Sight::Past, .. } => matches!(misuse, Misuse::Freed(_)),
        Op::Read { sight: Sight::Anything, .. } => true,
        _ => false,
    }
}

impl Books {
    pub(crate) fn new(seed: u64, judging: bool, meaning: Box<dyn Meaning>) -> Self {
        let (trace, blocks) = (Trace::new(seed), Blocks::default());
        let (held, concerned) = (Held::default(), Vec::new());
        Self {
            trace,
            blocks,
            held,
            concerned,
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
        Names { blocks: &self.blocks, meaning: &*self.meaning, first_id: self.first_id }
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
        match record.what {
            What::Write { words, written } => {
                self.blocks.changed(&record);
                if words == 1 && (record.object.is_some() || !self.meaning.is_claim(record.at, written[0])) {
                    self.held.released(record.at);
                }
            }
            What::CompareExchange { expected, new, found } if found == expected => {
                self.blocks.changed(&record);
                let owner = ThreadId::of_token(new).filter(|owner| new & 1 == 1 && self.is_of_run(*owner));
                if owner.is_some() || (record.object.is_none() && self.meaning.is_claim(record.at, new)) {
                    self.held.acquired(record.at, new, record.who);
                } else {
                    self.held.released(record.at);
                }
            }
            What::FetchAdd { .. } => self.blocks.changed(&record),
            _ => {}
        }
        self.trace.operation(record, repeated);
    }

    /// What happened, in so many lines.
    pub(crate) fn table(&self, lines: usize) -> String {
        let mut records: Vec<Record> = self.concerned.iter().flat_map(|at| self.blocks.life(*at)).collect();
        records.sort_by_key(|record| record.who.at);
        self.trace.table(lines, &records, &self.names())
    }

    /// These addresses are what a run waits for that is about to be found not to end.
    pub(crate) fn concerns(&mut self, addresses: impl IntoIterator<Item = Address>) {
        for at in addresses {
            let start = self.blocks.at(at).map(|block| block.start);
            if let Some(start) = start.filter(|start| !self.concerned.contains(start))
                && self.concerned.len() < MOST_CONCERNED
            {
                self.concerned.push(start);
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
    pub(crate) fn object(&self, at: Address) -> Option<(Kind, Address)> {
        self.blocks.at(at).map(|block| (block.kind, block.start))
    }

    /// Judges an operation before its first word.
    #[inline]
    pub(crate) fn check(&mut self, op: &Op, who: Who) -> Result<()> {
        if !self.judging || !self.meaning.is_heap(op.at()) {
            return Ok(());
        }
        match self.blocks.accessed(op.at(), op.words()) {
            Ok(_) => Ok(()),
            Err(misuse) if sees(op, &misuse) => Ok(()),
            Err(misuse) => Err(self.misused(op.name(), op.at(), op.words(), &misuse, who)),
        }
    }

    /// Judges an operation before later words of it: what was freed in between must not be touched either.
    #[inline]
    pub(crate) fn check_again(&mut self, op: &Op, words: Range<usize>, who: Who) -> Result<()> {
        let at = op.at().add((words.start * WORD_BYTES) as u64);
        if !self.judging || !self.meaning.is_heap(at) || self.blocks.accessed(at, words.len()).is_ok() {
            return Ok(());
        }
        // The memory may have become several objects.
        for word in words {
            let at = op.at().add((word * WORD_BYTES) as u64);
            match self.blocks.accessed(at, 1) {
                Ok(_) => {}
                Err(misuse) if sees(op, &misuse) => {}
                Err(misuse) => return Err(self.misused(op.name(), op.at(), op.words(), &misuse, who)),
            }
        }
        Ok(())
    }

    /// Judges the use of a copy of an object that a thread has kept, as if it were a READ.
    pub(crate) fn check_cached(&mut self, at: Address, words: usize, who: Who) -> Result<()> {
        if !self.judging {
            return Ok(());
        }
        match self.blocks.accessed(at, words) {
            Ok(_) => Ok(()),
            Err(misuse) => Err(self.misused("cached READ", at, words, &misuse, who)),
        }
    }

    /// What an operation is known by if it is done again and again: its kind, its place and its words. Objects that were made after
    /// `since` count by their types, tokens by their threads; what the runtime does with words of its own is left out.
    #[cold]
    pub(crate) fn fingerprint(&self, op: &Op, words: &[u64], since: u64) -> Option<u64> {
        let (at, mut hasher) = (op.at(), DefaultHasher::new());
        op.name().hash(&mut hasher);
        match self.blocks.at(at) {
            Some(block) if !block.kind.is_object => return None,
            Some(block) => {
                (at.bits() - block.start.bits()).hash(&mut hasher);
                block.identify(since, &mut hasher);
            }
            None if self.meaning.is_bookkeeping(at) => return None,
            None => at.bits().hash(&mut hasher),
        }
        let mut word = |word: u64| match (ThreadId::of_token(word), self.blocks.pointed_to(word)) {
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
        thread.number().get().checked_sub(self.first_id).is_some_and(|index| index < MOST_IDENTITIES)
    }

    #[cold]
    fn misused(&mut self, name: &'static str, at: Address, words: usize, misuse: &Misuse, who: Who) -> Error {
        let bytes = words * WORD_BYTES;
        let report = format!("{name} of {bytes} bytes at {at} by thread {} {misuse}", who.thread);
        let what = What::Refused { operation: name, words: words as u32 };
        self.trace.record(Record { who, what, at, object: self.object(at) });
        let finding = match misuse {
            Misuse::NeverAllocated | Misuse::Overrun(_) => Finding::WildAccess,
            _ => Finding::UseAfterFree,
        };
        self.find(finding, who.at, report);
        self.finding().expect("just found")
    }

    // ---- objects' lives ----------------------------------------------------------------------------------------

    pub(crate) fn allocated(&mut self, at: Address, bytes: u64, kind: Kind, who: Who) {
        if let Some(other) = self.blocks.allocated(at, bytes, kind, who) {
            let report = format!(
                "the `{}` at {at}, allocated by thread {}, in the place of {other}",
                kind.name, who.thread
            );
            self.find(Finding::DoubleAllocation, who.at, report);
        }
        self.trace.record(Record { who, what: What::Allocated { bytes }, at, object: Some((kind, at)) });
    }

    pub(crate) fn retired(&mut self, at: Address, expires: u64, who: Who) {
        match self.blocks.retired(at, expires, who) {
            Ok(kind) => self.trace.record(Record { who, what: What::Retired, at, object: Some((kind, at)) }),
            Err(misuse) => {
                self.find(
                    Finding::DoubleFree,
                    who.at,
                    format!("retirement of {at} by thread {} {misuse}", who.thread),
                );
            }
        }
    }

    pub(crate) fn freed(&mut self, at: Address, who: Who) {
        match self.blocks.freed(at, who) {
            Ok(kind) => self.trace.record(Record { who, what: What::Freed, at, object: Some((kind, at)) }),
            Err(misuse) => self.find(
                Finding::DoubleFree,
                who.at,
                format!("free of {at} by thread {} {misuse}", who.thread),
            ),
        }
    }

    /// Memory that processes have left that died is a block of the runtime's until it is freed.
    pub(crate) fn lost(&mut self, at: Address, bytes: u64, who: Who) {
        self.blocks.lost(at, bytes, who);
        self.allocated(at, bytes, Kind::internal("lost block"), who);
    }

    /// Reports what neither a root nor any object that a root leads to leads to.
    pub(crate) fn look_for_leaks(&mut self, roots: Vec<u64>, at: u64, word: impl Fn(Address) -> u64) {
        let mut lost = self.blocks.unreachable(roots, word);
        // What living threads have leaked comes first: it is the program's.
        lost.sort_by_key(|block| self.death_of(block.allocated_by()).is_some());
        let Some(first) = lost.first() else { return };
        let others = match lost.len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        let death = match self.death_of(first.allocated_by()) {
            Some(died) => format!(", whose compute node died at {}", Time(died)),
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
    pub(crate) fn are_lost(&mut self, blocks: &[Block], pointing: &[Address], at: u64) {
        let Some(first) = blocks.first() else { return };
        let bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
        let what = self.blocks.at(first.address).map(|block| format!(", {block}")).unwrap_or_default();
        let words: Vec<String> = pointing.iter().map(ToString::to_string).collect();
        let words = match words.len() {
            0 => "no word points there".to_owned(),
            _ => format!("it may be pointed to by the words at {}", words.join(", ")),
        };
        let report = format!(
            "{bytes} bytes in {} blocks are lost after the last sweep: no root leads to them and no process has them; the first is at {}, {} \
             bytes{what}; {words}",
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
        self.note(Some(thread), at, What::Died);
    }

    /// When a thread died after it had done something, if it did. Threads of different runs have the same numbers.
    fn death_of(&self, who: Who) -> Option<u64> {
        let of = |(began, thread, died): &&(u64, u32, u64)| {
            *thread == who.thread && (*began..=*died).contains(&who.at)
        };
        self.deaths.iter().find(of).map(|(.., died)| *died)
    }

    pub(crate) fn ended(&mut self, thread: u32, at: u64, failed: bool) {
        let who = Who { thread, task: 0, at };
        self.trace.record(Record { who, what: What::Ended { failed }, at: Address::NULL, object: None });
    }

    /// Something that happens to the cluster itself.
    pub(crate) fn note(&mut self, thread: Option<u32>, at: u64, what: What) {
        let who = Who { thread: thread.unwrap_or(NOBODY), task: 0, at };
        self.trace.record(Record { who, what, at: Address::NULL, object: None });
    }
}
