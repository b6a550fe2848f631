//! From chains to work requests: the next piece of the oldest chain, if credits allow.
//!
//! A short WRITE is *inline*: the library copies its words from the chain while it posts. So a request borrows them, and all requests of a doorbell
//! must be able to exist at a time. Therefore the state that posting changes ([`Posting`]) is separate from the chains, except for one cell of each:
//! [`Requests`] borrows the former mutably and the chains immutably.

use super::{FIRST, FencePoints, Flight, Kind, NextPiece, Piece, Pipeline, Posting, Request, Ring, Verb};
use crate::chain::Op;
use farfield_words::WORD_BYTES;

/// The requests that can be posted now. They borrow their inline words from the chains. So any number of them can exist at a time, and until the last
/// is dropped no chain is changed, completed or returned.
pub(crate) struct Requests<'a> {
    flights: &'a [Flight],
    posting: &'a mut Posting,
}

impl Pipeline {
    /// Returns the requests that can be posted now.
    pub(crate) fn requests(&mut self) -> Requests<'_> {
        Requests { flights: &self.flights, posting: &mut self.posting }
    }
}

impl<'a> Requests<'a> {
    /// Takes the next queued request if credits allow, and copies its payload into the ring unless it is inline.
    #[inline]
    pub(crate) fn next(&mut self, ring: &impl Ring) -> Option<Request<'a>> {
        let posting = &*self.posting;
        if posting.queue.len == 0 {
            return None;
        }
        let number = posting.queue.first;
        let flight = &self.flights[number as usize];
        if flight.single_words as usize <= posting.credits.most_words() && !flight.detached {
            self.next_piece::<true>(number, ring)
        } else {
            self.next_of_several(number, ring)
        }
    }

    #[inline(never)]
    fn next_of_several(&mut self, number: u32, ring: &impl Ring) -> Option<Request<'a>> {
        self.next_piece::<false>(number, ring)
    }

    /// The next piece of a chain. If it `IS_WHOLE`, it is a single operation, not detached: so most of what follows is constant.
    #[allow(clippy::inline_always)] // else the compiler shares one copy, which spills its variables at every piece
    #[inline(always)]
    fn next_piece<const IS_WHOLE: bool>(&mut self, number: u32, ring: &impl Ring) -> Option<Request<'a>> {
        let posting = &mut *self.posting;
        let flights: &'a [Flight] = self.flights;
        let flight = &flights[number as usize];
        let next = if IS_WHOLE { Some(FIRST) } else { flight.next.get() };
        let Some(next) = next else { unreachable!("a queued chain has a piece to post") };
        let (index, first) = (next.op as usize, next.words as usize);
        // One match, since each costs as much as several of the steps below. The operands of a CAS or FAA, and whether the chain receives the answer:
        let (kind, at, op_words, slot, operands, has_result) =
            match if IS_WHOLE { &flight.op } else { &flight.ops()[index] } {
                Op::Read { at, slot, .. } => (Kind::Read, *at, slot.words(), slot.start(), (0, 0), true),
                Op::Write { at, slot, replaces: false } => {
                    (Kind::Write, *at, slot.words(), slot.start(), (0, 0), false)
                }
                Op::Write { at, slot, replaces: true } => {
                    // The replaced word precedes the new one.
                    let both = flight.written(slot.start() - 1..slot.start() + 1);
                    (Kind::CompareExchange, *at, 1, 0, (both[0], both[1]), false)
                }
                Op::CompareExchange { at, expected, new, slot } => {
                    (Kind::CompareExchange, *at, 1, *slot as usize, (*expected, *new), true)
                }
                Op::FetchAdd { at, addend, slot } => {
                    (Kind::FetchAdd, *at, 1, *slot as usize, (*addend, 0), true)
                }
            };
        let reads = kind != Kind::Write;
        let words = if IS_WHOLE { op_words } else { (op_words - first).min(posting.credits.most_words()) };
        let inline = !reads && words <= posting.credits.inline_words;
        if posting.pieces.len() == posting.credits.requests || reads && posting.reads == posting.credits.reads
        {
            return None;
        }
        let (ring_at, ring_words) = if inline { (0, 0) } else { posting.ring_space.take(words)? };
        let end_of_op = IS_WHOLE || first + words == op_words;
        let starts = index == 0 && first == 0;
        let last = IS_WHOLE || end_of_op && index + 1 == flight.ops().len();
        let (oldest, position) = (posting.pieces.first, posting.pieces.next);
        let fence = posting.detached.fence(kind, oldest) || !starts && posting.current.fence(kind, oldest);
        if !IS_WHOLE && flight.detached {
            posting.detached.note(kind, position);
        } else if !last {
            posting.current.note(kind, position);
        }
        posting.under_way += usize::from(starts);
        posting.reads += usize::from(reads);
        flight.next.set(if last {
            posting.queue.pop(flight.after);
            if !starts {
                posting.current = FencePoints::default();
            }
            None
        } else if end_of_op {
            Some(NextPiece { op: next.op + 1, words: 0 })
        } else {
            Some(NextPiece { op: next.op, words: (first + words) as u32 })
        });
        let start = if IS_WHOLE { 0 } else { slot + first };
        let verb = match kind {
            Kind::Read => Verb::Read { ring: ring_at, words },
            Kind::Write => {
                let from =
                    if IS_WHOLE { &flight.words[..words] } else { flight.written(start..start + words) };
                if inline {
                    Verb::WriteInline(from)
                } else {
                    ring.write(ring_at, from);
                    Verb::Write { ring: ring_at, words }
                }
            }
            Kind::CompareExchange => {
                Verb::CompareExchange { ring: ring_at, expected: operands.0, new: operands.1 }
            }
            Kind::FetchAdd => Verb::FetchAdd { ring: ring_at, addend: operands.0 },
        };
        posting.pieces.push(Piece {
            flight: number,
            op: next.op,
            first: next.words,
            ring: ring_at as u32,
            ring_words: ring_words as u32,
            answer_words: if has_result { words as u32 } else { 0 },
            answer: start as u32,
            reads,
            last,
        });
        let at = at.add((first * WORD_BYTES) as u64);
        Some(Request { verb, at, position, fence, signal: last })
    }
}
