//! Reading any file as a checkpoint.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield::fuzzing::checkpoint(data));
