use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: std::cell::Cell<u64>,
}

fn main() {}
