use farfield::prelude::*;

#[remote]
#[derive(Clone)]
struct Node {
    key: u64,
}

fn main() {}
