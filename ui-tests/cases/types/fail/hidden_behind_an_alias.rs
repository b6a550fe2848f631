use farfield::prelude::*;

type Index = usize;

#[remote]
struct Node {
    index: Index,
}

fn main() {}
