use farfield::prelude::*;

#[remote]
struct Message {
    texts: [Tail<u8>; 2],
}

fn main() {}
