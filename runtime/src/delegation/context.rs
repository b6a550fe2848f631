//! What delegated code may use besides its value and its arguments.

use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use super::function::by_position;
use super::state::Delegation;
use super::trust::Trust;
use crate::error::Result;
use farfield_words::{Message, ThreadId};

/// Access to other trustees, for delegated code that takes it: a function `fn(&mut T, &Context<'_>, A) -> R`.
///
/// Delegated code has no [`ComputeThread`](crate::ComputeThread). So it can not wait: two trustees that wait for each other would wait for ever. A method of a `#[delegated]`
/// impl takes a context, too, and requests other ones by `client.via(context)`: see [`Request`](crate::Request).
pub struct Context<'a> {
    pub(super) delegation: &'a Rc<Delegation>,
    caller: ThreadId,
}

impl<'a> Context<'a> {
    pub(super) fn new(delegation: &'a Rc<Delegation>, caller: ThreadId) -> Self {
        Self { delegation, caller }
    }

    /// Returns the thread that made the request.
    pub fn caller(&self) -> ThreadId {
        self.caller
    }

    /// Gives a value to this thread, which is the trustee of all values that it was given.
    ///
    /// # Errors
    /// Those of [`ComputeThread::entrust`](crate::ComputeThread::entrust).
    pub fn entrust<T: 'static>(&self, value: T) -> Result<Trust<T>> {
        Trust::of_own(self.delegation, Box::new(value), &[])
    }

    /// Requests that a value's trustee applies a function, and does not wait: see [`Trust::post`]. Also if the trustee is this thread: then the function is called
    /// after this one has returned.
    ///
    /// # Errors
    /// Those of [`Trust::post`]. Arguments of more than 320 bytes are refused: they need far memory, for which this code can not wait.
    #[track_caller]
    pub fn post<T: 'static, A: Message, R: Message>(
        &self,
        trust: &Trust<T>,
        args: A,
        function: fn(&mut T, A) -> R,
    ) -> Result<()> {
        self.apply_then(trust, args, function, |_, _| ())
    }

    /// Requests that a value's trustee applies a function, and calls `then` with the result, on this thread, after this code has returned.
    ///
    /// # Errors
    /// Those of [`post`](Self::post). `then` receives those that are known later.
    #[track_caller]
    pub fn apply_then<T: 'static, A: Message, R: Message>(
        &self,
        trust: &Trust<T>,
        args: A,
        function: fn(&mut T, A) -> R,
        then: impl FnOnce(Result<R>, &Reaction<'_>) + 'static,
    ) -> Result<()> {
        let naming = by_position(function, Location::caller());
        trust.request(self.delegation, naming, args, move |value, _, args| function(value, args), then)
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// What a callback of [`Context::apply_then`] may use.
pub struct Reaction<'a> {
    delegation: &'a Rc<Delegation>,
}

impl<'a> Reaction<'a> {
    pub(super) fn new(delegation: &'a Rc<Delegation>) -> Self {
        Self { delegation }
    }

    /// Uses a value of which this thread is the trustee. `None` if it is another's, or in use.
    pub fn with<T: 'static, R>(&self, trust: &Trust<T>, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        trust.with_own(self.delegation, f)
    }
}

impl fmt::Debug for Reaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaction").finish_non_exhaustive()
    }
}
