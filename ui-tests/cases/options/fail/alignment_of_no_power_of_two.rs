use farfield::prelude::*;

#[remote(align = 24)]
struct Node {
    key: u64,
}

fn main() {}
