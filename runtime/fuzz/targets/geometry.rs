//! The geometry of a cluster's memory, and the grid that is computed from it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::geometry(data));
