//! Pushes and pops of clients that map the memory: items of 8 bytes, in slots.
//!
//! There an operation is over when it is called. So these functions are not `async`: their words stay in registers. They follow no pointer, and pin no guard.
//!
//! The soak makes them `async`, so that the simulator executes them, and other threads between any two of their operations.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use farfield::prelude::*;

use super::slots::{Slots, State, Ticket, Word, claim, corrupt, is_claimed, is_claimed_item, item, revoked};
use super::slots::{vacant, with_claimed, with_short};

/// How many operations pass between two that advance a hint.
const LAG: u64 = 16;

/// The result of a push. As wide as a word: a caller that reads a narrower result as a word would stall the processor.
#[repr(u64)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    Not,
    Done,
}

/// What is at the head of a ring.
pub(super) enum Head {
    Nothing,
    /// The item, which is popped.
    Popped(u64),
    /// An object with an item.
    Object,
}

/// Returns a word as one that is accessed without waiting.
macro_rules! here {
    ($place:expr, $ct:ident) => {
        $place.immediate($ct).ok_or_else(corrupt)?
    };
}

/// Executes an operation. The thread is for the soak, which awaits it.
macro_rules! now {
    ($word:ident.$operation:ident($($argument:expr),*), $ct:ident) => {
        $word.$operation($($argument),*)?
    };
}

/// What became of an operation on the slot of a ticket.
enum Step<R> {
    Done(R),
    /// To be tried again with this ticket.
    Again(Ticket),
}

/// A claim that a producer has met, and the state of its slot.
type Met = Option<(u64, Word)>;

impl Slots {
    /// Returns the word of a slot's state, as a number.
    #[inline]
    fn state_word(&self, ticket: Ticket) -> Place<'static, Atomic<u64>> {
        Place::from_address(self.slot(ticket).state().address())
    }

    /// Adds an item at the end. Returns `false` if the ring is full.
    pub(super) fn push_here(&self, item: u64, ct: &ComputeThread) -> Result<Pushed> {
        let mut met = None;
        // Mostly the first time. A loop around it would keep values of its rounds in memory.
        match self.push_at(self.pushed.get(), item, &mut met, ct)? {
            Step::Done(pushed) => Ok(pushed),
            Step::Again(ticket) => self.push_from(ticket, item, met, ct),
        }
    }

    #[cold]
    fn push_from(&self, mut ticket: Ticket, item: u64, mut met: Met, ct: &ComputeThread) -> Result<Pushed> {
        loop {
            match self.push_at(ticket, item, &mut met, ct)? {
                Step::Done(pushed) => return Ok(pushed),
                Step::Again(next) => ticket = next,
            }
        }
    }

    /// Adds an item with a ticket, if the tickets below are pushed.
    #[inline(always)]
    #[allow(clippy::inline_always)] // it is the body of two functions
    fn push_at(&self, ticket: Ticket, item: u64, met: &mut Met, ct: &ComputeThread) -> Result<Step<Pushed>> {
        let short = u32::try_from(item).ok();
        let round = ticket.round;
        let (claims, state) = (here!(self.slot(ticket).claim(), ct), here!(self.state_word(ticket), ct));
        // In this order: a claim that the CAS below finds unchanged was there when the state was read.
        let claimed = if short.is_none() { now!(claims.load(), ct) } else { 0 };
        let found = Word::from_bits(now!(state.load(), ct));
        let full = match (State::of(found, round), short) {
            (State::Vacant, Some(item)) => with_short(round, item),
            (State::Vacant, None) if is_claimed(claimed, round, revoked(found)) => {
                // Its owner has had the time of a look to fill the slot.
                if met.replace((claimed, found)) == Some((claimed, found)) {
                    let next = vacant(round, revoked(found).wrapping_add(1));
                    let _ = now!(state.compare_exchange(found.bits(), next.bits()), ct);
                }
                return Ok(Step::Again(ticket));
            }
            (State::Vacant, None) => {
                let mine = claim(round, revoked(found), item);
                if now!(claims.compare_exchange(claimed, mine), ct).is_err() {
                    return Ok(Step::Again(ticket));
                }
                with_claimed(round, item)
            }
            (seen, _) => {
                let tail = here!(self.tail, ct);
                let tail = now!(tail.load(), ct);
                if seen == State::Before && tail <= ticket.number {
                    self.pushed.set(ticket);
                    serve_others(ct);
                    return Ok(Step::Done(Pushed::Not));
                }
                // Another client has pushed the item of this ticket.
                return Ok(Step::Again(self.not_before(ticket.next(self.capacity), tail)));
            }
        };
        if now!(state.compare_exchange(found.bits(), full.bits()), ct).is_err() {
            return Ok(Step::Again(ticket));
        }
        let next = ticket.next(self.capacity);
        self.pushed.set(next);
        if next.number.is_multiple_of(LAG) {
            advance_here(self.tail, next, ct)?;
        }
        Ok(Step::Done(Pushed::Done))
    }

    /// Pops the first item unless it is in an object.
    pub(super) fn pop_here(&self, ct: &ComputeThread) -> Result<Head> {
        // As `push_here`.
        match self.pop_at(self.popped.get(), ct)? {
            Step::Done(head) => Ok(head),
            Step::Again(ticket) => self.pop_from(ticket, ct),
        }
    }

    #[cold]
    fn pop_from(&self, mut ticket: Ticket, ct: &ComputeThread) -> Result<Head> {
        loop {
            match self.pop_at(ticket, ct)? {
                Step::Done(head) => return Ok(head),
                Step::Again(next) => ticket = next,
            }
        }
    }

    /// Pops the item of a ticket, if those below are popped.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn pop_at(&self, ticket: Ticket, ct: &ComputeThread) -> Result<Step<Head>> {
        let state = here!(self.state_word(ticket), ct);
        let found = Word::from_bits(now!(state.load(), ct));
        if found.is_pointer() {
            // Its round may be ambiguous.
            return Ok(Step::Done(Head::Object));
        }
        match State::of(found, ticket.round) {
            State::Full => {
                // The claim stays as it is while the slot is full.
                let claimed = if is_claimed_item(found) {
                    let claims = here!(self.slot(ticket).claim(), ct);
                    now!(claims.load(), ct)
                } else {
                    0
                };
                let next = vacant(ticket.round + 1, 0);
                let popped = now!(state.compare_exchange(found.bits(), next.bits()), ct);
                // By this client or another one.
                let next = ticket.next(self.capacity);
                self.popped.set(next);
                if popped.is_err() {
                    return Ok(Step::Again(next));
                }
                if next.number.is_multiple_of(LAG) {
                    advance_here(self.head, next, ct)?;
                }
                Ok(Step::Done(Head::Popped(item(found, claimed))))
            }
            State::Vacant => {
                self.popped.set(ticket);
                serve_others(ct);
                Ok(Step::Done(Head::Nothing))
            }
            State::Popped => {
                let head = here!(self.head, ct);
                let head = now!(head.load(), ct);
                Ok(Step::Again(self.not_before(ticket.next(self.capacity), head)))
            }
            State::Before => Err(corrupt()),
        }
    }

    /// Returns the ticket, or that of a hint if it is later.
    #[inline]
    fn not_before(&self, ticket: Ticket, hint: u64) -> Ticket {
        if hint <= ticket.number { ticket } else { self.ticket(hint) }
    }
}

/// Advances a hint.
#[inline(never)]
fn advance_here(hint: Place<'_, Atomic<u64>>, to: Ticket, ct: &ComputeThread) -> Result<()> {
    serve_others(ct);
    let hint = here!(hint, ct);
    let seen = now!(hint.load(), ct);
    if seen < to.number {
        let _ = now!(hint.compare_exchange(seen, to.number), ct);
    }
    Ok(())
}

/// Serves other threads that wait for this one. These operations pin no guard, which would serve them.
#[inline(never)]
fn serve_others(ct: &ComputeThread) {
    drop(ct.pin());
}

/// Polls a future by a call, so that its variables are not among the caller's.
pub(super) async fn by_call<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| poll_by_call(future.as_mut(), context)).await
}

#[inline(never)]
fn poll_by_call<F: Future>(future: Pin<&mut F>, context: &mut Context<'_>) -> Poll<F::Output> {
    future.poll(context)
}
