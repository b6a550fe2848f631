use farfield::prelude::*;

#[remote]
struct Node {
    this: u64,
}

fn main() {}
