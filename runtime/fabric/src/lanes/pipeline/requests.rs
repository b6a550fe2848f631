//! From chains to work requests: the next request of the oldest chain, if credits allow.

use super::{FencePoints, Flight, Kind, NextPiece, Outlet, Piece, Pipeline, Posting, Request, Verb};
use super::{SIGNALLED, Target};
use crate::chain::{Op, SINGLE_WORDS};
use farfield_words::WORD_BYTES;

impl Pipeline {
    /// Makes the requests of queued chains as far as credits go.
    pub(crate) fn make_requests(&mut self, outlet: &mut impl Outlet) {
        while self.posting.queue.len > 0 {
            let number = self.posting.queue.first;
            if !self.posting.make_next(number, &mut self.flights[number as usize], outlet) {
                return;
            }
        }
    }
}

impl Posting {
    /// Returns whether the request of a single operation can be made now, with its words in its place.
    #[inline]
    pub(crate) fn has_credits(&self, number: u32, kind: Kind) -> bool {
        self.next < self.requests_end
            && (kind == Kind::Write || self.reads() < self.credits.reads)
            && self.queue.len == 0
            && (number as usize) < self.credits.places
    }

    /// As [`has_credits`](Self::has_credits), but false if the request could need a fence. This is asked for each operation, so all that changes rarely
    /// is in one number.
    #[allow(clippy::inline_always)] // as below
    #[inline(always)]
    pub(crate) fn has_usual_credits(&self, number: u32, kind: Kind) -> bool {
        self.next < self.usual_end
            && (kind == Kind::Write || self.made.reads() != self.reads_end)
            && (number as usize) < self.credits.places
    }

    /// Makes the request of a single operation, for which there are credits. Returns its end. All that depends on its kind is constant.
    #[allow(clippy::inline_always)] // see above
    #[inline(always)]
    pub(crate) fn make_single(
        &mut self,
        number: u32,
        op: Op,
        written: &[u64],
        target: Target,
        fence: bool,
        outlet: &mut impl Outlet,
    ) -> u64 {
        let kind = Kind::of(&op);
        let ring = number as usize * SINGLE_WORDS;
        let verb = match op {
            Op::Read { slot, .. } => Verb::Read { ring, words: slot.words() },
            Op::Write { replaces: true, .. } => unreachable!("a word is replaced by a chain"),
            Op::Write { slot, .. } => {
                outlet.write(ring, written);
                Verb::Write { ring, words: slot.words(), inline: slot.words() <= self.credits.inline_words }
            }
            Op::CompareExchange { expected, new, .. } => Verb::CompareExchange { ring, expected, new },
            Op::FetchAdd { addend, .. } => Verb::FetchAdd { ring, addend },
        };
        let position = self.next;
        let signal = position.is_multiple_of(SIGNALLED);
        // First, so that nothing of it is kept while the rest is done.
        outlet.add(Request { verb, target, position, fence, signal });
        self.advance(position, kind, true)
    }

    /// Counts the next request, which has this position. Returns the next position.
    #[inline]
    fn advance(&mut self, position: u64, kind: Kind, last: bool) -> u64 {
        debug_assert_eq!(position, self.next);
        self.next = position + 1;
        self.made.count(kind != Kind::Write, last);
        *self.totals(position) = self.made;
        position + 1
    }

    /// Makes the next request of the first queued chain, if credits allow: copies its payload into the ring. Returns whether they did.
    fn make_next(&mut self, number: u32, flight: &mut Flight, outlet: &mut impl Outlet) -> bool {
        let NextPiece { op: index, words: first } = flight.next;
        let (count, first) = (flight.ops().len(), first as usize);
        // The operands of a CAS or FAA, and whether the chain receives the answer:
        let (kind, at, op_words, slot, operands, has_result) = match &flight.ops()[index as usize] {
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
            Op::FetchAdd { at, addend, slot } => (Kind::FetchAdd, *at, 1, *slot as usize, (*addend, 0), true),
        };
        if self.next == self.requests_end || kind != Kind::Write && self.reads() == self.credits.reads {
            return false;
        }
        let words = (op_words - first).min(self.credits.most_words());
        let Some((ring, ring_words)) = self.ring_space.take(words) else { return false };
        let ring = self.credits.places * SINGLE_WORDS + ring;
        let end_of_op = first + words == op_words;
        let starts = index == 0 && first == 0;
        let last = end_of_op && index as usize + 1 == count;
        let (oldest, position) = (self.first, self.next);
        let fence = self.detached.fence(kind, oldest) || !starts && self.current.fence(kind, oldest);
        if flight.detached {
            self.detached.note(kind, position);
        } else if !last {
            self.current.note(kind, position);
        }
        if starts && self.next != self.posted {
            // Single operations before it do not wait for it, which may be long.
            outlet.signal_last();
        }
        let start = slot + first;
        let verb = match kind {
            Kind::Read => Verb::Read { ring, words },
            Kind::Write => {
                outlet.write(ring, flight.written(start..start + words));
                Verb::Write { ring, words, inline: words <= self.credits.inline_words }
            }
            Kind::CompareExchange => Verb::CompareExchange { ring, expected: operands.0, new: operands.1 },
            Kind::FetchAdd => Verb::FetchAdd { ring, addend: operands.0 },
        };
        let target = outlet.target(at.add((first * WORD_BYTES) as u64));
        self.advance(position, kind, last);
        outlet.add(Request { verb, target, position, fence, signal: last });
        self.pieces.push_back(Piece {
            position,
            flight: number,
            op: index,
            first: first as u32,
            ring: ring as u32,
            ring_words: ring_words as u32,
            answer_words: if has_result { words as u32 } else { 0 },
            answer: start as u32,
        });
        if last {
            flight.end = position + 1;
            self.queue.pop(flight.after);
            self.current = FencePoints::default();
            self.renew_credits();
        } else if end_of_op {
            flight.next = NextPiece { op: index + 1, words: 0 };
        } else {
            flight.next = NextPiece { op: index, words: (first + words) as u32 };
        }
        true
    }
}
