use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: String,
}

fn main() {}
