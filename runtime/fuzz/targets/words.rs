//! The runtime's own words in far memory, as somebody else has left them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::words(data));
