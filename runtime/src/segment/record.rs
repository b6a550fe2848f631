//! A member's record in far memory: decoding, searching, and marking by the memory node.

use std::sync::atomic::{AtomicU64, Ordering};

use farfield_fabric::Departure;

use super::control::{self, EpochPage, Record, SLOT_PAGES, SLOTS_HERE, SLOTS_PER_PAGE};
use crate::error::Result;
use crate::segment::decode;
use farfield_words::Address;

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// No process has the record.
    Free,
    /// A process has the record: its identity.
    Taken(u32),
    /// A dead process has the record, and `evictor` evicts it.
    Evicting { process: u32, evictor: u32 },
}

impl RecordState {
    /// The word: in each half an identity plus 1, or 0. The evictor is in the upper half.
    pub(crate) fn to_word(self) -> u64 {
        let half = |identity: u32| u64::from(identity) + 1;
        match self {
            Self::Free => 0,
            Self::Taken(process) => half(process),
            Self::Evicting { process, evictor } => half(process) | half(evictor) << 32,
        }
    }

    /// The state with this word, if there is one.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let half = |half: u64| (half & u64::from(u32::MAX)).checked_sub(1).map(|identity| identity as u32);
        match (half(word), half(word >> 32)) {
            (None, None) => Some(Self::Free),
            (Some(process), None) => Some(Self::Taken(process)),
            (Some(process), Some(evictor)) => Some(Self::Evicting { process, evictor }),
            (None, Some(_)) => None,
        }
    }

    /// The process that has the record.
    pub(crate) fn process(self) -> Option<u32> {
        match self {
            Self::Free => None,
            Self::Taken(process) | Self::Evicting { process, .. } => Some(process),
        }
    }

    /// The process that evicts another one.
    pub(crate) fn evictor(self) -> Option<u32> {
        if let Self::Evicting { evictor, .. } = self { Some(evictor) } else { None }
    }
}

/// Decodes the words of a record that were read at `places`. Returns the process, if the record is taken. No process has a number above `last`.
///
/// # Errors
/// [`Error::Corrupted`](crate::Error::Corrupted) if the state names a process that can not exist. The other words may have any value: marks of processes that are gone and
/// numbers of runs and sweeps are only compared, counts only shown and added.
fn decode_record(places: Places, words: &[u64], last: u32) -> Result<Option<SeenMember>> {
    let words = Record::from_words(words);
    let can_be = |state: &RecordState| {
        [state.process(), state.evictor()].into_iter().flatten().all(|identity| identity <= last)
    };
    let state = RecordState::from_word(words.state).filter(can_be).ok_or_else(|| {
        let reason = "no process has such a number";
        decode::corrupted_as("state of a member", places.record, words.state, reason)
    })?;
    Ok(state.process().map(|identity| SeenMember { identity, places, state, words }))
}

/// A process as its record shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenMember {
    pub(crate) identity: u32,
    pub(crate) places: Places,
    pub(crate) state: RecordState,
    /// The words of the record.
    pub(crate) words: Record,
}

impl SeenMember {
    /// Returns whether no operation of the process takes effect any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.words.gone == u64::from(self.identity) + 1
    }

    /// Returns whether the process is gone from the first memory node, and perhaps not from the others.
    pub(crate) fn is_hinted(&self) -> bool {
        self.words.gone == HINT | (u64::from(self.identity) + 1)
    }

    /// The process identifier on its machine.
    pub(crate) fn pid(&self) -> u32 {
        (self.words.heartbeat >> 32) as u32
    }

    /// The number of heartbeats of the process.
    pub(crate) fn heartbeats(&self) -> u32 {
        self.words.heartbeat as u32
    }

    /// The address of its epoch slot.
    pub(crate) fn slot(&self) -> Address {
        self.places.slot
    }

    /// The address of its record.
    pub(crate) fn record(&self) -> Address {
        self.places.record
    }

    /// The run that the process is in; 0 if it is in none. The word may have been written for the record's previous process.
    pub(crate) fn run(&self) -> u64 {
        let word = self.words.run;
        if word & u64::from(u32::MAX) == u64::from(self.identity) { word } else { 0 }
    }

    /// The number of its threads that have ended in that run.
    pub(crate) fn departed(&self) -> u64 {
        self.words.round >> DEPARTED_SHIFT
    }
}

/// The addresses of a member's slot and record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) slot: Address,
    pub(crate) record: Address,
}

impl Places {
    /// The places with a number, in the control block.
    pub(crate) fn here(number: usize) -> Self {
        Self { slot: control::epoch_slot(number), record: control::member(number) }
    }

    /// The places with a number, in a page of further slots.
    pub(crate) fn in_page(page: Address, within: usize) -> Self {
        Self { slot: EpochPage::slot(page, within), record: EpochPage::record(page, within) }
    }
}

/// Set beside the identity of a process that is gone from the first memory node, and may not be gone from others.
pub(crate) const HINT: u64 = 1 << 63;

/// The lowest bit of the number of ended threads in a record's round.
pub(crate) const DEPARTED_SHIFT: u32 = 34;

/// Decodes records, and adds their processes to `members`.
pub(crate) fn collect(
    members: &mut Vec<SeenMember>,
    records: &[u64],
    places: impl Fn(usize) -> Places,
    last: u32,
) -> Result<()> {
    for (number, words) in records.chunks_exact(Record::WORDS).enumerate() {
        members.extend(decode_record(places(number), words, last)?);
    }
    Ok(())
}

/// Decodes words as records, and uses the members.
#[cfg(any(fuzzing, test))]
pub(crate) fn decode_any(words: &[u64]) {
    let mut members = Vec::new();
    drop(collect(&mut members, &words[..words.len().min(SLOTS_HERE)], Places::here, 1 << 24));
    for member in members {
        let _ = (
            member.is_gone(),
            member.is_hinted(),
            member.pid(),
            member.heartbeats(),
            member.run(),
            member.departed(),
        );
    }
}

/// The places of all processes, read word by word.
pub(crate) fn all_places(load: impl Fn(Address) -> u64) -> impl Iterator<Item = Places> {
    let pages = (0..SLOT_PAGES).map(move |page| Address::from_bits(load(control::epoch_page(page))));
    let there = pages
        .take_while(|page| !page.is_null())
        .flat_map(|page| (0..SLOTS_PER_PAGE).map(move |within| Places::in_page(page, within)));
    (0..SLOTS_HERE).map(Places::here).chain(there)
}

/// The places of a process, read word by word.
pub(crate) fn find(identity: u32, load: impl Fn(Address) -> u64) -> Option<Places> {
    let process_at =
        |places: &Places| RecordState::from_word(load(places.record)).and_then(RecordState::process);
    all_places(&load).find(|places| process_at(places) == Some(identity))
}

/// Marks the record of a process that is gone. Called by the first memory node, which alone writes this word.
pub(crate) fn mark<'a>(identity: u32, departure: Departure, word: impl Fn(Address) -> Option<&'a AtomicU64>) {
    let load = |at| word(at).map_or(0, |word| word.load(Ordering::SeqCst));
    let mark = u64::from(identity) + 1;
    if let Some(places) = find(identity, load)
        && let Some(word) = word(Record::gone(places.record))
        && word.load(Ordering::SeqCst) != mark
    {
        word.store(if departure == Departure::FromNode { mark | HINT } else { mark }, Ordering::SeqCst);
    }
}

/// Like [`mark`], for a simulated process.
pub(crate) fn mark_simulated(identity: u32, load: impl Fn(Address) -> u64, store: impl Fn(Address, u64)) {
    if let Some(places) = find(identity, load) {
        store(Record::gone(places.record), u64::from(identity) + 1);
    }
}
