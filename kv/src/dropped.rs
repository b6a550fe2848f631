//! What is undone when an operation ends, also if its future is dropped at an await.

/// Runs a closure when it is dropped.
pub(crate) struct OnDrop<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
