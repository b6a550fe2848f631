use farfield::prelude::*;

#[remote]
struct Node {
    address: u64,
    read: u64,
}

fn main() {}
