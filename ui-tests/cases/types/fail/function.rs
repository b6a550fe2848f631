use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: fn(u64) -> u64,
}

fn main() {}
