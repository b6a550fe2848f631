//! What lies in far memory: the root, the slots, and the words in them.
//!
//! The state of a slot is a tagged link, or a value in its place:
//!
//! | state in round `r` | bits 63..48 | 47 | 46 | 45 | 44 | 43..32 | 31..0 |
//! |---|---|---|---|---|---|---|---|
//! | vacant | `r`, its lowest 16 bits | 0 | 1 | 0 | 0 | the next 12 bits of `r` | the number of claims that were revoked |
//! | full, the item in this word | likewise | 0 | 1 | 1 | 1 | likewise | the item |
//! | full, the item in both words | likewise | 0 | 1 | 1 | 0 | likewise | the upper half of the item |
//! | full, the item in an object | 8 bits of `r`, the object's size class | 1 | the object's address | | | | |
//!
//! The claim of a slot is a word:
//!
//! | bits | contents |
//! |---|---|
//! | 63..32 | the lower half of an item |
//! | 31..6 | the lowest 26 bits of the round |
//! | 5..0 | the lowest 6 bits of the number of claims that were revoked in it before |

use std::cell::Cell;
use std::marker::PhantomData;

use farfield::prelude::*;
use farfield::{Address, Bytes, Error, SizeClass};

/// The bits of a round in the state of a slot whose item is not in an object.
const ROUND: u64 = (1 << 28) - 1;
const TAG_BITS: u32 = 16;
const HALF: u32 = 32;
/// The bit of a value that says that there is an item in the slot.
const FULL: u64 = 1 << 45;
/// The bit of a value that says that the item has no other half.
const WHOLE: u64 = 1 << 44;

const CLAIM_ROUND: u64 = (1 << 26) - 1;
const CLAIM_REVOKED_BITS: u32 = 6;
const CLAIM_REVOKED: u32 = (1 << CLAIM_REVOKED_BITS) - 1;

/// The tag of a slot's state: 8 bits of the round, and the size class of the item's object. Without an object, 16 bits of the round.
#[tag(round: 8, rest: 8)]
pub(super) struct SlotTag;

/// The root of a ring, from which [`Ring::attach`](super::Ring::attach) makes a handle.
#[remote]
pub struct RingRoot<T: Bytes> {
    /// Stands for the type of the items.
    pub(super) types: u64,
    pub(super) capacity: u64,
    pub(super) head: Atomic<u64>,
    /// So that consumers and producers use different lines of a processor's cache.
    pub(super) padding: [u64; 7],
    pub(super) tail: Atomic<u64>,
    /// And a slot begins at a multiple of 16 bytes.
    pub(super) more: [u64; 8],
    pub(super) slots: Tail<Slot>,
    #[local]
    pub(super) stored: PhantomData<fn() -> T>,
}

/// A slot.
#[remote]
pub(super) struct Slot {
    pub(super) claim: Atomic<u64>,
    pub(super) state: TaggedLink<Blob, SlotTag>,
}

/// The words of a slot.
pub(super) const SLOT_WORDS: u64 = 2;

/// The word of a slot's state.
pub(super) type Word = TaggedWord<Blob, SlotTag>;

/// A ticket: the number of an item, and the slot through which it passes in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) round: u64,
    pub(super) index: u64,
}

impl Ticket {
    pub(super) fn new(number: u64, capacity: u64) -> Self {
        Self { number, round: number / capacity, index: number % capacity }
    }

    /// Returns the next ticket. Without a division, which takes as long as a CAS.
    #[inline]
    pub(super) fn next(self, capacity: u64) -> Self {
        let (number, index) = (self.number + 1, self.index + 1);
        if index < capacity {
            Self { number, index, ..self }
        } else {
            Self { number, round: self.round + 1, index: 0 }
        }
    }
}

/// A ticket that a handle remembers. In words: one that is written in parts and copied as a whole would stall the processor.
pub(super) struct Remembered {
    number: Cell<u64>,
    round: Cell<u64>,
    index: Cell<u64>,
}

impl Remembered {
    pub(super) fn new(Ticket { number, round, index }: Ticket) -> Self {
        Self { number: Cell::new(number), round: Cell::new(round), index: Cell::new(index) }
    }

    #[inline]
    pub(super) fn get(&self) -> Ticket {
        Ticket { number: self.number.get(), round: self.round.get(), index: self.index.get() }
    }

    #[inline]
    pub(super) fn set(&self, Ticket { number, round, index }: Ticket) {
        self.number.set(number);
        self.round.set(round);
        self.index.set(index);
    }
}

/// What a handle knows of its ring.
pub(super) struct Slots {
    pub(super) capacity: u64,
    pub(super) head: Place<'static, Atomic<u64>>,
    pub(super) tail: Place<'static, Atomic<u64>>,
    first: Address,
    /// All tickets below are pushed.
    pub(super) pushed: Remembered,
    /// All tickets below are popped.
    pub(super) popped: Remembered,
}

impl Slots {
    /// Makes it from the root's capacity, and from its hints.
    pub(super) fn of<T: Bytes>(root: RemotePtr<RingRoot<T>>, capacity: u64, head: u64, tail: u64) -> Self {
        Self {
            capacity,
            head: root.head(),
            tail: root.tail(),
            first: root.slots().at(0).address(),
            pushed: Remembered::new(Ticket::new(tail, capacity)),
            popped: Remembered::new(Ticket::new(head, capacity)),
        }
    }

    pub(super) fn ticket(&self, number: u64) -> Ticket {
        Ticket::new(number, self.capacity)
    }

    /// Returns the slot of a ticket.
    #[inline]
    pub(super) fn slot(&self, ticket: Ticket) -> Place<'static, Slot> {
        Place::from_address(self.first.add(ticket.index * (SLOT_WORDS * size_of::<u64>() as u64)))
    }
}

#[cold]
pub(super) fn corrupt() -> Error {
    Error::other("a slot of the ring has no item of its type")
}

/// A slot's state, as a ticket sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The item of the round before is not popped.
    Before,
    Vacant,
    Full,
    /// The item of this ticket was popped.
    Popped,
}

impl State {
    /// Returns the state of a slot for a ticket of a round that is not older than some hundred rounds.
    #[inline]
    pub(super) fn of(word: Word, round: u64) -> Self {
        if let Some(value) = word.value() {
            let is_full = value & FULL != 0;
            return match round_of(word, value).wrapping_sub(round) & ROUND {
                0 if is_full => Self::Full,
                0 => Self::Vacant,
                ROUND if is_full && round > 0 => Self::Before,
                _ => Self::Popped,
            };
        }
        match word.tag().round().wrapping_sub(round as u8) {
            0 => Self::Full,
            u8::MAX if round > 0 => Self::Before,
            _ => Self::Popped,
        }
    }
}

fn round_of(word: Word, value: u64) -> u64 {
    let tag = word.tag();
    u64::from(u16::from_le_bytes([tag.round(), tag.rest()])) | (value & !(FULL | WHOLE)) >> HALF << TAG_BITS
}

fn without_object(round: u64, value: u64) -> Word {
    let [low, high, ..] = round.to_le_bytes();
    Word::with_value(SlotTag::new(low, high), (round & ROUND) >> TAG_BITS << HALF | value)
}

/// Makes the state of a vacant slot in which this many claims were revoked.
#[inline]
pub(super) fn vacant(round: u64, revoked: u32) -> Word {
    without_object(round, u64::from(revoked))
}

/// Makes the state of a slot with a short item.
#[inline]
pub(super) fn with_short(round: u64, item: u32) -> Word {
    without_object(round, FULL | WHOLE | u64::from(item))
}

/// Makes the state of a slot with an item whose lower half is in the slot's claim.
#[inline]
pub(super) fn with_claimed(round: u64, item: u64) -> Word {
    without_object(round, FULL | item >> HALF)
}

/// Makes the tag of the state of a slot whose item is in an object.
pub(super) fn with_object(round: u64, class: SizeClass) -> SlotTag {
    SlotTag::new(round as u8, class.number())
}

/// Returns how many claims of a vacant slot were revoked.
#[inline]
pub(super) fn revoked(vacant: Word) -> u32 {
    vacant.bits() as u32
}

/// Returns whether the item of a full slot is in both words.
#[inline]
pub(super) fn is_claimed_item(full: Word) -> bool {
    full.value().is_some_and(|value| value & WHOLE == 0)
}

/// Returns the item of a full slot, which is in no object.
#[inline]
pub(super) fn item(full: Word, claim: u64) -> u64 {
    let half = full.bits() & u64::from(u32::MAX);
    if is_claimed_item(full) { half << HALF | claim >> HALF } else { half }
}

/// Makes a claim.
#[inline]
pub(super) fn claim(round: u64, revoked: u32, item: u64) -> u64 {
    item << HALF | (round & CLAIM_ROUND) << CLAIM_REVOKED_BITS | u64::from(revoked & CLAIM_REVOKED)
}

/// Returns whether a claim is one in this round, with this many revoked before.
#[inline]
pub(super) fn is_claimed(word: u64, round: u64, revoked: u32) -> bool {
    word as u32 == claim(round, revoked, 0) as u32
}

/// Returns whether a claim is one in this round.
pub(super) fn is_of_round(word: u64, round: u64) -> bool {
    is_claimed(word, round, word as u32)
}

/// A slot that no item has passed through.
pub(super) fn new_slot() -> SlotInit {
    Slot::init().claim(claim(u64::MAX, 0, 0)).state(vacant(0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slots_words_keep_their_round_and_the_item() {
        for round in [0, 1, 255, 256, 65_535, 65_536, ROUND - 1, ROUND, ROUND + 1, 1 << 40] {
            for item in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                let (full, claim) = (with_claimed(round, item), claim(round, 3, item));
                assert_eq!(State::of(full, round), State::Full);
                assert_eq!(super::item(full, claim), item);
                assert_eq!(State::of(full, round + 1), State::Before);
                assert!(is_claimed(claim, round, 3) && is_of_round(claim, round));
                assert!(!is_claimed(claim, round, 4) && !is_claimed(claim, round + 1, 3));
            }
            let short = with_short(round, 7);
            assert_eq!((State::of(short, round), super::item(short, u64::MAX)), (State::Full, 7));
            let vacant = vacant(round, u32::MAX);
            assert_eq!((State::of(vacant, round), revoked(vacant)), (State::Vacant, u32::MAX));
            if round > 0 {
                assert_eq!(State::of(vacant, round - 1), State::Popped);
            }
        }
    }

    #[test]
    fn a_ticket_is_counted_without_a_division() {
        for capacity in [1, 2, 7] {
            let mut ticket = Ticket::new(0, capacity);
            for number in 1..30 {
                ticket = ticket.next(capacity);
                let expected = Ticket::new(number, capacity);
                assert_eq!(
                    (ticket.number, ticket.round, ticket.index),
                    (expected.number, expected.round, expected.index)
                );
            }
        }
    }
}
