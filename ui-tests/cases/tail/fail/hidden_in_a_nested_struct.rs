use farfield::prelude::*;

#[remote]
struct Inner {
    text: Tail<u8>,
}

#[remote]
struct Outer {
    inner: Inner,
    id: u64,
}

fn main() {}
