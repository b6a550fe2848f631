//! Mutants: copies of the structures with a planted bug each, made by the build script from [`planted`](crate::planted).

// An edit may leave items unused, and need not pass lints.
#![allow(unused, unreachable_pub, clippy::all, clippy::pedantic)]

use crate::planted::PLANTED;
use crate::subject::Subject;

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
