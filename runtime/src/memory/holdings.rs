//! What a thread holds that no root may lead to: told to whoever [sweeps](super::sweep).

use std::cell::RefCell;
use std::collections::HashSet;

use super::candidates::Candidates;
use super::process::Process;
use super::sweep_barrier::lock;
use crate::pointer::Address;

/// How many written objects a process remembers. One that has written more says that it uses everything.
const MOST_WRITTEN: usize = 1 << 20;

/// Objects of a thread that no root may lead to.
#[derive(Default)]
pub(crate) struct Holdings {
    /// Whether anybody could ask.
    are_kept: bool,
    /// Those that a value of the program stands for, and whether they have been written; and which of these places are empty.
    held: RefCell<Vec<(Address, bool)>>,
    empty: RefCell<Vec<u32>>,
    /// Those that were written without being linked.
    written: RefCell<Written>,
}

/// Written objects.
#[derive(Default)]
pub(crate) struct Written {
    objects: HashSet<Address>,
    are_too_many: bool,
}

impl Written {
    fn add(&mut self, objects: impl Iterator<Item = Address>) {
        self.objects.extend(objects);
        self.are_too_many |= self.objects.len() > MOST_WRITTEN;
        if self.are_too_many {
            self.objects = HashSet::new();
        }
    }

    pub(crate) fn veto(&self, candidates: &Candidates) {
        if self.are_too_many {
            return candidates.uses_everything();
        }
        self.objects.iter().for_each(|at| candidates.uses(*at));
    }
}

impl Holdings {
    pub(crate) fn new(are_kept: bool) -> Self {
        Self { are_kept, ..Self::default() }
    }

    /// Takes note of an object, until it is [released](Self::release).
    #[inline]
    pub(crate) fn hold(&self, object: Address, is_written: bool) -> u32 {
        if !self.are_kept {
            return 0;
        }
        let mut held = self.held.borrow_mut();
        if let Some(place) = self.empty.borrow_mut().pop() {
            held[place as usize] = (object, is_written);
            return place;
        }
        held.push((object, is_written));
        held.len() as u32 - 1
    }

    #[inline]
    pub(crate) fn release(&self, place: u32) {
        if self.are_kept {
            self.held.borrow_mut()[place as usize].0 = Address::NULL;
            self.empty.borrow_mut().push(place);
        }
    }

    /// Takes note of an object that is about to be written, and perhaps linked later.
    pub(crate) fn wrote(&self, object: Address) {
        if self.are_kept {
            self.written.borrow_mut().add([object].into_iter());
        }
    }

    /// An object has been retired or deleted.
    #[inline]
    pub(crate) fn forget(&self, object: Address) {
        if !self.are_kept {
            return;
        }
        let mut written = self.written.borrow_mut();
        if !written.objects.is_empty() {
            written.objects.remove(&object);
        }
    }

    pub(crate) fn forget_written(&self) {
        self.written.take();
    }

    pub(crate) fn veto(&self, candidates: &Candidates) {
        for (object, is_written) in &*self.held.borrow() {
            if *is_written {
                candidates.uses(*object);
            } else {
                candidates.keeps(*object, 1);
            }
        }
        self.written.borrow().veto(candidates);
    }

    /// What a thread that ends leaves to its process.
    pub(crate) fn leave(&mut self, process: &Process) {
        let written = std::mem::take(self.written.get_mut());
        let mut left = lock(&process.sweep_barrier.written);
        left.are_too_many |= written.are_too_many;
        left.add(written.objects.into_iter());
    }
}
