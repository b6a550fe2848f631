//! The welcome that a memory node sends to a client, and the geometry that the client computes from it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::welcome(data));
