//! The primitives that local concurrent algorithms are built from: the standard library's, or loom's under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering, fence},
};
