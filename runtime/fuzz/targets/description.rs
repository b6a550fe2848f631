//! Descriptions of layouts, and visits of objects by them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::description(data));
