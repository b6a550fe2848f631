//! Traversals along pointers.

use super::Pointer;
use crate::error::Result;
use crate::segment::walk::Walk;

impl Walk {
    /// Records a visit of an object.
    ///
    /// # Errors
    /// [`Error::Corrupted`](crate::Error::Corrupted) if the walk has visited it before: its links form a cycle.
    #[inline]
    pub fn visit(&mut self, object: impl Pointer) -> Result<()> {
        self.visit_address(object.points_to())
    }
}
