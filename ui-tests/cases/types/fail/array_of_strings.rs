use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: [String; 4],
}

fn main() {}
