use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: Atomic<u128>,
}

fn main() {}
