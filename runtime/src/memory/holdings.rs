//! Objects that a thread holds and that may not be reachable from any root: its part of the answer to a [sweep](super::sweep_barrier).

use std::cell::RefCell;
use std::collections::HashSet;

use super::candidates::Candidates;
use super::process::Process;
use super::sweep_barrier::lock;
use crate::pointer::Address;

/// The largest number of written objects that a process remembers.
const MOST_WRITTEN: usize = 1 << 20;

/// Objects of a thread that may not be reachable from any root.
#[derive(Default)]
pub(crate) struct Holdings {
    account: Account,
    /// The objects that values of the program stand for, and the unused places among them.
    held: RefCell<Vec<(Address, Content)>>,
    empty: RefCell<Vec<u32>>,
    /// The objects that were written without being linked.
    written: RefCell<Written>,
}

/// Whether a thread keeps account of its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Account {
    /// It does: another process may sweep.
    Kept,
    /// It does not, at no cost.
    #[default]
    None,
}

/// The words of an object that a thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// They are not in far memory yet, so they link to nothing.
    Unwritten,
    /// They are in far memory, and may link to other objects.
    Written,
}

/// Written objects.
pub(crate) enum Written {
    Objects(HashSet<Address>),
    /// More than a process remembers: it says that it uses all candidates.
    TooMany,
}

impl Default for Written {
    fn default() -> Self {
        Self::Objects(HashSet::new())
    }
}

impl Written {
    fn add(&mut self, object: Address) {
        if let Self::Objects(objects) = self {
            objects.insert(object);
        }
        self.limit();
    }

    fn append(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Objects(mine), Self::Objects(others)) => mine.extend(others),
            _ => *self = Self::TooMany,
        }
        self.limit();
    }

    fn limit(&mut self) {
        if matches!(self, Self::Objects(objects) if objects.len() > MOST_WRITTEN) {
            *self = Self::TooMany;
        }
    }

    pub(crate) fn veto(&self, candidates: &Candidates) {
        match self {
            Self::Objects(objects) => objects.iter().for_each(|at| candidates.uses(*at)),
            Self::TooMany => candidates.uses_everything(),
        }
    }
}

impl Holdings {
    pub(crate) fn new(account: Account) -> Self {
        Self { account, ..Self::default() }
    }

    /// Takes note of an object, until it is [released](Self::release). Returns its place.
    #[inline]
    pub(crate) fn hold(&self, object: Address, content: Content) -> u32 {
        if self.account == Account::None {
            return 0;
        }
        let mut held = self.held.borrow_mut();
        if let Some(place) = self.empty.borrow_mut().pop() {
            held[place as usize] = (object, content);
            return place;
        }
        held.push((object, content));
        held.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn release(&self, place: u32) {
        if self.account == Account::Kept {
            self.held.borrow_mut()[place as usize].0 = Address::NULL;
            self.empty.borrow_mut().push(place);
        }
    }

    /// Takes note of an object that is about to be written, and may be linked later.
    pub(crate) fn wrote(&self, object: Address) {
        if self.account == Account::Kept {
            self.written.borrow_mut().add(object);
        }
    }

    /// An object was retired or deleted.
    #[inline]
    pub(crate) fn forget(&self, object: Address) {
        if self.account == Account::None {
            return;
        }
        if let Written::Objects(written) = &mut *self.written.borrow_mut()
            && !written.is_empty()
        {
            written.remove(&object);
        }
    }

    pub(crate) fn forget_written(&self) {
        self.written.take();
    }

    pub(crate) fn veto(&self, candidates: &Candidates) {
        for (object, content) in &*self.held.borrow() {
            match content {
                Content::Written => candidates.uses(*object),
                Content::Unwritten => candidates.keeps(*object, 1),
            }
        }
        self.written.borrow().veto(candidates);
    }

    /// Leaves the written objects of a thread that ends to its process.
    pub(crate) fn leave(&mut self, process: &Process) {
        let written = std::mem::take(self.written.get_mut());
        lock(&process.sweep_barrier.written).append(written);
    }
}
