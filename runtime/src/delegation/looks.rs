//! The looks of a thread that has nothing to do, where memory is mapped.
//!
//! After a round that found nothing, the next ones load only the words in which requests, answers and notices arrive, two for each pair. If none of them is what it waits for, and
//! the thread itself has done nothing that makes work, a round would find nothing again. Whatever makes work *stirs* the thread: the next round is a whole one.
//! So is every 64th in any case. Where mailboxes are watched, what arrives stirs it, and there is nothing to load.
//!
//! A look takes some ten instructions for each word, and a whole round without work some hundreds: a request is found about as much earlier.

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

/// What a thread without work looks at.
#[derive(Default)]
pub(super) struct Looks {
    window: OnceCell<Window>,
    words: RefCell<Vec<Awaited>>,
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
    pub(super) fn rest(&self, host: &Host, list: impl FnOnce(&mut Vec<Awaited>)) {
        self.window.get_or_init(|| host.window());
        let mut words = self.words.borrow_mut();
        words.clear();
        list(&mut words);
        self.left.set(LOOKS);
    }

    /// A whole round has found nothing, and whatever arrives stirs the thread.
    pub(super) fn rest_until_stirred(&self) {
        self.left.set(LOOKS);
    }

    /// Looks, unless there may be work. Returns whether there is none.
    #[inline]
    pub(super) fn finds_nothing(&self) -> bool {
        let left = self.left.get();
        if left == 0 {
            return false;
        }
        self.left.set(left - 1);
        let Some(window) = self.window.get() else { return true };
        let is_there = |awaited: &Awaited| match window.words(awaited.at(), 1) {
            Some(word) => awaited.is_there(word[0].load(Ordering::Acquire)),
            // Some words are in no view.
            None => true,
        };
        let finds_nothing = !self.words.borrow().iter().any(is_there);
        if !finds_nothing {
            self.stir();
        }
        finds_nothing
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
