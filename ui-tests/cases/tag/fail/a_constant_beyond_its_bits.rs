use farfield::prelude::*;

#[tag(size: 4)]
struct SlotTag;

const LARGE: SlotTag = SlotTag::new(16);

fn main() {
    let _ = LARGE;
}
