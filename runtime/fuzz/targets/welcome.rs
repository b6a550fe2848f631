//! What a memory node says to a process that it lets in, and what the process computes from it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::welcome(data));
