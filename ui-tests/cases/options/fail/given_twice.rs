use farfield::prelude::*;

#[remote(align = 64, align = 32)]
struct Node {
    key: u64,
}

fn main() {}
