//! Bugs of the skip list.

use super::bug::Planted;

/// Edits that make half of the towers taller than their neighbours: rare states come often.
pub const TALL_TOWERS: &[(&str, &str)] = &[("const BITS: u32 = 2;", "const BITS: u32 = 1;")];

pub(super) const BUGS: &[Planted] = &[];
