//! The runtime's own words in far memory, with any bits.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::words(data));
