use farfield::prelude::*;

#[remote]
#[repr(C, packed)]
struct Node {
    key: u64,
}

fn main() {}
