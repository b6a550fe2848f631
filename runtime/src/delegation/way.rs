//! Handles on their way from thread to thread.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::desk::DeskPlaces;
use super::state::Delegation;
use farfield_sim::Plant;
use farfield_words::{Address, Reader, ThreadId, Writer};

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Whereabouts {
    pub(super) trustee: ThreadId,
    pub(super) desk: DeskPlaces,
    pub(super) object: u32,
}

/// The handles that a thread has of a value: they share an edge.
pub(super) struct Hold {
    pub(super) of: Whereabouts,
    pub(super) edge: Cell<u128>,
    /// The place of the pair with the trustee among the thread's, when it was last used.
    pub(super) caller: Cell<usize>,
    pub(super) delegation: Rc<Delegation>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.edge.get() != 0 {
            self.delegation.dropped(self.of, self.edge.get());
        }
    }
}

/// The handles of a thread, by value.
pub(super) type Holds = std::collections::HashMap<(ThreadId, u32), Weak<Hold>>;

/// A part of a value's edges that passes from one thread to another, of which its trustee must know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Give {
    pub(super) of: Whereabouts,
    /// `None` for far memory.
    pub(super) from: Option<ThreadId>,
    pub(super) to: Option<ThreadId>,
    pub(super) edge: u128,
}

/// The way of messages: between this thread and another.
pub(super) struct Way {
    delegation: Weak<Delegation>,
    other: ThreadId,
    /// What other trustees must know before the message that is being written is sent.
    gives: RefCell<Vec<Give>>,
}

/// The words of a handle in a message, or in far memory.
pub(super) const HANDLE_WORDS: usize = 5;

impl Whereabouts {
    pub(super) fn to_words(self, edge: u128) -> [u64; HANDLE_WORDS] {
        let Self { trustee, desk, object } = self;
        [trustee.number().get(), desk.0.bits(), object.into(), edge as u64, (edge >> 64) as u64]
    }

    pub(super) fn of_words(words: [u64; HANDLE_WORDS]) -> Option<(Self, u128)> {
        let [trustee, desk, object, low, high] = words;
        let of = Self {
            trustee: ThreadId::of_word(trustee)?,
            desk: DeskPlaces(Address::from_bits(desk)),
            object: u32::try_from(object).ok()?,
        };
        Some((of, u128::from(low) | u128::from(high) << 64))
    }
}

impl Way {
    pub(super) fn new(delegation: Weak<Delegation>, other: ThreadId) -> Self {
        Self { delegation, other, gives: RefCell::default() }
    }

    #[inline]
    pub(super) fn has_gives(&self) -> bool {
        !self.gives.borrow().is_empty()
    }

    /// Takes what other trustees must know.
    pub(super) fn take_gives(&self) -> Vec<Give> {
        self.gives.take()
    }

    /// Sends a handle.
    pub(super) fn send(&self, hold: Rc<Hold>, to: &mut Writer<'_>) {
        let (of, delegation) = (hold.of, Rc::clone(&hold.delegation));
        let edge = hold.detach();
        let (me, owner) = (delegation.me(), of.trustee);
        let give = Give { of, from: Some(me), to: Some(self.other), edge };
        if owner == me {
            delegation.gives_own(Give { from: None, ..give });
        } else if owner != self.other {
            self.gives.borrow_mut().push(give);
        }
        of.to_words(edge).into_iter().for_each(|word| to.put(word));
    }

    /// Receives a handle.
    pub(super) fn receive(&self, from: &mut Reader<'_>) -> Option<Rc<Hold>> {
        let mut words = [0; HANDLE_WORDS];
        for word in &mut words {
            *word = from.take()?;
        }
        let ((of, edge), delegation) = (Whereabouts::of_words(words)?, self.delegation.upgrade()?);
        if of.trustee == delegation.me() {
            delegation.gives_own(Give { of, from: Some(self.other), to: None, edge });
        }
        Some(delegation.hold(of, edge))
    }
}

impl Hold {
    /// Gives away a handle: all of the edge if it is the last one of the thread, otherwise a fresh part of it.
    pub(super) fn detach(self: Rc<Self>) -> u128 {
        if self.delegation.has(Plant::SharedEdge) {
            return self.edge.get();
        }
        if Rc::strong_count(&self) == 1 {
            return self.edge.replace(0);
        }
        let edge = self.delegation.fresh_edge();
        self.edge.set(self.edge.get() ^ edge);
        edge
    }
}
