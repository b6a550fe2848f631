//! `WordOperation`: the future of one operation on far memory that has at most one word as its result.
//!
//! Written by hand, like [`Read`](crate::Read): on the host fabric its poll is the operation itself, which is inlined into its caller. (Of two nested
//! `async fn`s each was called, saved the registers and kept its arguments in memory: 100 instructions around one exchange.) On other fabrics
//! functions that are not inlined post and poll it; see [`single`](super::single).

#![allow(clippy::inline_always)] // or arguments and results are copied through memory

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::metrics::count;
use super::posting::{Operations, Thread};
use super::single::{ReadWords, Single, Verb, poll_single};
use crate::error::Result;
use farfield_fabric::Unposted;
use farfield_fabric::chain::Op;
use farfield_fabric::host::Host;
use farfield_words::Address;

/// An operation with at most one word as its result: its arguments but for the address.
pub(crate) trait WordVerb: Verb + Unpin {
    type Output;

    /// Executes and counts it on the host fabric.
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<Self::Output>;

    /// Returns its result, which is at the beginning of this buffer.
    fn result(buffer: &[u64]) -> Self::Output;
}

/// One operation on far memory. It is executed or posted by the first poll.
#[must_use = "nothing is done until it is awaited"]
pub(crate) struct WordOperation<'t, T: Thread, V: WordVerb> {
    at: Address,
    verb: V,
    state: Unposted<'t, T, Single<'t, T>>,
}

impl<'t, T: Thread, V: WordVerb> WordOperation<'t, T, V> {
    #[inline]
    pub(super) fn new(ct: &'t T, at: Address, verb: V) -> Self {
        Self { at, verb, state: Unposted::new(ct) }
    }

    /// Posts the operation, or polls it.
    #[inline(always)]
    fn poll_posted(&mut self, context: &mut Context<'_>) -> Poll<Result<V::Output>> {
        poll_single(&mut self.state, (self.at, self.verb), context, V::result)
    }
}

impl<T: Thread, V: WordVerb> Future for WordOperation<'_, T, V> {
    type Output = Result<V::Output>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(first) = this.state.first_poll()
            && let Some(host) = first.thread().io().endpoint.immediate()
        {
            let result = this.verb.execute(this.at, first.thread(), host);
            first.executed();
            return Poll::Ready(result);
        }
        this.poll_posted(context)
    }
}

/// An operation whose result is converted.
#[must_use = "nothing is done until it is awaited"]
pub(crate) struct Converted<'t, T: Thread, V: WordVerb, F> {
    operation: WordOperation<'t, T, V>,
    convert: F,
}

impl<'t, T: Thread, V: WordVerb> WordOperation<'t, T, V> {
    /// Returns the operation with its result converted.
    #[inline]
    pub(crate) fn convert<R, F: Fn(V::Output) -> Result<R> + Unpin>(
        self,
        convert: F,
    ) -> Converted<'t, T, V, F> {
        Converted { operation: self, convert }
    }
}

impl<T: Thread, V: WordVerb, R, F: Fn(V::Output) -> Result<R> + Unpin> Future for Converted<'_, T, V, F> {
    type Output = Result<R>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { operation, convert } = &mut *self;
        match Pin::new(operation).poll(context) {
            Poll::Ready(Ok(result)) => Poll::Ready(convert(result)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// A WRITE of one word.
#[derive(Clone, Copy)]
pub(crate) struct WriteWord(pub(super) u64);

/// A WRITE.
#[derive(Clone, Copy)]
pub(crate) struct WriteWords<'w>(pub(super) &'w [u64]);

/// A CAS.
#[derive(Clone, Copy)]
pub(crate) struct ExchangeWord {
    pub(super) expected: u64,
    pub(super) new: u64,
}

/// An FAA.
#[derive(Clone, Copy)]
pub(crate) struct AddToWord(pub(super) u64);

impl WordVerb for ReadWords {
    type Output = u64;

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<u64> {
        debug_assert_eq!(self.0, 1, "the result is one word");
        ct.count_read(1);
        Ok(host.read_word(at)?)
    }
    #[inline(always)]
    fn result(buffer: &[u64]) -> u64 {
        buffer[0]
    }
}

impl Verb for WriteWord {
    const HAS_RESULT: bool = false;

    #[inline(always)]
    fn operation(&self, at: Address) -> Op {
        Op::write(at, 1)
    }
    #[inline(always)]
    fn written(&self) -> &[u64] {
        std::slice::from_ref(&self.0)
    }
}

impl WordVerb for WriteWord {
    type Output = ();

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<()> {
        WriteWords(&[self.0]).execute(at, ct, host)
    }
    fn result(_: &[u64]) {}
}

impl Verb for WriteWords<'_> {
    const HAS_RESULT: bool = false;

    #[inline(always)]
    fn operation(&self, at: Address) -> Op {
        Op::write(at, self.0.len())
    }
    #[inline(always)]
    fn written(&self) -> &[u64] {
        self.0
    }
}

impl WordVerb for WriteWords<'_> {
    type Output = ();

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<()> {
        ct.write_here(host, at, self.0)
    }
    fn result(_: &[u64]) {}
}

impl Verb for ExchangeWord {
    #[inline(always)]
    fn operation(&self, at: Address) -> Op {
        Op::compare_exchange(at, self.expected, self.new)
    }
    #[inline(always)]
    fn has_failed(&self, found: u64) -> bool {
        found != self.expected
    }
}

impl WordVerb for ExchangeWord {
    type Output = u64;

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<u64> {
        ct.writes_words(&[self.new]);
        let found = host.compare_exchange(at, self.expected, self.new);
        ct.io().counters.exchanges.add(usize::from(matches!(found, Ok(found) if found != self.expected)));
        Ok(found?)
    }
    #[inline(always)]
    fn result(buffer: &[u64]) -> u64 {
        buffer[0]
    }
}

impl Verb for AddToWord {
    #[inline(always)]
    fn operation(&self, at: Address) -> Op {
        Op::fetch_add(at, self.0)
    }
}

impl WordVerb for AddToWord {
    type Output = u64;

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<u64> {
        ct.accesses();
        count(&ct.io().counters.faa, 1);
        Ok(host.fetch_add(at, self.0)?)
    }
    #[inline(always)]
    fn result(buffer: &[u64]) -> u64 {
        buffer[0]
    }
}
