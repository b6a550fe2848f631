//! The looks of a thread that has nothing to do, where memory is mapped.
//!
//! After a round that found nothing, the next ones load only the words in which requests, answers and notices arrive, two for each pair. If none of them is what it waits for, and
//! the thread itself has done nothing that makes work, a round would find nothing again. Whatever makes work *stirs* the thread: the next round is a whole one.
//! So is every 64th in any case. Where mailboxes are watched, what arrives stirs it, and there is nothing to load.
//!
//! A look takes some ten instructions for each word, and a whole round without work some hundreds: a request is found about as much earlier. A batch that a look finds in a slot is
//! served at once, and the slot of the next one is looked at in its place: while clients ask again and again, and cause nothing else, there is no whole round.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::atomic::Ordering;

use farfield_fabric::host::{Host, Window};
use farfield_words::Address;

/// The looks between two whole rounds.
const LOOKS: u32 = 64;

/// A word that another thread writes when it has work for this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    /// These bits of it become this value.
    Becomes { at: Address, bits: u64, value: u64 },
    /// It becomes another one.
    Changes { at: Address, from: u64 },
}

impl Awaited {
    #[inline]
    fn at(self) -> Address {
        match self {
            Self::Becomes { at, .. } | Self::Changes { at, .. } => at,
        }
    }

    /// Returns whether the word is what is waited for.
    #[inline]
    fn is_there(self, word: u64) -> bool {
        match self {
            Self::Becomes { bits, value, .. } => word & bits == value,
            Self::Changes { from, .. } => word != from,
        }
    }
}

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    Nothing,
    /// The slot of the next batch of this pair's main lane has changed. It is the word with this index.
    Slot {
        pair: usize,
        index: usize,
    },
    /// There may be work: a whole round is to be made.
    Something,
}

/// The words of a look, and whose slots they are.
#[derive(Default)]
pub(super) struct Words(Vec<(Awaited, Option<usize>)>);

impl Words {
    #[inline]
    pub(super) fn push(&mut self, awaited: Awaited) {
        self.0.push((awaited, None));
    }

    /// Adds the slot of the next batch of a pair's main lane.
    #[inline]
    pub(super) fn push_slot(&mut self, awaited: Awaited, pair: usize) {
        self.0.push((awaited, Some(pair)));
    }
}

/// What a thread without work looks at.
#[derive(Default)]
pub(super) struct Looks {
    window: OnceCell<Window>,
    words: RefCell<Words>,
    /// The looks until the next whole round.
    left: Cell<u32>,
}

impl Looks {
    /// There may be work: the next round is a whole one.
    #[inline]
    pub(super) fn stir(&self) {
        self.left.set(0);
    }

    /// A whole round has found nothing. `list` adds the words to look at from now on.
    pub(super) fn rest(&self, host: &Host, list: impl FnOnce(&mut Words)) {
        self.window.get_or_init(|| host.window());
        let mut words = self.words.borrow_mut();
        words.0.clear();
        list(&mut words);
        self.left.set(LOOKS);
    }

    /// A whole round has found nothing, and whatever arrives stirs the thread.
    pub(super) fn rest_until_stirred(&self) {
        self.left.set(LOOKS);
    }

    /// The batch of a slot was served: from now on the slot of the next one is looked at.
    #[inline]
    pub(super) fn served(&self, index: usize, next: Awaited) {
        if let Some((awaited, _)) = self.words.borrow_mut().0.get_mut(index) {
            *awaited = next;
        }
    }

    /// Looks, unless there may be work.
    #[inline]
    pub(super) fn look(&self) -> Look {
        let left = self.left.get();
        if left == 0 {
            return Look::Something;
        }
        self.left.set(left - 1);
        let Some(window) = self.window.get() else { return Look::Nothing };
        let words = self.words.borrow();
        let found =
            words.0.iter().enumerate().find(|(_, (awaited, _))| match window.words(awaited.at(), 1) {
                Some(word) => awaited.is_there(word[0].load(Ordering::Acquire)),
                // Some words are in no view.
                None => true,
            });
        match found {
            None => Look::Nothing,
            Some((index, (_, Some(pair)))) => Look::Slot { pair: *pair, index },
            Some((_, (_, None))) => {
                self.stir();
                Look::Something
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_finds_what_becomes_and_what_changes() {
        let at = Address::new(0, 64);
        let becomes = Awaited::Becomes { at, bits: 0xffff, value: 7 };
        assert!(becomes.is_there(0x1_0007) && !becomes.is_there(0x1_0008));
        let changes = Awaited::Changes { at, from: 3 };
        assert!(changes.is_there(4) && !changes.is_there(3));
    }
}
