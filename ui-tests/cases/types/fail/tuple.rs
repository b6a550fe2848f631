use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: (u64, u64),
}

fn main() {}
