//! Descriptions of layouts, and going through an object by one.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::description(data));
