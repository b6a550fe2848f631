//! `WordOperation`: the future of one operation on far memory that has at most one word as its result.
//!
//! Written by hand, like [`Read`](crate::Read): on the host fabric its poll is the operation itself, which is inlined into its caller. (Of two nested
//! `async fn`s each was called, saved the registers and kept its arguments in memory: 100 instructions around one exchange.) On other fabrics the
//! operation is a chain of one, which a cold function posts and polls.

#![allow(clippy::inline_always)] // or arguments and results are copied through memory

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::metrics::count;
use super::posting::{Operations, Thread};
use super::submit::{Completed, Submitted};
use crate::error::Result;
use farfield_fabric::Unposted;
use farfield_fabric::chain::{RawChain, Slot};
use farfield_fabric::host::Host;
use farfield_words::Address;

/// An operation: its arguments but for the address.
pub(crate) trait WordVerb: Copy + Unpin {
    /// The location of its result in a chain.
    type Slot: Copy + Unpin;
    type Output;

    /// Executes and counts it on the host fabric.
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<Self::Output>;

    /// Adds it to a chain.
    fn add_to(self, chain: &mut RawChain, at: Address) -> Self::Slot;

    /// Returns its result.
    fn result<T: Thread>(done: &Completed<'_, T>, slot: Self::Slot) -> Self::Output;
}

/// One operation on far memory. It is executed or posted by the first poll.
#[must_use = "nothing is done until it is awaited"]
pub(crate) struct WordOperation<'t, T: Thread, V: WordVerb> {
    at: Address,
    verb: V,
    state: Unposted<'t, T, (Submitted<'t, T>, V::Slot)>,
}

impl<'t, T: Thread, V: WordVerb> WordOperation<'t, T, V> {
    #[inline]
    pub(super) fn new(ct: &'t T, at: Address, verb: V) -> Self {
        Self { at, verb, state: Unposted::new(ct) }
    }

    /// Posts the operation as a chain, or polls the posted chain.
    #[cold]
    fn poll_chain(&mut self, context: &mut Context<'_>) -> Poll<Result<V::Output>> {
        let (submitted, slot) = self.state.posted(|ct| {
            let mut chain = ct.empty_chain();
            let slot = self.verb.add_to(&mut chain, self.at);
            (ct.submit(chain), slot)
        });
        Pin::new(submitted).poll(context).map(|done| done.map(|done| V::result(&done, *slot)))
    }
}

impl<T: Thread, V: WordVerb> Future for WordOperation<'_, T, V> {
    type Output = Result<V::Output>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(ct) = this.state.thread()
            && let Some(host) = ct.io().endpoint.immediate()
        {
            return Poll::Ready(this.verb.execute(this.at, ct, host));
        }
        this.poll_chain(context)
    }
}

/// A READ of one word.
#[derive(Clone, Copy)]
pub(crate) struct ReadWord;

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

impl WordVerb for ReadWord {
    type Slot = Slot;
    type Output = u64;

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<u64> {
        ct.count_read(1);
        Ok(host.read_word(at)?)
    }
    fn add_to(self, chain: &mut RawChain, at: Address) -> Slot {
        chain.read(at, 1)
    }
    fn result<T: Thread>(done: &Completed<'_, T>, slot: Slot) -> u64 {
        done.word(slot)
    }
}

impl WordVerb for WriteWord {
    type Slot = ();
    type Output = ();

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<()> {
        WriteWords(&[self.0]).execute(at, ct, host)
    }
    fn add_to(self, chain: &mut RawChain, at: Address) {
        chain.write(at, &[self.0]);
    }
    fn result<T: Thread>(_: &Completed<'_, T>, (): ()) {}
}

impl WordVerb for WriteWords<'_> {
    type Slot = ();
    type Output = ();

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<()> {
        ct.write_here(host, at, self.0)
    }
    fn add_to(self, chain: &mut RawChain, at: Address) {
        chain.write(at, self.0);
    }
    fn result<T: Thread>(_: &Completed<'_, T>, (): ()) {}
}

impl WordVerb for ExchangeWord {
    type Slot = Slot;
    type Output = u64;

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<u64> {
        ct.writes_words(&[self.new]);
        let found = host.compare_exchange(at, self.expected, self.new);
        ct.io().counters.exchanges.add(usize::from(matches!(found, Ok(found) if found != self.expected)));
        Ok(found?)
    }
    fn add_to(self, chain: &mut RawChain, at: Address) -> Slot {
        chain.compare_exchange(at, self.expected, self.new)
    }
    fn result<T: Thread>(done: &Completed<'_, T>, slot: Slot) -> u64 {
        done.word(slot)
    }
}

impl WordVerb for AddToWord {
    type Slot = Slot;
    type Output = u64;

    #[inline(always)]
    fn execute<T: Thread>(self, at: Address, ct: &T, host: &Host) -> Result<u64> {
        ct.accesses();
        count(&ct.io().counters.faa, 1);
        Ok(host.fetch_add(at, self.0)?)
    }
    fn add_to(self, chain: &mut RawChain, at: Address) -> Slot {
        chain.fetch_add(at, self.0)
    }
    fn result<T: Thread>(done: &Completed<'_, T>, slot: Slot) -> u64 {
        done.word(slot)
    }
}
