use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    #[local]
    #[must_use]
    reads: u64,
}

fn main() {}
