use farfield::prelude::*;

#[remote(algin = 64)]
struct Node {
    key: u64,
}

fn main() {}
