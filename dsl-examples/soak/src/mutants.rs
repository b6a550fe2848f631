//! Copies of the structures with a bug each, as the build script made them from [`planted`](crate::planted).

// What an edit leaves unused, and what clippy would say of it, is part of the bug.
#![allow(unused, unreachable_pub, clippy::all, clippy::pedantic)]

use crate::planted::PLANTED;
use crate::subject::Subject;

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
