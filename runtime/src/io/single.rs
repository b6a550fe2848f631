//! `Single`: one operation in flight.
//!
//! The verbs fabric writes a single operation into a slot of its pipeline and reads the result there: the future holds a ticket, and nothing is moved.
//! On the simulator and behind delays a single operation is a chain of one.
//!
//! A single operation whose future is dropped takes effect, and is detached as a chain is: the fabric makes it one when its outcome is polled.
//!
//! Cost over RDMA: two polls, the first of which posts. All else is inlined into them, with an operation whose kind is constant.

#![allow(clippy::inline_always)] // or operations and results are copied through memory

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::detached::Detaching;
use super::metrics::count;
use super::posting::Thread;
use super::submit::Submitted;
use crate::error::{Error, Result};
use farfield_fabric::chain::Op;
use farfield_fabric::{Posted, Ticket, Unposted};
use farfield_words::Address;

/// The kind and the arguments of an operation, but for its address.
pub(crate) trait Verb: Copy {
    /// Returns the operation, whose slot is the beginning of its buffer, and the words that it writes.
    fn operation(&self, at: Address) -> (Op, &[u64]);
}

/// A READ of this number of words.
#[derive(Clone, Copy)]
pub(crate) struct ReadWords(pub(crate) usize);

impl Verb for ReadWords {
    #[inline(always)]
    fn operation(&self, at: Address) -> (Op, &[u64]) {
        (Op::read(at, self.0), &[])
    }
}

/// A posted operation.
pub(crate) struct Single<'t, T: Thread> {
    ct: &'t T,
    /// `None` once the operation is done.
    ticket: Option<Ticket>,
}

/// Posts an operation at its first poll, and polls it. `result` receives the buffer at whose beginning its result is. Once it is completed, the state
/// is that before the first poll, so that nothing is left to drop.
#[inline(always)]
pub(crate) fn poll_single<'t, T: Thread, R>(
    state: &mut Unposted<'t, T, Single<'t, T>>,
    (at, verb): (Address, impl Verb),
    context: &mut Context<'_>,
    result: impl FnOnce(&[u64]) -> R,
) -> Poll<Result<R>> {
    if let Some(ct) = state.thread() {
        return poll_first(state, ct, (at, verb), context, result);
    }
    let Some(single) = state.posted() else { unreachable!("an operation is posted by its first poll") };
    let (op, _) = verb.operation(at);
    let ct = single.ct;
    let result = ready!(single.poll(op.words(), context, result));
    state.take_posted(ct);
    Poll::Ready(result)
}

/// The first poll. Not inlined, so that the later ones save fewer registers.
#[inline(never)]
fn poll_first<'t, T: Thread, R>(
    state: &mut Unposted<'t, T, Single<'t, T>>,
    ct: &'t T,
    (at, verb): (Address, impl Verb),
    context: &mut Context<'_>,
    result: impl FnOnce(&[u64]) -> R,
) -> Poll<Result<R>> {
    let (op, written) = verb.operation(at);
    let (ticket, polled) = if ct.io().endpoint.keeps_singles(op.words()) {
        match ct.begin_in_place(op, written) {
            Ok(ticket) => {
                // Only polling finds completions: an executor that polls only woken tasks must poll again.
                context.waker().wake_by_ref();
                (Some(ticket), Poll::Pending)
            }
            Err(error) => return Poll::Ready(Err(ct.take_deferred_error().unwrap_or_else(|| error.into()))),
        }
    } else {
        poll_as_chain(ct.submit_single(&op, written), context, result)
    };
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
) -> (Option<Ticket>, Poll<Result<R>>) {
    let polled = Pin::new(&mut submitted).poll(context).map(|done| done.map(|done| result(done.buffer())));
    match submitted.into_posted() {
        Some(Posted::InFlight(ticket)) => (Some(ticket), polled),
        _ => (None, polled),
    }
}

impl<T: Thread> Single<'_, T> {
    /// Polls the operation, which accesses this number of words.
    #[inline(always)]
    fn poll<R>(
        &mut self,
        words: usize,
        context: &mut Context<'_>,
        result: impl FnOnce(&[u64]) -> R,
    ) -> Poll<Result<R>> {
        let (ct, Some(ticket)) = (self.ct, self.ticket) else { unreachable!("not polled after completion") };
        let io = ct.io();
        if !io.endpoint.keeps_singles(words) {
            let submitted = Submitted { ct, posted: Some(Posted::InFlight(ticket)), touches_memory: true };
            let (ticket, polled) = poll_as_chain(submitted, context, result);
            self.ticket = ticket;
            return polled;
        }
        io.task_stack.makes_step();
        let polled = io.endpoint.poll_single(ticket, |op, words| {
            if let Op::CompareExchange { expected, .. } = op {
                count(&io.counters.cas_failed, u64::from(words[0] != *expected));
            }
            result(words)
        });
        let Poll::Ready(outcome) = polled else {
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        self.ticket = None;
        Poll::Ready(match ct.take_deferred_error() {
            None => outcome.map_err(Error::from),
            Some(error) => Err(error),
        })
    }
}

impl<T: Thread> Drop for Single<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.ct.detach(ticket);
        }
    }
}

/// Posting single operations.
trait Singles: Detaching {
    /// Posts a single operation that the fabric keeps in place.
    #[inline(always)]
    fn begin_in_place(&self, op: Op, written: &[u64]) -> farfield_fabric::Result<Ticket> {
        let io = self.io();
        match &op {
            Op::Read { .. } => {
                self.count_read(op.words());
                self.accesses();
            }
            Op::Write { .. } => {
                self.count_write(op.words());
                self.writes_words(written);
            }
            Op::CompareExchange { new, .. } => {
                count(&io.counters.cas, 1);
                self.writes_words(&[*new]);
            }
            Op::FetchAdd { .. } => {
                self.count_addition();
                self.accesses();
            }
        }
        self.poll_detached();
        self.posts_chain();
        io.task_stack.makes_step();
        io.endpoint.post_single(op, written, self.task_number())
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
