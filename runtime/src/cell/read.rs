//! `Read`: the future of one READ of a field or an object.
//!
//! Pointer chasing consists of this future, so it is written by hand. On synchronous fabrics polling it is the READ itself, and its state is an
//! address and a thread, which are never written again. (Three nested `async fn`s took 20 stores a node, which was all the time of the READ.)

use std::future::Future;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::error::{self, Error, PointerFault, Result};
use crate::io::operations::*;
use crate::io::{ReadWords, Single, poll_single};
use crate::memory::worker::Worker;
use crate::session::ComputeThread;
use farfield_fabric::Unposted;
use farfield_fabric::host::{FEWEST_IN_PAIRS, Window, load, load_in_pairs, load_many};
use farfield_words::Address;
use farfield_words::scratch::{DecodedInPlace, Scratch, bytes, copied};
use farfield_words::{Field, WORD_BYTES};

/// One READ of a field or object that is declared as `F`. It is posted by the first poll.
#[must_use = "nothing is read until it is awaited"]
pub struct Read<'g, F> {
    at: Address,
    state: Unposted<'g, Worker, Single<'g, Worker>>,
    field: PhantomData<fn() -> F>,
}

impl<'g, F: Field> Read<'g, F> {
    #[inline]
    pub(crate) fn new(at: Address, ct: &'g ComputeThread) -> Self {
        Self { at, state: Unposted::new(ct.worker()), field: PhantomData }
    }

    /// True if the access begins and ends at word boundaries. The READ then checks its address.
    const WHOLE_WORDS: bool = align_of::<F::Cell>() >= WORD_BYTES;

    /// Returns the offset of a field in its first word. A field narrower than a word is read with its neighbours.
    fn within(&self) -> usize {
        if Self::WHOLE_WORDS { 0 } else { (self.at.bits() % WORD_BYTES as u64) as usize }
    }

    /// Returns the number of words that it reads.
    #[inline]
    fn words(&self) -> usize {
        (self.within() + size_of::<F::Cell>()).div_ceil(WORD_BYTES)
    }

    /// Posts the READ, or polls it.
    #[inline(always)]
    #[allow(clippy::inline_always)] // what is not inlined are functions for all types
    fn poll_posted<R>(
        &mut self,
        context: &mut Context<'_>,
        result: impl FnOnce(&[u64]) -> R,
    ) -> Poll<Result<R>> {
        let (words, from) = (self.words(), Address::from_bits(self.at.bits() - self.within() as u64));
        let read = (from, ReadWords(words));
        poll_single(&mut self.state, read, context, |buffer| result(&buffer[..words]))
    }
}

impl<'g, F: Field> Read<'g, F> {
    const WORDS: usize = Scratch::<F::Cell>::WORDS;

    /// True if the words are loaded and decoded where the READ is awaited, in registers. A large object is loaded by a function: in its caller, the
    /// compiler would take each word for a variable, and copy all of them from one place of the stack to another.
    const INLINE: bool = Self::WORDS <= Window::MOST_WORDS;

    #[inline(always)]
    #[allow(clippy::inline_always)] // or its result is copied through memory, which takes longer than the READ
    fn poll_inline(&mut self, context: &mut Context<'_>) -> Poll<Result<F::Value<'g>>> {
        // Copied before any write, so that the compiler need not reload it.
        let at = self.at;
        if let Err(error) = check_aligned(at, align_of::<F::Cell>()) {
            return Poll::Ready(Err(error));
        }
        if Self::WHOLE_WORDS
            && let Some(first) = self.state.first_poll()
            && let Some(words) = first.thread().words_for_read(at, Self::WORDS)
        {
            let mut scratch = Scratch::<F::Cell>::new();
            let into = scratch.words();
            let words = match Self::WORDS {
                0..FEWEST_IN_PAIRS => load(words, into),
                _ => load_in_pairs(words, into),
            };
            first.executed();
            return Poll::Ready(F::decode(at, bytes(words)).map_err(Into::into));
        }
        let within = self.within();
        if Self::WHOLE_WORDS && Self::WORDS == 1 {
            return match self.poll_posted(context, |words| words[0]) {
                Poll::Ready(Ok(word)) => Poll::Ready(F::decode(at, bytes(&[word])).map_err(Into::into)),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
        }
        // Decoded here too, not in the cold function: a value that is returned through memory there would be copied through memory here, on the path
        // above as well, at the price of a stalled load.
        let mut buffer = [const { MaybeUninit::uninit() }; Window::MOST_WORDS + 1];
        let words = ready!(self.poll_posted(context, |words| copied(words, &mut buffer)));
        // Found here, before the result is decoded, and so not once more where the future is dropped: that may be a call, and the result would be on the
        // stack during it, on the path above as well.
        assert!(self.state.thread().is_some(), "a READ is completed, so nothing is posted");
        Poll::Ready(words.and_then(|words| F::decode(at, &bytes(words)[within..]).map_err(Into::into)))
    }

    /// Polls a READ of a large object, whose value is decoded in the place of its words. A value that is returned is copied: its result is in memory, and its
    /// first words share their place with the error's.
    #[inline(never)]
    fn poll_by_call(
        &mut self,
        context: &mut Context<'_>,
        place: &mut DecodedInPlace<F::Cell, F::Value<'g>>,
    ) -> Poll<Result<()>> {
        let at = self.at;
        if let Err(error) = check_aligned(at, align_of::<F::Cell>()) {
            return Poll::Ready(Err(error));
        }
        if Self::WHOLE_WORDS
            && let Some(ct) = self.state.thread()
            && let Some(words) = ct.words_for_read(at, Self::WORDS)
        {
            let decoded = place.decode(|into| F::decode(at, bytes(load_many(words, into))));
            return Poll::Ready(decoded.map_err(Into::into));
        }
        let within = self.within();
        self.poll_posted(context, |words| place.decode(|_| F::decode(at, &bytes(words)[within..])))
            .map(|decoded| decoded.and_then(|decoded| decoded.map_err(Into::into)))
    }
}

impl<'g, F: Field> Future for Read<'g, F> {
    type Output = Result<F::Value<'g>>;

    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if Self::INLINE {
            return this.poll_inline(context);
        }
        let mut place = DecodedInPlace::new();
        match this.poll_by_call(context, &mut place) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(place.take().expect("it is decoded"))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Checks an alignment above a word's, which the fabric does not know.
#[inline]
pub(super) fn check_aligned(address: Address, align: usize) -> Result<()> {
    if align > WORD_BYTES && !address.bits().is_multiple_of(align as u64) {
        return Err(Error::from(error::InvalidPointer {
            address,
            fault: PointerFault::Misaligned { align: align as u32 },
        }));
    }
    Ok(())
}
