//! Traversals along pointers.

use super::Pointer;
use crate::error::Result;
use crate::segment::walk::Walk;

impl Walk {
    /// The traversal has come to an object.
    ///
    /// # Errors
    /// [`Error::Corrupted`](crate::Error::Corrupted) if it was there before.
    #[inline]
    pub fn visit(&mut self, object: impl Pointer) -> Result<()> {
        self.visit_address(object.points_to())
    }
}
