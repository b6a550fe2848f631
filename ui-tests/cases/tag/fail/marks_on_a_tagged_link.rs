use farfield::prelude::*;

#[tag(size: 8)]
struct SlotTag;

#[remote]
struct Bucket {
    #[marks(deleted)]
    slot: TaggedLink<Bucket, SlotTag>,
}

fn main() {}
