//! Pages of `farfield-kv` with any words, and the records in them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| farfield_kv::fuzzing::page(data));
