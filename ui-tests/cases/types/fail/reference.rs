use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: &'static u64,
}

fn main() {}
