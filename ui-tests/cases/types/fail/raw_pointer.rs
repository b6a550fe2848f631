use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: *const u64,
}

fn main() {}
