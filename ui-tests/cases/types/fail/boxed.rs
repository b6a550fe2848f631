use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: Box<u64>,
}

fn main() {}
