use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    #[local(start = 5)]
    hits: u64,
}

fn main() {}
