//! A process's record in far memory: what its words say.

use std::sync::atomic::{AtomicU64, Ordering};

use farfield_fabric::Departure;
use memoffset::offset_of;

use super::control::{self, RECORD_WORDS, Record, SLOT_PAGES, SLOTS_HERE, SLOTS_PER_PAGE};
use crate::error::Result;
use crate::segment::decode;
use farfield_words::Address;
use farfield_words::WORD_BYTES;

/// What a record's state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) identity: Option<u32>,
    pub(crate) evicted_by: Option<u32>,
}

impl State {
    pub(crate) fn of(identity: u32) -> u64 {
        Self { identity: Some(identity), evicted_by: None }.to_word()
    }

    pub(crate) fn to_word(self) -> u64 {
        let half = |identity: Option<u32>| identity.map_or(0, |identity| u64::from(identity) + 1);
        half(self.identity) | half(self.evicted_by) << 32
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let half = |half: u64| (half & u64::from(u32::MAX)).checked_sub(1).map(|identity| identity as u32);
        Self { identity: half(word), evicted_by: half(word >> 32) }
    }
}

/// What a record says, if it is a process's: `words` were read at `places`, and no process has a number above `last`.
///
/// # Errors
/// [`Error::Corrupted`] if the state names a process that can not exist. The other words may be anything: marks of processes that are gone and
/// numbers of runs and sweeps are only compared, counts only shown and added.
fn decode_record(places: Places, words: &[u64; RECORD_WORDS], last: u32) -> Result<Option<Seen>> {
    let word = words[offset_of!(Record, state) / WORD_BYTES];
    let state = State::from_word(word);
    let is_a_process = |identity: Option<u32>| identity.is_none_or(|identity| identity <= last);
    let nobody_is_evicted = state.identity.is_none() && state.evicted_by.is_some();
    if nobody_is_evicted || !is_a_process(state.identity) || !is_a_process(state.evicted_by) {
        return Err(decode::corrupted_as(
            "state of a member",
            places.record,
            word,
            "no process has such a number",
        ));
    }
    Ok(state.identity.map(|identity| Seen { identity, places, words: *words }))
}

/// A process as its record shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) identity: u32,
    pub(crate) places: Places,
    words: [u64; RECORD_WORDS],
}

impl Seen {
    pub(crate) fn word(&self, offset: usize) -> u64 {
        self.words[offset / WORD_BYTES]
    }

    /// Whether nothing of it takes effect any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.word(offset_of!(Record, gone)) == u64::from(self.identity) + 1
    }

    /// Whether it is gone from the first memory node, and the others are yet to be asked.
    pub(crate) fn is_hinted(&self) -> bool {
        self.word(offset_of!(Record, gone)) == HINT | (u64::from(self.identity) + 1)
    }

    /// What changes as long as it lives.
    pub(crate) fn sign(&self) -> u64 {
        self.word(offset_of!(Record, sign))
    }

    /// The system's number of the process.
    pub(crate) fn pid(&self) -> u32 {
        (self.word(offset_of!(Record, sign)) >> 32) as u32
    }

    /// How often it has shown that it lives.
    pub(crate) fn heartbeats(&self) -> u32 {
        self.word(offset_of!(Record, sign)) as u32
    }

    /// About how many bytes its threads have in free blocks and in garbage, as it said last.
    pub(crate) fn holds(&self) -> u64 {
        self.word(offset_of!(Record, holds))
    }

    /// Where its slot is.
    pub(crate) fn slot(&self) -> Address {
        self.places.slot
    }

    /// Where its record is.
    pub(crate) fn record(&self) -> Address {
        self.places.record
    }

    /// The number of the run that it is in, and whom that was written for.
    pub(crate) fn run_word(&self) -> u64 {
        self.word(offset_of!(Record, run))
    }

    /// Which part of which group it is.
    pub(crate) fn group(&self) -> u64 {
        self.word(offset_of!(Record, group))
    }

    /// Which of the group's runs it is in, with how many threads, and how many of them have ended.
    pub(crate) fn round(&self) -> u64 {
        self.word(offset_of!(Record, round))
    }

    /// As [`run_word`](Self::run_word), if it was written for this process.
    pub(crate) fn run(&self) -> u64 {
        let word = self.run_word();
        if word & u64::from(u32::MAX) == u64::from(self.identity) { word } else { 0 }
    }

    /// Which sweep it has heard of, and how far it is with it.
    pub(crate) fn attends(&self) -> u64 {
        self.word(offset_of!(Record, attends))
    }

    /// How many of its threads have ended in that run.
    pub(crate) fn departed(&self) -> u64 {
        self.round() >> DEPARTED_SHIFT
    }
}

/// Where a process stands in far memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) slot: Address,
    pub(crate) record: Address,
}

impl Places {
    /// Those of a number in the control block.
    pub(crate) fn here(number: u64) -> Self {
        Self { slot: control::slot_here(number), record: control::record_here(number) }
    }

    /// Those of a number in a page of further ones.
    pub(crate) fn in_page(page: Address, within: u64) -> Self {
        Self { slot: control::slot_in_page(page, within), record: control::record_in_page(page, within) }
    }
}

/// A field of a record.
pub(crate) fn field(record: Address, offset: usize) -> Address {
    record.add(offset as u64)
}

/// Set beside the identity of a process that is gone from the first memory node, and perhaps not from others.
pub(crate) const HINT: u64 = 1 << 63;

/// Where in a record's round the number of threads begins that have ended.
pub(crate) const DEPARTED_SHIFT: u32 = 34;

/// The processes of some records.
pub(crate) fn collect(
    members: &mut Vec<Seen>,
    records: &[u64],
    places: impl Fn(u64) -> Places,
    last: u32,
) -> Result<()> {
    for (number, words) in (0..).zip(records.as_chunks::<RECORD_WORDS>().0) {
        members.extend(decode_record(places(number), words, last)?);
    }
    Ok(())
}

/// Reads words as records.
#[cfg(any(fuzzing, test))]
pub(crate) fn decode_any(words: &[u64]) {
    let mut members = Vec::new();
    drop(collect(&mut members, words, Places::here, 1 << 24));
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

/// Where processes stand, looked for word by word.
pub(crate) fn all_places(load: impl Fn(Address) -> u64) -> impl Iterator<Item = Places> {
    let pages = (0..SLOT_PAGES).map(move |page| Address::from_bits(load(control::slot_page(page))));
    let there = pages
        .take_while(|page| !page.is_null())
        .flat_map(|page| (0..SLOTS_PER_PAGE as u64).map(move |within| Places::in_page(page, within)));
    (0..SLOTS_HERE as u64).map(Places::here).chain(there)
}

/// Where a process stands, looked for word by word.
pub(crate) fn find(identity: u32, load: impl Fn(Address) -> u64) -> Option<Places> {
    all_places(&load).find(|places| State::from_word(load(places.record)).identity == Some(identity))
}

/// Marks the record of a process that is gone. For the first memory node, which alone writes this word.
pub(crate) fn mark<'a>(identity: u32, departure: Departure, word: impl Fn(Address) -> Option<&'a AtomicU64>) {
    let load = |at| word(at).map_or(0, |word| word.load(Ordering::SeqCst));
    let mark = u64::from(identity) + 1;
    if let Some(places) = find(identity, load)
        && let Some(word) = word(field(places.record, offset_of!(Record, gone)))
        && word.load(Ordering::SeqCst) != mark
    {
        word.store(if departure == Departure::FromNode { mark | HINT } else { mark }, Ordering::SeqCst);
    }
}

/// As [`mark`], for a simulated process.
pub(crate) fn mark_simulated(identity: u32, load: impl Fn(Address) -> u64, store: impl Fn(Address, u64)) {
    if let Some(places) = find(identity, load) {
        store(field(places.record, offset_of!(Record, gone)), u64::from(identity) + 1);
    }
}
