use farfield::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Wide([u64; 2]);

#[remote]
struct Node {
    wide: Atomic<Wide>,
}

fn main() {}
