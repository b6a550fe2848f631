//! The shape of a cluster's memory, and what is computed from it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::geometry(data));
