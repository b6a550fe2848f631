use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: usize,
}

fn main() {}
