//! Encrypted records of `farfield-kv`, and those of which a bit was changed.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield_kv::fuzzing::encrypted(data));
