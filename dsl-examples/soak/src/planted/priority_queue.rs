//! Bugs of the priority queue.

use super::bug::Planted;

pub(super) const BUGS: &[Planted] = &[];
