//! Tests of compile errors; see `tests/ui.rs`. This crate has no code.
