use farfield::prelude::*;

#[remote]
struct Message {
    text: Tail<u8>,
    id: u64,
}

fn main() {}
