use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    bad: Shared<'static, u64>,
}

fn main() {}
