//! Bugs of the ordered map.

use super::bug::Planted;

/// Edits that make nodes small, so that they are replaced early.
pub const SMALL_NODES: &[(&str, &str)] =
    &[("pub(super) const SLOTS: usize = 60;", "pub(super) const SLOTS: usize = 6;")];

pub(super) const BUGS: &[Planted] = &[];
