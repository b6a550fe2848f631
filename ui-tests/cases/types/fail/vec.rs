use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: Vec<u64>,
}

fn main() {}
