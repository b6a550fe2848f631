//! The trace: a hash of the whole run, and records of its beginning and end.
//!
//! Every operation and every other event of virtual time goes into one 64-bit hash: two runs with the same hash did the same at the same times. The
//! first and the last records are kept, to be printed when a run fails. Between them the trace shows changes of the awaited objects, which `changes`
//! keeps.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::time::Duration;

use super::allocations::{Allocations, ObjectType};
use crate::meaning::Meaning;
use farfield_words::Address;
use farfield_words::ThreadId;
use farfield_words::{FieldInfo, WORD_BYTES, fingerprint};

/// The number of records that are kept from the beginning, and from the end.
const KEPT_FIRST: usize = 256;
const KEPT: usize = 1024;
/// The beginning takes one in this many lines of a table; the awaited objects take one in this many.
const PART_OF_BEGINNING: usize = 5;
const PART_OF_OBJECTS: usize = 3;
/// A table with fewer lines shows the end only.
const SHORT: usize = 10;
/// The number of words of a READ or WRITE that a record shows.
pub(crate) const SHOWN_WORDS: usize = 4;

/// The task of a compute thread that performed an action, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Actor {
    pub thread: u32,
    pub task: u32,
    /// In picoseconds.
    pub at: u64,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.thread {
            NO_THREAD => write!(f, "the cluster at {}", Micros(self.at)),
            thread => write!(f, "thread {thread} at {}", Micros(self.at)),
        }
    }
}

/// The thread number of actions of no thread: those of the runtime between runs.
pub const NO_THREAD: u32 = u32::MAX;

/// Picoseconds, shown in microseconds.
pub(crate) struct Micros(pub u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0 / 1000;
        write!(f, "{}.{:03} us", nanoseconds / 1000, nanoseconds % 1000)
    }
}

/// An operation or another event of a run. The numbers in `hash_record` are part of the trace hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read {
        words: u32,
        seen: [u64; SHOWN_WORDS],
    },
    Write {
        words: u32,
        written: [u64; SHOWN_WORDS],
    },
    CompareExchange {
        expected: u64,
        new: u64,
        found: u64,
    },
    FetchAdd {
        addend: u64,
        found: u64,
    },
    /// An operation that was refused because of an invalid access.
    Refused {
        operation: &'static str,
        words: u32,
    },
    Allocated {
        bytes: u64,
    },
    Retired,
    Freed,
    /// The thread has ended, with an error or without.
    Ended {
        failed: bool,
    },
    /// The thread's compute node has died.
    Died,
    /// The thread's compute node is stalled until then.
    Stalled {
        until: u64,
    },
    /// The link between the thread's compute node and a memory node is cut until then.
    Cut {
        node: u16,
        until: u64,
    },
    MemoryDied {
        node: u16,
    },
    Slowed {
        node: u16,
        factor: u32,
    },
    /// A chain was not answered in time.
    Unreachable {
        node: u16,
    },
}

/// One line of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub actor: Actor,
    pub action: Action,
    pub at: Address,
    /// The type and start of the object that the operation accessed, if any.
    pub object: Option<(ObjectType, Address)>,
}

impl Record {
    /// Returns whether `next` is the same operation of the same task with the same result.
    pub(crate) fn is_repeated_by(&self, next: &Self) -> bool {
        let is_same = match (self.action, next.action) {
            // Each attempt to take a lock has a new token.
            (
                Action::CompareExchange { expected, found, .. },
                Action::CompareExchange { expected: expects, found: finds, .. },
            ) if found != expected => (expected, found) == (expects, finds),
            (did, does) => did == does,
        };
        is_same && (self.actor.task, self.at) == (next.actor.task, next.at)
    }
}

/// The hash of a run, and its first and last records.
pub(crate) struct Trace {
    hash: u64,
    operations: u64,
    /// The number of records so far, without repetitions; the first of them; and the last that are not among the first.
    records: u64,
    first: Vec<Record>,
    last: VecDeque<Record>,
    /// True once a failure was found: later records must not displace those that led to it.
    frozen: bool,
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            hash: seed,
            operations: 0,
            records: 0,
            first: Vec::new(),
            last: VecDeque::new(),
            frozen: false,
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Folds words into the hash, each by a rotation and a multiplication by an odd constant.
    #[inline]
    fn fold<const N: usize>(&mut self, words: [u64; N]) {
        for word in words {
            self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5);
        }
    }

    /// Hashes and keeps an operation; a repetition with the same result is hashed only.
    #[inline]
    pub(crate) fn operation(&mut self, record: Record, repeated: bool) {
        self.operations += 1;
        self.hash_record(&record);
        if !repeated {
            self.keep(record);
        }
    }

    /// Hashes and keeps another event.
    pub(crate) fn record(&mut self, record: Record) {
        self.hash_record(&record);
        self.keep(record);
    }

    #[inline]
    fn keep(&mut self, record: Record) {
        if self.frozen {
            return;
        }
        self.records += 1;
        if self.first.len() < KEPT_FIRST {
            return self.first.push(record);
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(record);
    }

    #[inline]
    fn hash_record(&mut self, record: &Record) {
        let Record { actor, action, at, .. } = *record;
        self.fold([actor.at, u64::from(actor.thread) << 32 | u64::from(actor.task), at.bits()]);
        match action {
            Action::Read { words, seen: [a, b, c, d] } => self.fold([1, words.into(), a, b, c, d]),
            Action::Write { words, written: [a, b, c, d] } => self.fold([2, words.into(), a, b, c, d]),
            Action::CompareExchange { expected, new, found } => self.fold([3, expected, new, found]),
            Action::FetchAdd { addend, found } => self.fold([4, addend, found]),
            Action::Refused { words, .. } => self.fold([5, words.into()]),
            Action::Allocated { bytes } => self.fold([6, bytes]),
            Action::Retired => self.fold([7]),
            Action::Freed => self.fold([8]),
            Action::Ended { failed } => self.fold([9, failed.into()]),
            Action::Died => self.fold([10]),
            Action::Stalled { until } => self.fold([11, until]),
            Action::Cut { node, until } => self.fold([12, node.into(), until]),
            Action::MemoryDied { node } => self.fold([13, node.into()]),
            Action::Slowed { node, factor } => self.fold([14, node.into(), factor.into()]),
            Action::Unreachable { node } => self.fold([15, node.into()]),
        }
    }

    /// Returns a table of at most `lines` lines: the beginning, records of the awaited objects, and the end.
    pub(crate) fn table(&self, lines: usize, objects: &[Record], names: &Names<'_>) -> String {
        let kept = self.first.len() + self.last.len();
        let newest = |count: usize| self.first.iter().chain(&self.last).skip(kept.saturating_sub(count));
        let mut text = String::new();
        let mut show = |record: &Record| {
            let _ = writeln!(text, "{}", names.line(record));
        };
        if self.records <= lines.min(kept) as u64 || lines < SHORT {
            newest(lines).for_each(show);
            return text;
        }
        let beginning = &self.first[..self.first.len().min(lines / PART_OF_BEGINNING)];
        let begun = beginning.last().map_or(0, |record| record.actor.at);
        // One line names the gap; with objects there are two such lines.
        let most = lines - beginning.len() - 1;
        let is_between = |record: &&Record, count: usize| {
            let ends = newest(count).next().map_or(u64::MAX, |record| record.actor.at);
            (begun + 1..ends).contains(&record.actor.at)
        };
        let mut between: Vec<&Record> =
            objects.iter().filter(|record| is_between(record, most / 2)).collect();
        if between.len() > lines / PART_OF_OBJECTS {
            // The first changes show the cause, the last the present state.
            let half = lines / PART_OF_OBJECTS / 2;
            between.drain(half..between.len() - half);
        }
        let end = if between.is_empty() { most } else { most - 1 - between.len() };
        let end = end.min(kept - beginning.len());
        between.retain(|record| is_between(record, end));
        beginning.iter().for_each(&mut show);
        let omitted = self.records - (beginning.len() + end) as u64;
        if between.is_empty() {
            let _ = writeln!(text, "… {} operations left out …", grouped(omitted));
        } else {
            let _ = writeln!(
                text,
                "… {} operations left out; of these, the ones that made and changed the awaited objects: …",
                grouped(omitted)
            );
            for record in between {
                let _ = writeln!(text, "{}", names.line(record));
            }
            let _ = writeln!(text, "… the end: …");
        }
        for record in newest(end) {
            let _ = writeln!(text, "{}", names.line(record));
        }
        text
    }
}

/// A number with its thousands apart: `48,211`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Names for words and addresses.
pub(crate) struct Names<'a> {
    pub allocations: &'a Allocations,
    pub meaning: &'a dyn Meaning,
    /// The identity of thread 0; the others follow.
    pub first_id: u64,
    /// The number of memory nodes.
    pub memory_nodes: u16,
}

impl Names<'_> {
    /// Returns the name of a node. Numbers from the number of memory nodes on are those of compute nodes.
    pub(crate) fn node(&self, node: u16) -> String {
        match node.checked_sub(self.memory_nodes) {
            None => format!("memory node {node}"),
            Some(compute) => format!("compute node {compute}"),
        }
    }

    /// Returns a record as one line: virtual time, thread and task, operation, address and field, values.
    pub(crate) fn line(&self, record: &Record) -> String {
        let Actor { thread, task, at } = record.actor;
        let client = if thread == NO_THREAD { "-".to_owned() } else { format!("{thread}.{task}") };
        format!("{:>14}  {client:>6}  {}", Micros(at).to_string(), self.action(record))
    }

    /// Returns a record's operation, address and field, and values.
    pub(crate) fn action(&self, record: &Record) -> String {
        let Record { action, at, object, .. } = *record;
        let place = |words: u32| self.place(at, words as usize, object);
        match action {
            Action::Read { words, seen } => {
                format!("READ   {} = {}", place(words), self.fields(record, &seen, words as usize))
            }
            Action::Write { words, written } => {
                format!("WRITE  {} := {}", place(words), self.fields(record, &written, words as usize))
            }
            Action::CompareExchange { expected, new, found } => {
                let [expected_is, new_is, found_is] =
                    [expected, new, found].map(|word| self.fields(record, &[word, 0, 0, 0], 1));
                let failed =
                    if found == expected { String::new() } else { format!(" failed: it is {found_is}") };
                format!("CAS    {} {expected_is} -> {new_is}{failed}", place(1))
            }
            Action::FetchAdd { addend, found } => {
                format!("FAA    {} + {}, was {found}", place(1), addend.cast_signed())
            }
            Action::Refused { operation, words } => format!("{operation:<6} {} REFUSED", place(words)),
            Action::Allocated { bytes } => format!("alloc  {}, {bytes} bytes", place(0)),
            Action::Retired => format!("retire {}", place(0)),
            Action::Freed => format!("free   {}", place(0)),
            Action::Ended { failed: false } => "thread ends".to_owned(),
            Action::Ended { failed: true } => "thread ends with an error".to_owned(),
            Action::Died => "compute node dies".to_owned(),
            Action::Stalled { until } => format!("compute node stalls until {}", Micros(until)),
            Action::Cut { node, until } => {
                format!("link to {} is cut until {}", self.node(node), Micros(until))
            }
            Action::MemoryDied { node } => format!("memory node {node} dies"),
            Action::Slowed { node, factor } => format!("{} becomes {factor} times slower", self.node(node)),
            Action::Unreachable { node } => format!("{} did not answer", self.node(node)),
        }
    }

    /// Returns words as values of their fields: `{key: 5, next: 0:0x4180}`.
    fn fields(&self, record: &Record, words: &[u64; SHOWN_WORDS], count: usize) -> String {
        let shown = &words[..count.min(SHOWN_WORDS)];
        let more = if count > shown.len() {
            format!(" and {} words more", count - shown.len())
        } else {
            String::new()
        };
        let describe = |(index, word): (usize, &u64)| {
            let Some((object_type, start)) = record.object else { return self.value(*word) };
            let offset = record.at.bits() - start.bits() + (index * WORD_BYTES) as u64;
            let field = object_type.fields.iter().find(|field| field.offset as u64 == offset);
            let shown = match field {
                Some(field) if field.shape.fingerprint == const { fingerprint::name("Lock") } => {
                    self.owner(*word)
                }
                _ => self.value(*word),
            };
            match field {
                Some(field) if count > 1 => format!("{}: {shown}", field.name),
                _ => shown,
            }
        };
        let values: Vec<String> = shown.iter().enumerate().map(describe).collect();
        if count == 1 { values.concat() } else { format!("{{{}{more}}}", values.join(", ")) }
    }

    /// Returns the state of a lock's word.
    pub(crate) fn owner(&self, word: u64) -> String {
        match ThreadId::of_token(word) {
            None => "free".to_owned(),
            Some(id) => match id.number().get().checked_sub(self.first_id) {
                Some(thread) => format!("held by thread {thread}"),
                None => format!("held by a thread of an earlier run ({id})"),
            },
        }
    }

    /// Returns the address of a word and its name.
    pub(crate) fn place_of(&self, at: Address) -> String {
        self.place(at, 1, self.allocations.at(at).map(|block| (block.object_type, block.start)))
    }

    /// Returns an address and its name: `0:0x4140 Node`, or `0:0x4148 Node.next` for a single field.
    fn place(&self, at: Address, words: usize, object: Option<(ObjectType, Address)>) -> String {
        let name = match object {
            Some((object_type, start)) if words == 1 => field_name(object_type, at.bits() - start.bits()),
            Some((object_type, _)) => object_type.name.to_owned(),
            None => self.meaning.name(at),
        };
        format!("{at} {name}")
    }

    /// Returns a word as text: a pointer to an object with its marks, a small number, or bits.
    fn value(&self, word: u64) -> String {
        let link = Address::from_bits(word);
        let target = self.allocations.at(link).and_then(|block| Some((block.start, block.marks_of(link)?)));
        match target {
            Some((address, 0)) => address.to_string(),
            Some((address, marks)) => format!("{address}+{marks:#b}"),
            _ if word < 1 << 32 => word.to_string(),
            _ => format!("{word:#x}"),
        }
    }
}

/// Returns the field that contains a byte of an object: `Node.next`, with the offset in the field if that is not 0.
pub(crate) fn field_name(object_type: ObjectType, offset: u64) -> String {
    let inside = |field: &&FieldInfo| {
        let start = field.offset as u64;
        let end = if field.shape.tail_stride > 0 { u64::MAX } else { start + field.shape.size as u64 };
        (start..end).contains(&offset)
    };
    match object_type.fields.iter().find(inside) {
        Some(field) if field.offset as u64 == offset => format!("{}.{}", object_type.name, field.name),
        Some(field) => format!("{}.{}+{}", object_type.name, field.name, offset - field.offset as u64),
        None => format!("{}+{offset}", object_type.name),
    }
}

/// Converts virtual time to a duration, rounded down to nanoseconds.
pub(crate) fn since_start(time: u64) -> Duration {
    Duration::from_nanos(time / 1000)
}
