//! Deferred errors: those of detached chains, which the program learns of from a later operation.
//!
//! The program is told that a chain has failed whose future it has not kept: the next of its operations that completes returns the error. Beside the
//! program, services of the thread run: its keeper, the jobs of delegation, an allocator that refills its lists. They repeat what fails, or do
//! without it. If one took a deferred error, the program would never learn that what it has posted is lost. So the operations of a
//! [service](Deferring::in_service) leave the program's error where it is.
//!
//! An operation that is kept in place by its fabric defers its own error, too, and takes it in the same poll. That of a service has a place of its own.
//!
//! Cost: where nothing is deferred, none for the program's operations, and two stores for each poll of a service.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::posting::Thread;
use crate::error::Error;

/// Whose operations a thread executes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Party {
    #[default]
    Program,
    Service,
}

/// A thread's deferred errors.
#[derive(Default)]
pub(super) struct DeferredErrors {
    /// Whose operations run now.
    party: Cell<Party>,
    program: Cell<Option<Error>>,
    service: Cell<Option<Error>>,
}

impl DeferredErrors {
    /// Returns the place of the running party's error.
    fn own(&self) -> &Cell<Option<Error>> {
        match self.party.get() {
            Party::Program => &self.program,
            Party::Service => &self.service,
        }
    }

    /// Returns whether there is none.
    #[inline(never)]
    pub(super) fn is_empty(&self) -> bool {
        is_none(&self.program) && is_none(&self.service)
    }
}

fn is_none(place: &Cell<Option<Error>>) -> bool {
    let error = place.take();
    let is_none = error.is_none();
    place.set(error);
    is_none
}

/// Puts an error in its place, unless another is there.
fn put(place: &Cell<Option<Error>>, error: Error) {
    let first = place.take().unwrap_or(error);
    place.set(Some(first));
}

/// Operations on a thread's deferred errors.
pub(crate) trait Deferring: Thread {
    /// Defers the error of a detached chain: the program's next operation returns it.
    #[cold]
    fn defer_error(&self, error: Error) {
        put(&self.io().deferred_errors.program, error);
        self.io().has_backlog.set(true);
    }

    /// Defers the error of an operation that its party polls now.
    #[cold]
    fn defer_own_error(&self, error: Error) {
        put(self.io().deferred_errors.own(), error);
        self.io().has_backlog.set(true);
    }

    /// Takes the error that an operation has to return.
    fn take_deferred_error(&self) -> Option<Error> {
        self.io().deferred_errors.own().take()
    }

    /// Returns whether there is such an error.
    #[inline]
    fn has_deferred_error(&self) -> bool {
        self.io().has_backlog.get() && self.holds_deferred_error()
    }

    #[inline(never)]
    fn holds_deferred_error(&self) -> bool {
        !is_none(self.io().deferred_errors.own())
    }

    /// Executes a function whose operations are a service's.
    #[inline]
    fn as_service<R>(&self, function: impl FnOnce() -> R) -> R {
        let party = &self.io().deferred_errors.party;
        let _restores = Restores { party, before: party.replace(Party::Service) };
        function()
    }

    /// Returns a future whose operations are a service's.
    #[inline]
    fn in_service<F: Future>(&self, service: F) -> InService<'_, Self, F> {
        InService { thread: self, service }
    }
}

impl<T: Thread> Deferring for T {}

/// Restores a thread's party, also after a panic.
struct Restores<'t> {
    party: &'t Cell<Party>,
    before: Party,
}

impl Drop for Restores<'_> {
    fn drop(&mut self) {
        self.party.set(self.before);
    }
}

pin_project! {
    /// The future of a service.
    pub(crate) struct InService<'t, T: Thread, F> {
        thread: &'t T,
        #[pin]
        service: F,
    }
}

impl<T: Thread, F: Future> Future for InService<'_, T, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.thread.as_service(|| this.service.poll(context))
    }
}
