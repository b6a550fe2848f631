//! Bugs of the hash map. All are planted in the map with small tables, of numbers or of byte strings.

use super::bug::{Planted, Structure};
use crate::Check;

/// Edits of the map's source that make its tables as small as possible: they are split early, and the directory soon has several levels.
pub const SMALL_TABLES: &[(&str, &str)] = &[
    ("const LARGEST: u8 = 3;", "const LARGEST: u8 = 0;"),
    ("const BASE_BITS: u32 = 6;", "const BASE_BITS: u32 = 1;"),
];

pub(super) const BUGS: &[Planted] = &[];
