//! Fabrics that break one rule each.
//!
//! [`Faulty`] is a small conforming fabric: an endpoint executes its chains in order, one with every second poll, on shared memory; the next post
//! executes detached chains. Each [`Violation`] changes one thing.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;

use super::TestEndpoint;
use crate::chain::{Op, RawChain};
use crate::error::Result;
use crate::host::Arena;
use crate::{Posted, Ticket};
use farfield_words::Address;
use farfield_words::WORD_BYTES;

/// A violation of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    None,
    /// Detached chains are executed last first.
    ReordersDetached,
    /// A detached chain is executed only when the thread polls it, after later chains.
    DelaysDetached,
    /// A detached chain is not executed.
    LosesDetached,
    /// A detached chain is executed twice.
    RepeatsDetached,
    /// A chain that completes is executed twice.
    RepeatsCompleted,
    /// A chain completes before it is executed.
    CompletesEarly,
    /// The operations of a chain are executed last first.
    ReversesOperations,
    /// Others see the last operation of a chain first, in a chain of two WRITEs.
    ShowsLastFirst,
    /// The halves of a word are written one after the other.
    TearsWords,
    /// A READ returns the words at the time of posting, before the operations that precede it in its chain.
    ReadsEarly,
    /// FAA loads and stores at different times.
    SplitsAddition,
    /// CAS loads and stores at different times.
    SplitsExchange,
    /// FAA returns the new value.
    FindsSum,
    /// FAA stops at the largest number.
    Saturates,
    /// CAS does not compare.
    ExchangesAlways,
    /// CAS compares the lower half.
    ComparesHalf,
    /// WRITE omits its last word, if it has several.
    WritesLess,
    /// WRITE writes an additional word.
    WritesMore,
    /// The segments of a memory node are the same memory.
    MergesSegments,
    /// Memory is not zero at first.
    BeginsDirty,
    /// A chain continues behind an invalid address.
    GoesOn,
    /// An invalid address is no error.
    HidesFaults,
    /// A long READ returns the first words only.
    ReadsLess,
    /// Each endpoint has memory of its own.
    SharesNothing,
}

impl Violation {
    /// Each violation, and checks that must detect it.
    pub(super) const ALL: &[(Self, &[&str])] = &[
        (Self::None, &[]),
        (Self::ReordersDetached, &["detached_chains_keep_their_order"]),
        (Self::DelaysDetached, &["detached_chains_keep_their_order", "what_is_undone_does_not_come_back"]),
        (Self::LosesDetached, &["detached_chains_take_effect_once"]),
        (Self::RepeatsDetached, &["detached_chains_take_effect_once"]),
        (
            Self::RepeatsCompleted,
            &["an_addition_says_what_was_there", "chains_in_flight_together_all_complete"],
        ),
        (Self::CompletesEarly, &["a_read_is_not_older_than_what_was_completed"]),
        (Self::ReversesOperations, &["a_chain_takes_effect_in_program_order"]),
        (Self::ShowsLastFirst, &["others_see_a_chain_in_program_order"]),
        (Self::TearsWords, &["a_word_is_never_torn"]),
        (Self::ReadsEarly, &["a_chain_takes_effect_in_program_order"]),
        (Self::SplitsAddition, &["chains_in_flight_together_all_complete"]),
        (Self::SplitsExchange, &["of_two_exchanges_in_flight_one_succeeds"]),
        (Self::FindsSum, &["an_addition_says_what_was_there"]),
        (Self::Saturates, &["adding_wraps_around"]),
        (Self::ExchangesAlways, &["an_exchange_compares_and_says_what_was_there"]),
        (Self::ComparesHalf, &["an_exchange_compares_and_says_what_was_there"]),
        (Self::WritesLess, &["a_long_transfer_arrives_whole"]),
        (Self::WritesMore, &["an_operation_touches_its_own_words_only"]),
        (Self::MergesSegments, &["segments_are_memory_of_their_own"]),
        (Self::BeginsDirty, &["memory_begins_as_zero_and_keeps_what_is_written"]),
        (Self::GoesOn, &["an_invalid_address_is_named_and_stops_the_chain"]),
        (Self::HidesFaults, &["an_invalid_address_is_named_and_stops_the_chain"]),
        (Self::ReadsLess, &["a_long_transfer_arrives_whole"]),
        (Self::SharesNothing, &["endpoints_see_each_others_writes", "atomics_of_many_threads_lose_nothing"]),
    ];
}

/// A chain in flight.
struct InFlight {
    ticket: Ticket,
    chain: RawChain,
    polls: u32,
    /// The words at its addresses when it was posted, for violations that read too early.
    seen: Vec<Vec<u64>>,
    is_detached: bool,
}

/// An endpoint of a fabric that breaks a rule.
pub(super) struct Faulty {
    memory: Arc<Arena>,
    violation: Violation,
    next_ticket: Cell<u64>,
    in_flight: RefCell<Vec<InFlight>>,
    /// Chains that have completed before they were executed.
    late: RefCell<Vec<InFlight>>,
}

impl Faulty {
    pub(super) fn new(memory: &Arc<Arena>, violation: Violation) -> Self {
        let memory = match violation {
            Violation::SharesNothing => Arc::new(Arena::new(memory.geometry()).unwrap()),
            _ => Arc::clone(memory),
        };
        if violation == Violation::BeginsDirty {
            let last = Address::new(1, memory.geometry().segment_bytes() - 16);
            memory.word(last).unwrap().store(1, SeqCst);
        }
        let (in_flight, late) = (RefCell::default(), RefCell::default());
        Self { memory, violation, next_ticket: Cell::new(0), in_flight, late }
    }

    fn has(&self, violation: Violation) -> bool {
        self.violation == violation
    }

    fn at(&self, at: Address) -> Address {
        if self.has(Violation::MergesSegments) { Address::new(at.segment() & !1, at.offset()) } else { at }
    }

    fn load(&self, op: &Op) -> Vec<u64> {
        let words = self.memory.words(self.at(op.at()), op.words());
        words.map_or(Vec::new(), |words| words.iter().map(|word| word.load(SeqCst)).collect())
    }

    /// Executes detached chains, so that later chains take effect after them.
    fn settle(&self) {
        if self.has(Violation::DelaysDetached) {
            return;
        }
        let (mut detached, waiting): (Vec<InFlight>, Vec<InFlight>) =
            self.in_flight.take().into_iter().partition(|flight| flight.is_detached);
        self.in_flight.replace(waiting);
        if self.has(Violation::ReordersDetached) {
            detached.reverse();
        }
        for mut flight in detached {
            if !self.has(Violation::LosesDetached) {
                let _ = self.execute(&mut flight);
            }
            if self.has(Violation::RepeatsDetached) {
                let _ = self.execute(&mut flight);
            }
        }
    }

    fn execute(&self, flight: &mut InFlight) -> Result<()> {
        let InFlight { chain, seen, .. } = flight;
        let (ops, words) = chain.parts();
        let mut order: Vec<usize> = (0..ops.len()).collect();
        if self.has(Violation::ReversesOperations) {
            order.reverse();
        }
        let mut result = Ok(());
        for index in order {
            match self.operation(&ops[index], &seen[index], words) {
                Err(_) if self.has(Violation::HidesFaults) => {}
                Err(error) if self.has(Violation::GoesOn) => result = Err(error),
                done => done?,
            }
        }
        result
    }

    /// Executes an operation that found `seen` when it was posted.
    fn operation(&self, op: &Op, seen: &[u64], words: &mut [u64]) -> Result<()> {
        let at = self.at(op.at());
        let cells = self.memory.words(at, op.words())?;
        match op {
            Op::Read { slot, .. } => {
                let count = if self.has(Violation::ReadsLess) { cells.len().min(256) } else { cells.len() };
                for (index, cell) in cells[..count].iter().enumerate() {
                    let early = self.has(Violation::ReadsEarly);
                    words[slot.start + index] = if early { seen[index] } else { cell.load(SeqCst) };
                }
            }
            Op::Write { slot, .. } => {
                let less = self.has(Violation::WritesLess) && cells.len() > 1;
                let count = cells.len() - usize::from(less);
                for (index, cell) in cells[..count].iter().enumerate() {
                    cell.store(words[slot.start + index], SeqCst);
                }
                if self.has(Violation::WritesMore)
                    && let Ok(next) = self.memory.word(at.add((cells.len() * WORD_BYTES) as u64))
                {
                    next.store(words[slot.start], SeqCst);
                }
            }
            Op::CompareExchange { expected, new, slot, .. } => {
                let exchange = |found: u64| {
                    let bits = if self.has(Violation::ComparesHalf) { u64::from(u32::MAX) } else { u64::MAX };
                    let equal = found & bits == expected & bits || self.has(Violation::ExchangesAlways);
                    equal.then_some(*new)
                };
                words[*slot] = if self.has(Violation::SplitsExchange) {
                    if let Some(new) = exchange(seen[0]) {
                        cells[0].store(new, SeqCst);
                    }
                    seen[0]
                } else {
                    cells[0].fetch_update(SeqCst, SeqCst, exchange).unwrap_or_else(|found| found)
                };
            }
            Op::FetchAdd { addend, slot, .. } => {
                let sum = |found: u64| match self.violation {
                    Violation::Saturates => found.saturating_add(*addend),
                    _ => found.wrapping_add(*addend),
                };
                let found = if self.has(Violation::SplitsAddition) {
                    cells[0].store(sum(seen[0]), SeqCst);
                    seen[0]
                } else {
                    cells[0].fetch_update(SeqCst, SeqCst, |found| Some(sum(found))).unwrap_or_default()
                };
                words[*slot] = if self.has(Violation::FindsSum) { sum(found) } else { found };
            }
        }
        Ok(())
    }

    /// Makes parts of a chain visible too early.
    fn begin(&self, chain: &mut RawChain) -> ControlFlow<()> {
        let (ops, words) = chain.parts();
        let last = match (self.violation, ops) {
            (Violation::ShowsLastFirst, [Op::Write { .. }, Op::Write { at, slot, .. }]) => {
                (at, slot, u64::MAX)
            }
            (Violation::TearsWords, [Op::Write { at, slot, .. }]) if slot.len() == 1 => {
                (at, slot, u32::MAX.into())
            }
            _ => return ControlFlow::Break(()),
        };
        let (at, slot, bits) = last;
        if let Ok(cell) = self.memory.word(self.at(*at)) {
            let old = cell.load(SeqCst);
            cell.store(old & !bits | words[slot.start] & bits, SeqCst);
        }
        ControlFlow::Continue(())
    }
}

impl TestEndpoint for Faulty {
    fn post(&self, mut chain: RawChain) -> Posted {
        if !self.has(Violation::ReordersDetached) {
            self.settle();
        }
        for mut flight in self.late.take() {
            let _ = self.execute(&mut flight);
        }
        let seen = chain.ops().iter().map(|op| self.load(op)).collect();
        let _ = self.begin(&mut chain);
        let ticket = Ticket(self.next_ticket.replace(self.next_ticket.get() + 1));
        self.in_flight.borrow_mut().push(InFlight { ticket, chain, polls: 0, seen, is_detached: false });
        Posted::InFlight(ticket)
    }

    fn poll(&self, ticket: Ticket) -> Poll<(RawChain, Result<()>)> {
        let position = {
            let mut in_flight = self.in_flight.borrow_mut();
            let position = in_flight.iter().position(|flight| flight.ticket == ticket).unwrap();
            in_flight[position].polls += 1;
            // Chains that are waited for are executed in order.
            let is_next = in_flight[..position].iter().all(|flight| flight.is_detached);
            if in_flight[position].polls < 2 || !is_next {
                return Poll::Pending;
            }
            position
        };
        let mut flight = self.in_flight.borrow_mut().remove(position);
        self.settle();
        if self.has(Violation::CompletesEarly)
            && flight.chain.ops().iter().all(|op| matches!(op, Op::Write { .. }))
        {
            let InFlight { seen, .. } = &flight;
            let mut chain = RawChain::default();
            for op in flight.chain.ops() {
                if let Op::Write { at, slot, .. } = op {
                    chain.write(*at, flight.chain.written(slot));
                }
            }
            let late = InFlight { ticket, chain, polls: 0, seen: seen.clone(), is_detached: false };
            self.late.borrow_mut().push(late);
            return Poll::Ready((flight.chain, Ok(())));
        }
        let result = self.execute(&mut flight);
        if self.has(Violation::RepeatsCompleted) {
            let mut again = InFlight { chain: RawChain::default(), seen: flight.seen.clone(), ..flight };
            for op in flight.chain.ops() {
                if let Op::FetchAdd { at, addend, .. } = op {
                    again.chain.fetch_add(*at, *addend);
                }
            }
            let _ = self.execute(&mut again);
        }
        Poll::Ready((flight.chain, result))
    }

    fn detach(&self, ticket: Ticket) {
        let mut in_flight = self.in_flight.borrow_mut();
        in_flight.iter_mut().find(|flight| flight.ticket == ticket).unwrap().is_detached = true;
    }

    fn poll_detached(&self) {
        if self.has(Violation::DelaysDetached) {
            let (detached, waiting): (Vec<InFlight>, Vec<InFlight>) =
                self.in_flight.take().into_iter().partition(|flight| flight.is_detached);
            self.in_flight.replace(waiting);
            for mut flight in detached {
                let _ = self.execute(&mut flight);
            }
        } else {
            self.settle();
        }
    }
}
