use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: Option<u64>,
}

fn main() {}
