use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: Atomic<usize>,
}

fn main() {}
