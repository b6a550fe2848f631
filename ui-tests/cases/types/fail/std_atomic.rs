use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: std::sync::atomic::AtomicU64,
}

fn main() {}
