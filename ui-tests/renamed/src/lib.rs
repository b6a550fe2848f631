//! A test of the macros under another crate name; see `tests/renamed.rs`. This crate has no code.
