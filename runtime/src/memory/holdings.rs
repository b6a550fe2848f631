//! Objects of a thread that may not be reachable from any root. The thread vetoes them during a [sweep](super::sweep_barrier).

use std::cell::RefCell;
use std::collections::HashSet;

use super::candidates::Candidates;
use super::process::Process;
use super::sweep_barrier::lock;
use crate::pointer::Address;

/// The largest number of written objects that a process remembers.
const MAX_WRITTEN: usize = 1 << 20;

/// The objects of a thread that may not be reachable from any root.
#[derive(Default)]
pub(crate) struct Holdings {
    tracking: Tracking,
    /// The objects of the program's `Owned` and `Held` values, and the unused entries.
    held: RefCell<Vec<(Address, Content)>>,
    empty: RefCell<Vec<u32>>,
    /// The objects that were written, and may not be linked yet.
    written: RefCell<Written>,
}

/// The tracking of a thread's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// Objects are tracked: another process may sweep.
    On,
    /// Objects are not tracked, at no cost.
    #[default]
    Off,
}

/// The words of an object that a thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// They are not in far memory yet, so they contain no links.
    Unwritten,
    /// They are in far memory, and may contain links.
    Written,
}

/// Written objects.
pub(crate) enum Written {
    Objects(HashSet<Address>),
    /// More than a process remembers: it vetoes all candidates.
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
        if matches!(self, Self::Objects(objects) if objects.len() > MAX_WRITTEN) {
            *self = Self::TooMany;
        }
    }

    pub(crate) fn veto(&self, candidates: &Candidates) {
        match self {
            Self::Objects(objects) => objects.iter().for_each(|at| candidates.mark_used(*at)),
            Self::TooMany => candidates.mark_all_used(),
        }
    }
}

impl Holdings {
    pub(crate) fn new(tracking: Tracking) -> Self {
        Self { tracking, ..Self::default() }
    }

    /// Records an object until it is [released](Self::release). Returns its index.
    #[inline]
    pub(crate) fn hold(&self, object: Address, content: Content) -> u32 {
        if self.tracking == Tracking::Off { 0 } else { self.add(object, content) }
    }

    #[inline(never)]
    fn add(&self, object: Address, content: Content) -> u32 {
        let mut held = self.held.borrow_mut();
        if let Some(index) = self.empty.borrow_mut().pop() {
            held[index as usize] = (object, content);
            return index;
        }
        held.push((object, content));
        held.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn release(&self, index: u32) {
        if self.tracking == Tracking::On {
            self.remove(index);
        }
    }

    #[inline(never)]
    fn remove(&self, index: u32) {
        self.held.borrow_mut()[index as usize].0 = Address::NULL;
        self.empty.borrow_mut().push(index);
    }

    /// Records an object that is about to be written, and may be linked later.
    #[inline]
    pub(crate) fn note_written(&self, object: Address) {
        if self.tracking == Tracking::On {
            self.add_written(object);
        }
    }

    #[inline(never)]
    fn add_written(&self, object: Address) {
        self.written.borrow_mut().add(object);
    }

    /// Removes an object that was retired or deleted.
    #[inline]
    pub(crate) fn forget(&self, object: Address) {
        if self.tracking == Tracking::On {
            self.forget_tracked(object);
        }
    }

    #[inline(never)]
    fn forget_tracked(&self, object: Address) {
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
                Content::Written => candidates.mark_used(*object),
                Content::Unwritten => candidates.mark_kept(*object, 1),
            }
        }
        self.written.borrow().veto(candidates);
    }

    /// Passes the written objects of a thread that ends to its process.
    pub(crate) fn hand_over(&mut self, process: &Process) {
        let written = std::mem::take(self.written.get_mut());
        lock(&process.sweep_barrier.written).append(written);
    }
}
