use farfield::prelude::*;

#[remote]
struct Node {
    #[expect(dead_code)]
    key: u64,
}

fn main() {}
