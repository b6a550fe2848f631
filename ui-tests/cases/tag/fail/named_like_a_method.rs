use farfield::prelude::*;

#[tag(bits: 8, size: 4, size: 4)]
struct SlotTag;

fn main() {}
