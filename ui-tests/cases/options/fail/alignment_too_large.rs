use farfield::prelude::*;

#[remote(align = 8192)]
struct Node {
    key: u64,
}

fn main() {}
