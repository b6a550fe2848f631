//! Request slots: the words through which a client and a trustee exchange batches.
//!
//! ```text
//!  pair: 8 lines of 64 bytes less than 4 KiB, allocated by the client near the trustee's desk
//!
//!  in the trustee's memory   head: next, trustee, client, build (2), desk, asleep
//!                            4 request slots: header, up to 55 words
//!  in the client's memory    notice
//!                            4 answer slots: header, up to 55 words
//! ```
//!
//! Three slots are the *main lane*, one is the *express lane*, which has numbers of its own. It carries what another trustee must know before this one answers
//! a batch, or sends one: otherwise three trustees could wait for each other in a circle. Its requests wait for nothing.
//!
//! A client that maps the memory has no answer slots: a batch is answered in its own slot, so up to three small requests and their answers share a
//! line.
//!
//! Client and trustee are *apart* if one of them maps the memory of a memory node that the other one reaches over TCP. What the first one writes is not forwarded to the
//! second one, which therefore reads it again and again; and the second one wakes the first one by an exchange of the word on which it sleeps.
//!
//! On `tcp:` these words are written by [direct lines](super::direct), where there are some. Then beside the notice is the address on which the trustee listens.
//!
//! A header is one word, and is written last: the number of the batch, of its requests and of its words. A batch of a lane with `w` slots has the slot of
//! its number modulo `w`. A client writes batch `n` only when it has the answers to batch `n - w`; so no slot is overwritten that the other end has not
//! read, and neither end clears one. Numbers have 32 bits: an old header is that of the batch `w` before, or of none.

use std::sync::atomic::{Ordering, fence};

use super::direct::ADDRESS_WORDS;
use super::looks::Awaited;
use super::mirror::Mirror;
use super::state::Delegation;
use crate::io::operations::*;
use crate::memory::worker::Worker;
use farfield_fabric::chain::RawChain;
use farfield_fabric::host::Host;
use farfield_sim::Sim;
use farfield_words::{Address, WORD_BYTES};

/// The slots of a pair, for requests and for answers.
const SLOTS: usize = 4;
/// The lanes of a pair.
pub(super) const LANES: usize = 2;
/// The lane of requests that must not wait for others.
pub(super) const EXPRESS: usize = 1;
/// The lane of all others.
pub(super) const MAIN: usize = 0;
/// The batches of each lane that may be unanswered.
pub(super) const WINDOWS: [u32; LANES] = [3, 1];
/// The words of a slot: 7 lines.
pub(super) const SLOT_WORDS: usize = 56;
/// The words of a batch without its header.
pub(super) const BATCH_WORDS: usize = SLOT_WORDS - 1;
/// The words of an answer that lies in far memory, with its head.
pub(super) const FAR_WORDS: usize = 3;
/// The most requests of a batch: there is room for the answer of each.
pub(super) const MOST_REQUESTS: usize = BATCH_WORDS / FAR_WORDS;
/// The most words of a request, or of a result, that travels in a slot.
pub(super) const MOST_INLINE: usize = 40;

/// The numbers of the trustee's own functions, and the first one of a program's.
pub(super) mod number {
    /// Names a function: its number, 0, the position of its signature, its own, and its tag; or 1, the fingerprint of a method, and two words; then
    /// the build, and a description.
    pub(in super::super) const BIND: u16 = 0;
    /// The client has no handle of the value any more: the two words of its edge.
    pub(in super::super) const DROP: u16 = 1;
    /// An edge passes from one thread to another: both, or 0, and the edge.
    pub(in super::super) const GIVE: u16 = 2;
    /// The client makes a handle of one that is stored in far memory: its edge.
    pub(in super::super) const JOIN: u16 = 3;
    /// The client has read a result in far memory: its address.
    pub(in super::super) const RELEASE: u16 = 4;
    pub(in super::super) const FIRST: u16 = 16;
}

const HEAD_WORDS: usize = 16;
const NOTICE_WORDS: usize = 8;
const _: () = assert!(ADDRESS_WORDS < NOTICE_WORDS, "the address lies behind the notice");
/// The words of a pair in the trustee's memory.
pub(super) const TRUSTEES_WORDS: usize = HEAD_WORDS + SLOTS * SLOT_WORDS;
/// The words in the client's memory, where answers have their own slots.
pub(super) const CLIENTS_WORDS: usize = NOTICE_WORDS + SLOTS * SLOT_WORDS;
const _: () = assert!((TRUSTEES_WORDS + CLIENTS_WORDS) * WORD_BYTES <= 4096, "a pair has at most 4 KiB");

/// The words of a pair where answers have no slots of their own.
pub(super) const MAPPED_WORDS: usize = TRUSTEES_WORDS + NOTICE_WORDS;
/// The words of a pair elsewhere.
pub(super) const ALL_WORDS: usize = TRUSTEES_WORDS + CLIENTS_WORDS;

/// The words of a pair's head, by their index.
pub(super) mod head {
    /// The address of the next pair that greets the same desk.
    pub(in super::super) const NEXT: usize = 0;
    pub(in super::super) const TRUSTEE: usize = 1;
    pub(in super::super) const CLIENT: usize = 2;
    pub(in super::super) const BUILD: usize = 3;
    /// The address of the client's own desk, or 0.
    pub(in super::super) const DESK: usize = 5;
    /// 1 if the client maps the memory, and awaits answers in the slots of requests; else 0, and it has slots for answers.
    pub(in super::super) const IS_MAPPED: usize = 6;
    pub(in super::super) const WORDS: usize = 7;
    /// Not 0 if the trustee does not look at the pair's slots: the client is to ring. In a line of its own.
    pub(in super::super) const ASLEEP: usize = 8;
}

/// What a trustee tells the client of a pair, apart from answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// It does not know the pair yet.
    None,
    /// It knows the pair, by this number.
    Open { pair: u32, is_mapped: bool },
    /// It has left. Batches up to this number have been executed; none will be.
    Gone(u32),
}

impl Notice {
    pub(super) fn to_word(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Open { pair, is_mapped } => 1 | u64::from(is_mapped) << 1 | u64::from(pair) << 32,
            Self::Gone(last) => 2 | u64::from(last) << 32,
        }
    }

    pub(super) fn of(word: u64) -> Self {
        match word as u32 {
            0 => Self::None,
            kind @ (1 | 3) => Self::Open { pair: (word >> 32) as u32, is_mapped: kind == 3 },
            _ => Self::Gone((word >> 32) as u32),
        }
    }
}

/// The header of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) batch: u32,
    pub(super) count: u8,
    pub(super) words: u8,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Requests,
    Answers,
    /// The client closes the pair. An empty batch.
    Close,
}

impl Header {
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        let kind = match self.kind {
            Kind::Requests => 1,
            Kind::Answers => 2,
            Kind::Close => 3,
        };
        u64::from(self.batch) | u64::from(self.count) << 32 | u64::from(self.words) << 40 | kind << 48
    }

    /// Returns the word of a slot that has the header of a batch with this number; also of this kind, if one is given.
    pub(super) fn awaited(at: Address, batch: u32, kind: Option<Kind>) -> Awaited {
        let bits = u64::from(u32::MAX) | if kind.is_some() { 0xffff << 48 } else { 0 };
        let word = Self { batch, count: 0, words: 0, kind: kind.unwrap_or(Kind::Requests) }.to_word();
        Awaited::Becomes { at, bits, value: word & bits }
    }

    /// Decodes the header of a batch with this number; `None` if the word is another's.
    #[inline]
    pub(super) fn of(word: u64, batch: u32) -> Option<Self> {
        if word as u32 != batch {
            return None;
        }
        let kind = match word >> 48 {
            1 => Kind::Requests,
            2 => Kind::Answers,
            3 => Kind::Close,
            _ => return None,
        };
        let header = Self { batch, count: (word >> 32) as u8, words: (word >> 40) as u8, kind };
        let fits = header.count as usize <= MOST_REQUESTS && header.words as usize <= BATCH_WORDS;
        fits.then_some(header)
    }
}

/// The first word of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestHead {
    /// The number that the pair has given to the function.
    pub(super) function: u16,
    /// The number of the value at its trustee.
    pub(super) object: u32,
    /// The words of the arguments that follow.
    pub(super) words: u8,
    /// True if these are the address and the size class of the arguments in far memory.
    pub(super) is_far: bool,
}

impl RequestHead {
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.object)
            | u64::from(self.function) << 32
            | u64::from(self.words) << 48
            | u64::from(self.is_far) << 56
    }

    #[inline]
    pub(super) fn of(word: u64) -> Self {
        Self {
            object: word as u32,
            function: (word >> 32) as u16,
            words: (word >> 48) as u8,
            is_far: word >> 56 & 1 == 1,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    /// Its result follows.
    Done,
    /// The address and the size class of its result follow.
    Far,
    /// The delegated code panicked; the bytes of the message follow.
    Panicked,
    /// The request was refused; the function was not called.
    Refused(Refusal),
    /// The result could not be stored: the function was called.
    NoRoom,
}

/// Why a trustee has not called a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    OtherBuild,
    NoSuchMethod,
    NoSuchValue,
    OtherType,
    Undecodable,
    InUse,
}

impl Refusal {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::OtherBuild => {
                "the trustee runs another build of the program, whose functions have other positions: use a method of a `#[delegated]` impl"
            }
            Self::NoSuchMethod => "the trustee's build has no such method, or one with another signature",
            Self::NoSuchValue => "the trustee has no such value: the handle's words were overwritten",
            Self::OtherType => "the value has another type",
            Self::Undecodable => "the trustee could not decode the arguments",
            Self::InUse => {
                "the value is in use by the code that waits for this call: call the method on `self` instead"
            }
        }
    }
}

impl Status {
    /// Returns the first word of an answer.
    #[inline]
    pub(super) fn to_word(self, words: usize) -> u64 {
        let status = match self {
            Self::Done => 0,
            Self::Far => 1,
            Self::Panicked => 2,
            Self::NoRoom => 3,
            Self::Refused(refusal) => 16 + refusal as u64,
        };
        status | (words as u64) << 32
    }

    /// Decodes the first word of an answer, and the number of words that follow.
    #[inline]
    pub(super) fn of(word: u64) -> Option<(Self, usize)> {
        const REFUSALS: [Refusal; 6] = [
            Refusal::OtherBuild,
            Refusal::NoSuchMethod,
            Refusal::NoSuchValue,
            Refusal::OtherType,
            Refusal::Undecodable,
            Refusal::InUse,
        ];
        let status = match word as u32 {
            0 => Self::Done,
            1 => Self::Far,
            2 => Self::Panicked,
            3 => Self::NoRoom,
            other => Self::Refused(*REFUSALS.get((other as usize).checked_sub(16)?)?),
        };
        Some((status, (word >> 32) as usize))
    }
}

/// The addresses of a pair's words.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    block: Address,
    /// True if batches are answered in their own slots.
    is_mapped: bool,
}

/// Returns the number of a batch's slot.
#[inline]
fn slot(lane: usize, batch: u32) -> usize {
    if lane == MAIN { (batch % WINDOWS[MAIN]) as usize } else { SLOTS - 1 }
}

fn word(block: Address, index: usize) -> Address {
    block.add((index * WORD_BYTES) as u64)
}

impl Slots {
    pub(super) fn new(block: Address, is_mapped: bool) -> Self {
        Self { block, is_mapped }
    }

    pub(super) fn block(self) -> Address {
        self.block
    }

    /// Returns a word of the head.
    pub(super) fn head(self, index: usize) -> Address {
        word(self.block, index)
    }

    /// Returns the slot of a batch of a lane.
    #[inline]
    pub(super) fn request(self, lane: usize, batch: u32) -> Address {
        word(self.block, HEAD_WORDS + slot(lane, batch) * SLOT_WORDS)
    }

    /// Returns the slot of its answers.
    #[inline]
    pub(super) fn answer(self, lane: usize, batch: u32) -> Address {
        if self.is_mapped {
            return self.request(lane, batch);
        }
        word(self.notice(), NOTICE_WORDS + slot(lane, batch) * SLOT_WORDS)
    }

    /// Returns where the address lies on which the trustee listens.
    pub(super) fn address(self) -> Address {
        word(self.notice(), 1)
    }

    /// Returns the first word in the client's memory.
    #[inline]
    pub(super) fn notice(self) -> Address {
        word(self.block, TRUSTEES_WORDS)
    }
}

/// Access to words in the thread's own memory, without a round trip: all far memory where it is mapped, what the thread hosts in the simulator, and its
/// copy of its mailboxes elsewhere.
#[derive(Clone, Copy)]
pub(super) enum Here<'a> {
    Mapped(&'a Host),
    Hosted(&'a Sim),
    Mirrored(&'a Mirror),
}

impl<'a> Here<'a> {
    /// Returns the access of a thread.
    #[inline]
    pub(super) fn of(worker: &'a Worker) -> Self {
        let endpoint = &worker.io.endpoint;
        match endpoint.mapped() {
            Some(host) => Self::Mapped(host),
            None => match endpoint.virtual_time() {
                Some(sim) if !sim.has_mailboxes() => Self::Hosted(sim),
                _ => Self::Mirrored(Delegation::mirror_of(worker)),
            },
        }
    }

    /// Words are the thread's own from now on. `first` are the values of the first ones; the others are 0.
    pub(super) fn host(self, at: Address, words: usize, first: &[u64]) {
        match self {
            Self::Mapped(_) => {}
            Self::Hosted(sim) => sim.host(at, words),
            Self::Mirrored(mirror) => mirror.add(at, words, first),
        }
    }

    /// Has what others write to the thread's own words forwarded, if the network can.
    pub(super) fn watch(self, worker: &Worker, at: Address) {
        if let Self::Mirrored(mirror) = self {
            mirror.watch(worker, at);
        }
    }

    /// Words that begin at an address are not the thread's own any more.
    pub(super) fn unhost(self, at: Address) {
        match self {
            Self::Mapped(_) => {}
            Self::Hosted(sim) => sim.unhost(at),
            Self::Mirrored(mirror) => mirror.remove(at),
        }
    }

    #[inline]
    pub(super) fn is_mapped(self) -> bool {
        matches!(self, Self::Mapped(_))
    }

    /// Returns whether the words are copies of those in mailboxes.
    #[inline]
    pub(super) fn is_mirrored(self) -> bool {
        matches!(self, Self::Mirrored(_))
    }

    /// Loads a word; 0 outside of far memory.
    #[inline]
    pub(super) fn load(self, at: Address) -> u64 {
        match self {
            Self::Mapped(host) => host.read_word(at).unwrap_or(0),
            Self::Hosted(sim) => sim.load_here(at),
            Self::Mirrored(mirror) => mirror.load(at),
        }
    }

    /// Loads words.
    pub(super) fn copy(self, at: Address, into: &mut [u64]) {
        match self {
            Self::Mapped(host) => {
                if let Ok(words) = host.words(at, into.len()) {
                    for (to, from) in into.iter_mut().zip(words) {
                        *to = from.load(Ordering::Acquire);
                    }
                }
            }
            Self::Hosted(sim) => sim.copy_here(at, into),
            Self::Mirrored(mirror) => mirror.copy(at, into),
        }
    }

    /// Stores a word. Of mailboxes, only the copy is changed.
    #[inline]
    pub(super) fn store(self, at: Address, value: u64) {
        match self {
            Self::Mapped(host) => drop(host.write(at, &[value])),
            Self::Hosted(sim) => sim.store_here(at, value),
            Self::Mirrored(mirror) => mirror.store(at, value),
        }
    }

    /// Replaces a word by 0. Returns it. Not for mailboxes.
    pub(super) fn take(self, at: Address) -> u64 {
        match self {
            Self::Mapped(host) => loop {
                let found = host.read_word(at).unwrap_or(0);
                if found == 0 || host.compare_exchange(at, found, 0).unwrap_or(found) == found {
                    return found;
                }
            },
            Self::Hosted(sim) => {
                let found = sim.load_here(at);
                if found != 0 {
                    sim.store_here(at, 0);
                }
                found
            }
            Self::Mirrored(_) => 0,
        }
    }

    /// Writes the words of a batch, and then its header, to mapped memory. Loads after it are ordered, as by a [fence](Self::fence): an exchange takes half of the time of
    /// a store and a fence.
    #[inline]
    pub(super) fn write_batch(host: &Host, slot: Address, words: &[u64], header: Header) {
        let Ok(to) = host.words(slot, 1 + words.len()) else { return };
        for (to, from) in to[1..].iter().zip(words) {
            to.store(*from, Ordering::Relaxed);
        }
        to[0].swap(header.to_word(), Ordering::SeqCst);
    }

    /// Orders stores before it before loads after it, for those who sleep and those who wake.
    #[inline]
    pub(super) fn fence(self) {
        if self.is_mapped() {
            fence(Ordering::SeqCst);
        }
    }
}

/// Posts a chain. In the simulator it is posted again whenever it fails and is still wanted: a link may have been cut. All its operations may take effect twice.
/// Other links that have failed are not restored. `ends` is called once it is over, with the number of times that it was posted again.
pub(super) fn insist(
    worker: &Worker,
    make: impl Fn(&Worker) -> RawChain + 'static,
    is_wanted: impl Fn() -> bool + 'static,
    ends: impl FnOnce(&Worker, u32) + 'static,
) {
    insist_after(0, worker, make, is_wanted, ends);
}

fn insist_after(
    failures: u32,
    worker: &Worker,
    make: impl Fn(&Worker) -> RawChain + 'static,
    is_wanted: impl Fn() -> bool + 'static,
    ends: impl FnOnce(&Worker, u32) + 'static,
) {
    let chain = make(worker);
    worker.submit_detached(chain, move |worker, done| {
        if done.is_none() && is_wanted() && worker.io.endpoint.virtual_time().is_some() {
            insist_after(failures + 1, worker, make, is_wanted, ends);
        } else {
            ends(worker, failures);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_decoded_as_they_were_encoded() {
        for kind in [Kind::Requests, Kind::Answers, Kind::Close] {
            let header = Header { batch: 9, count: 3, words: 55, kind };
            assert_eq!(Header::of(header.to_word(), 9), Some(header));
            assert_eq!(Header::of(header.to_word(), 13), None);
        }
        assert_eq!(
            Header::of(u64::from(u32::MAX) | 0xffff << 32 | 1 << 48, u32::MAX),
            None,
            "more than fits"
        );
        for is_far in [false, true] {
            let head = RequestHead { function: 700, object: u32::MAX, words: 55, is_far };
            assert_eq!(RequestHead::of(head.to_word()), head);
        }
        let open = [false, true].map(|is_mapped| Notice::Open { pair: u32::MAX, is_mapped });
        for notice in [Notice::None, open[0], open[1], Notice::Gone(u32::MAX)] {
            assert_eq!(Notice::of(notice.to_word()), notice);
        }
        let refused = [
            Refusal::OtherBuild,
            Refusal::NoSuchMethod,
            Refusal::NoSuchValue,
            Refusal::OtherType,
            Refusal::Undecodable,
            Refusal::InUse,
        ];
        let all = [Status::Done, Status::Far, Status::Panicked, Status::NoRoom].into_iter();
        for status in all.chain(refused.map(Status::Refused)) {
            assert_eq!(Status::of(status.to_word(3)), Some((status, 3)));
        }
        assert_eq!(Status::of(15), None);
        assert_eq!(Status::of(99), None);
    }

    #[test]
    fn batches_have_slots_of_whole_lines() {
        let slots = Slots::new(Address::new(0, 4096), false);
        let mut all = std::collections::HashSet::new();
        for (lane, window) in WINDOWS.into_iter().enumerate() {
            for batch in 0..8 {
                let (request, answer) = (slots.request(lane, batch), slots.answer(lane, batch));
                assert!(request.offset().is_multiple_of(64) && answer.offset().is_multiple_of(64));
                assert_eq!(request, slots.request(lane, batch + window));
                all.extend([request, answer]);
            }
        }
        assert_eq!(all.len(), 2 * SLOTS);
        assert_eq!(slots.notice().offset() - slots.block().offset(), (TRUSTEES_WORDS * 8) as u64);
    }
}
