use farfield::prelude::*;

#[remote]
struct Node {
    #[frozen]
    key: u64,
}

fn main() {}
