//! Tests of what the compiler says; see `tests/ui.rs`. This crate has no code of its own.
