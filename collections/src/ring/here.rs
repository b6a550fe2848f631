//! Pushes and pops of clients that map the memory: items of 8 bytes, in slots.
//!
//! On an immediate fabric an operation is over when it is first polled. So these functions are not `async`: their words stay in registers. They follow no pointer, and pin no guard.
//!
//! The soak makes them `async`, so that the simulator executes them, and other threads between any two of their operations.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

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

/// Executes an operation.
macro_rules! now {
    ($operation:expr, $context:ident) => {
        completed($operation, &mut $context)?
    };
}

/// Returns the result of an operation on an immediate fabric.
#[inline(always)]
#[allow(clippy::inline_always)] // the operation is inlined, too
fn completed<F: Future>(operation: F, context: &mut Context<'_>) -> F::Output {
    match pin!(operation).poll(context) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("an operation on an immediate fabric is over when it is polled"),
    }
}

impl Slots {
    /// Returns the word of a slot's state, as a number.
    #[inline]
    fn state_word(&self, ticket: Ticket) -> Place<'static, Atomic<u64>> {
        Place::from_address(self.slot(ticket).state().address())
    }

    /// Adds an item at the end. Returns `false` if the ring is full.
    pub(super) fn push_here(&self, item: u64, ct: &ComputeThread) -> Result<Pushed> {
        let mut ticket = self.pushed.get();
        let short = u32::try_from(item).ok();
        // The claim that it has met, and the state of its slot.
        let mut met: Option<(u64, Word)> = None;
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let (claims, state, round) = (self.slot(ticket).claim(), self.state_word(ticket), ticket.round);
            // In this order: a claim that the CAS below finds unchanged was there when the state was read.
            let claimed = if short.is_none() { now!(claims.load(ct), context) } else { 0 };
            let found = Word::from_bits(now!(state.load(ct), context));
            match State::of(found, round) {
                State::Vacant => {
                    let full = if let Some(item) = short {
                        with_short(round, item)
                    } else if is_claimed(claimed, round, revoked(found)) {
                        // Its owner has had the time of a look to fill the slot.
                        if met.replace((claimed, found)) == Some((claimed, found)) {
                            let next = vacant(round, revoked(found).wrapping_add(1));
                            let _ = now!(state.compare_exchange(ct, found.bits(), next.bits()), context);
                        }
                        continue;
                    } else {
                        let mine = claim(round, revoked(found), item);
                        if now!(claims.compare_exchange(ct, claimed, mine), context).is_err() {
                            continue;
                        }
                        with_claimed(round, item)
                    };
                    if now!(state.compare_exchange(ct, found.bits(), full.bits()), context).is_ok() {
                        ticket = ticket.next(self.capacity);
                        self.pushed.set(ticket);
                        if ticket.number.is_multiple_of(LAG) {
                            advance_here(self.tail, ticket, ct)?;
                        }
                        return Ok(Pushed::Done);
                    }
                }
                seen => {
                    let tail = now!(self.tail.load(ct), context);
                    if seen == State::Before && tail <= ticket.number {
                        self.pushed.set(ticket);
                        serve_others(ct);
                        return Ok(Pushed::Not);
                    }
                    // Another client has pushed the item of this ticket.
                    ticket = self.not_before(ticket.next(self.capacity), tail);
                }
            }
        }
    }

    /// Pops the first item unless it is in an object.
    pub(super) fn pop_here(&self, ct: &ComputeThread) -> Result<Head> {
        let mut ticket = self.popped.get();
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let (claims, state) = (self.slot(ticket).claim(), self.state_word(ticket));
            let found = Word::from_bits(now!(state.load(ct), context));
            if found.is_pointer() {
                // Its round may be ambiguous.
                return Ok(Head::Object);
            }
            match State::of(found, ticket.round) {
                State::Full => {
                    // The claim stays as it is while the slot is full.
                    let claimed = if is_claimed_item(found) { now!(claims.load(ct), context) } else { 0 };
                    let next = vacant(ticket.round + 1, 0);
                    let popped = now!(state.compare_exchange(ct, found.bits(), next.bits()), context);
                    // By this client or another one.
                    ticket = ticket.next(self.capacity);
                    self.popped.set(ticket);
                    if popped.is_ok() {
                        if ticket.number.is_multiple_of(LAG) {
                            advance_here(self.head, ticket, ct)?;
                        }
                        return Ok(Head::Popped(item(found, claimed)));
                    }
                }
                State::Vacant => {
                    self.popped.set(ticket);
                    serve_others(ct);
                    return Ok(Head::Nothing);
                }
                State::Popped => {
                    let head = now!(self.head.load(ct), context);
                    ticket = self.not_before(ticket.next(self.capacity), head);
                }
                State::Before => return Err(corrupt()),
            }
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
    let mut context = Context::from_waker(Waker::noop());
    let seen = now!(hint.load(ct), context);
    if seen < to.number {
        let _ = now!(hint.compare_exchange(ct, seen, to.number), context);
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
