use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    next: Node,
}

fn main() {}
