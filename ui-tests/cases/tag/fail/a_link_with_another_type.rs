use farfield::prelude::*;

#[remote]
struct Bucket {
    slot: TaggedLink<Bucket, u8>,
}

fn main() {}
