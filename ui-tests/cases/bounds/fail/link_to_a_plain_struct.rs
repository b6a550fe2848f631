use farfield::prelude::*;

struct Plain {
    key: u64,
}

#[remote]
struct Node {
    next: Link<Plain>,
}

fn main() {}
