//! `Single`: one operation in flight.
//!
//! The verbs fabric makes the work request of a single operation when it is posted, and keeps its words in a place of their own: the future holds a
//! ticket, and nothing is moved. On the simulator and behind delays a single operation is a chain of one.
//!
//! A single operation whose future is dropped takes effect, and is detached as a chain is: the fabric makes it one when its outcome is polled.
//!
//! Cost over RDMA: two polls, the first of which posts. A poll is a call of one function. The compiler makes a copy of that function for each kind of
//! operation, not for each type of result.
//!
//! That function contains the usual case only: no hook, no failure and no report has work to do. It calls no function in that case, so it saves few
//! registers, or none. In any other case it has no effect, and ends with a call of the function for all cases.

#![allow(clippy::inline_always)] // or operations and results are copied through memory

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::deferred::Deferring as _;
use super::detached::Detaching;
use super::metrics::{Counters, count};
use super::posting::{Operations, Thread};
use super::submit::Submitted;
use crate::error::{Error, Result};
use farfield_fabric::chain::{Op, SINGLE_WORDS};
use farfield_fabric::{Posted, Ticket, Unposted};
use farfield_words::Address;

/// The kind and the arguments of an operation, but for its address.
pub(crate) trait Verb: Copy {
    /// Returns the operation, whose slot is the beginning of its buffer.
    fn operation(&self, at: Address) -> Op;

    /// True if its result is a word or more.
    const HAS_RESULT: bool = true;

    /// Returns the words that it writes.
    #[inline(always)]
    fn written(&self) -> &[u64] {
        &[]
    }

    /// Posts it on a fabric that keeps it in place; see [`Singles::post_single`].
    #[inline(never)]
    fn post_in_place<T: Thread>(self, at: Address, ct: &T, context: &mut Context<'_>) -> Ticket {
        post_in_place(self, at, ct, context)
    }

    /// Returns whether it is a CAS that has failed, given the word that it found.
    #[inline(always)]
    fn has_failed(&self, _: u64) -> bool {
        false
    }
}

/// A READ of this number of words.
#[derive(Clone, Copy)]
pub(crate) struct ReadWords(pub(crate) usize);

impl Verb for ReadWords {
    #[inline(always)]
    fn operation(&self, at: Address) -> Op {
        Op::read(at, self.0)
    }

    #[inline(always)]
    fn post_in_place<T: Thread>(self, at: Address, ct: &T, context: &mut Context<'_>) -> Ticket {
        if self.0 == 1 { ReadWord.post_in_place(at, ct, context) } else { post_read(at, self, ct, context) }
    }
}

#[inline(never)]
fn post_read<T: Thread>(at: Address, read: ReadWords, ct: &T, context: &mut Context<'_>) -> Ticket {
    post_in_place(read, at, ct, context)
}

#[inline(always)]
fn post_in_place<T: Thread>(verb: impl Verb, at: Address, ct: &T, context: &mut Context<'_>) -> Ticket {
    match ct.try_post_single(at, verb) {
        Some(ticket) if ct.wakes_itself(context.waker()) => ticket,
        Some(ticket) => wake_another(ticket, context),
        None => post_in_any_case(verb, at, ct, context),
    }
}

/// Wakes a waker that is not the thread's. Returns `ticket`, so that its caller ends with this call.
#[cold]
#[inline(never)]
fn wake_another(ticket: Ticket, context: &Context<'_>) -> Ticket {
    context.waker().wake_by_ref();
    ticket
}

/// As [`Singles::post_single`], in a function of its own.
#[inline(never)]
fn post_in_any_case<T: Thread>(verb: impl Verb, at: Address, ct: &T, context: &mut Context<'_>) -> Ticket {
    ct.post_single(at, verb, context)
}

/// A READ of one word, whose number the compiler knows.
#[derive(Clone, Copy)]
struct ReadWord;

impl Verb for ReadWord {
    #[inline(always)]
    fn operation(&self, at: Address) -> Op {
        Op::read(at, 1)
    }
}

/// A posted operation.
pub(crate) struct Single<'t, T: Thread> {
    ct: &'t T,
    /// [`Ticket::NONE`] once the operation is done.
    ticket: Ticket,
}

/// The result of polling an operation in place, in two registers.
enum Polled {
    Pending,
    /// Its word, if it is the only one.
    Done(u64),
    /// The thread has a deferred error.
    Failed,
}

/// Posts an operation at its first poll, and polls it. `result` receives the buffer at whose beginning its result is. Once it is completed, the state
/// is that before the first poll, so that nothing is left to drop.
#[inline(always)]
pub(crate) fn poll_single<'t, T: Thread, V: Verb, R>(
    state: &mut Unposted<'t, T, Single<'t, T>>,
    (at, verb): (Address, V),
    context: &mut Context<'_>,
    result: impl FnOnce(&[u64]) -> R,
) -> Poll<Result<R>> {
    let words = verb.operation(at).words();
    if let Some(ct) = state.thread() {
        if !ct.io().endpoint.keeps_singles(words) {
            return poll_first_as_chain(state, ct, (at, verb), context, result);
        }
        let ticket = verb.post_in_place(at, ct, context);
        if ticket == Ticket::NONE {
            return Poll::Ready(Err(ct.error_of_single()));
        }
        state.set_posted(Single { ct, ticket });
        return Poll::Pending;
    }
    let Some(single) = state.posted() else { unreachable!("an operation is posted by its first poll") };
    let ct = single.ct;
    if !ct.io().endpoint.keeps_singles(words) {
        let result = ready!(single.poll_as_chain(context, result));
        state.complete(ct);
        return Poll::Ready(result);
    }
    let mut buffer = [0; SINGLE_WORDS];
    let polled = if !V::HAS_RESULT {
        single.poll_done(context)
    } else if words == 1 {
        let polled = single.poll_word(context);
        if let Polled::Done(word) = polled {
            buffer[0] = word;
            if verb.has_failed(word) {
                count(&ct.io().counters.cas_failed, 1);
            }
        }
        polled
    } else {
        single.poll_words(context, &mut buffer[..words])
    };
    if let Polled::Pending = polled {
        return Poll::Pending;
    }
    // It is over: nothing is left to drop.
    state.complete(ct);
    match polled {
        Polled::Failed => Poll::Ready(Err(ct.error_of_single())),
        _ => Poll::Ready(Ok(result(&buffer[..words]))),
    }
}

/// The first poll, on a fabric that does not keep single operations in place.
#[cold]
#[inline(never)]
fn poll_first_as_chain<'t, T: Thread, R>(
    state: &mut Unposted<'t, T, Single<'t, T>>,
    ct: &'t T,
    (at, verb): (Address, impl Verb),
    context: &mut Context<'_>,
    result: impl FnOnce(&[u64]) -> R,
) -> Poll<Result<R>> {
    let (ticket, polled) =
        poll_as_chain(ct.submit_single(&verb.operation(at), verb.written()), context, result);
    if polled.is_pending() {
        state.set_posted(Single { ct, ticket });
    }
    polled
}

/// Polls an operation that is a chain of one. Returns its ticket if it is in flight still.
fn poll_as_chain<T: Thread, R>(
    mut submitted: Submitted<'_, T>,
    context: &mut Context<'_>,
    result: impl FnOnce(&[u64]) -> R,
) -> (Ticket, Poll<Result<R>>) {
    let polled = Pin::new(&mut submitted).poll(context).map(|done| done.map(|done| result(done.buffer())));
    match submitted.into_posted() {
        Some(Posted::InFlight(ticket)) => (ticket, polled),
        _ => (Ticket::NONE, polled),
    }
}

impl<T: Thread> Single<'_, T> {
    /// Polls an operation with one word in place. Returns the word.
    #[inline(never)]
    fn poll_word(&mut self, context: &mut Context<'_>) -> Polled {
        let mut word = [0];
        match self.ct.try_poll_single(self.ticket, &mut word) {
            Some(()) => Polled::Done(word[0]),
            None => self.poll_word_in_any_case(context),
        }
    }

    /// Polls an operation without a result in place.
    #[inline(never)]
    fn poll_done(&mut self, context: &mut Context<'_>) -> Polled {
        match self.ct.try_poll_single(self.ticket, &mut []) {
            Some(()) => Polled::Done(0),
            None => self.poll_in_any_case(context, &mut []),
        }
    }

    /// Polls an operation in place, and copies its words.
    #[inline(never)]
    fn poll_words(&mut self, context: &mut Context<'_>, into: &mut [u64]) -> Polled {
        match self.ct.try_poll_single(self.ticket, into) {
            Some(()) => Polled::Done(0),
            None => self.poll_in_any_case(context, into),
        }
    }

    #[inline(never)]
    fn poll_word_in_any_case(&mut self, context: &mut Context<'_>) -> Polled {
        let mut word = [0];
        match self.poll_in_any_case(context, &mut word) {
            Polled::Done(_) => Polled::Done(word[0]),
            other => other,
        }
    }

    /// Polls an operation in place, whether it is done or not.
    #[inline(never)]
    fn poll_in_any_case(&mut self, context: &mut Context<'_>, into: &mut [u64]) -> Polled {
        let Self { ct, ticket } = self;
        debug_assert_ne!(*ticket, Ticket::NONE, "not polled after completion");
        let io = ct.io();
        io.task_stack.makes_step();
        match io.endpoint.poll_single(*ticket, into) {
            Poll::Pending => {
                context.waker().wake_by_ref();
                return Polled::Pending;
            }
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => ct.defer_own_error(error.into()),
        }
        *ticket = Ticket::NONE;
        if ct.has_deferred_error() { Polled::Failed } else { Polled::Done(0) }
    }

    /// Polls an operation that is a chain of one.
    #[cold]
    #[inline(never)]
    fn poll_as_chain<R>(
        &mut self,
        context: &mut Context<'_>,
        result: impl FnOnce(&[u64]) -> R,
    ) -> Poll<Result<R>> {
        let posted = Some(Posted::InFlight(self.ticket));
        let (ticket, polled) =
            poll_as_chain(Submitted { ct: self.ct, posted, touches_memory: true }, context, result);
        self.ticket = ticket;
        polled
    }
}

impl<T: Thread> Drop for Single<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.ticket != Ticket::NONE {
            self.ct.detach(self.ticket);
        }
    }
}

/// Posting single operations.
pub(crate) trait Singles: Detaching {
    /// Posts a single operation that the fabric keeps in place. Returns [`Ticket::NONE`] if that fails: its [error](Self::error_of_single) is deferred.
    #[inline(always)]
    fn post_single(&self, at: Address, verb: impl Verb, context: &mut Context<'_>) -> Ticket {
        let (io, words) = (self.io(), verb.operation(at).words());
        match verb.operation(at) {
            Op::Read { .. } => {
                self.count_read(words);
                self.accesses();
            }
            Op::Write { .. } => {
                self.count_write(words);
                self.writes_words(verb.written());
            }
            Op::CompareExchange { new, .. } => {
                count(&io.counters.cas, 1);
                self.writes_words(&[new]);
            }
            Op::FetchAdd { .. } => {
                self.count_addition();
                self.accesses();
            }
        }
        self.poll_detached();
        self.posts_chain();
        io.task_stack.makes_step();
        let posted =
            io.endpoint.post_single(move || verb.operation(at), verb.written(), || self.task_number());
        match posted {
            Ok(ticket) => {
                // Only polling finds completions: an executor that polls only woken tasks must poll again.
                context.waker().wake_by_ref();
                ticket
            }
            Err(error) => {
                self.defer_own_error(error.into());
                Ticket::NONE
            }
        }
    }

    /// As [`post_single`](Self::post_single), in the usual case, in which no other part of the thread has work to do; but wakes nothing. In any other
    /// case returns `None` and has no effect.
    #[inline(always)]
    fn try_post_single(&self, at: Address, verb: impl Verb) -> Option<Ticket> {
        let (io, words) = (self.io(), verb.operation(at).words());
        let Counters { reads, writes, cas, faa, .. } = &io.counters;
        let has_room = match verb.operation(at) {
            Op::Read { .. } => reads.has_room(),
            Op::Write { .. } => writes.has_room(),
            Op::CompareExchange { .. } | Op::FetchAdd { .. } => true,
        };
        if !has_room || io.has_backlog.get() || !self.is_quiet() {
            return None;
        }
        let ticket = io.endpoint.try_post_single(move || verb.operation(at), verb.written())?;
        match verb.operation(at) {
            Op::Read { .. } => reads.add_recent(words),
            Op::Write { .. } => writes.add_recent(words),
            Op::CompareExchange { .. } => count(cas, 1),
            Op::FetchAdd { .. } => count(faa, 1),
        }
        self.counts_chain();
        io.task_stack.makes_step();
        Some(ticket)
    }

    /// Polls an operation in place, in the usual case: it is done, and no error is deferred. In any other case returns `None` and has no effect.
    #[inline(always)]
    fn try_poll_single(&self, ticket: Ticket, into: &mut [u64]) -> Option<()> {
        let io = self.io();
        if io.has_backlog.get() {
            return None;
        }
        io.endpoint.try_poll_single(ticket, into)?;
        io.task_stack.makes_step();
        Some(())
    }

    /// Returns the error of a single operation that has failed: the first that was deferred.
    #[cold]
    #[inline(never)]
    fn error_of_single(&self) -> Error {
        self.take_deferred_error().expect("its error is deferred if no other was")
    }

    /// Posts a single operation as a chain.
    #[cold]
    fn submit_single(&self, op: &Op, written: &[u64]) -> Submitted<'_, Self> {
        let mut chain = self.empty_chain();
        chain.add_first(op, written);
        self.submit(chain)
    }
}

impl<T: Thread> Singles for T {}
