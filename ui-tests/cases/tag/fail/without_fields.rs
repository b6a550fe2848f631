use farfield::prelude::*;

#[tag]
struct SlotTag;

fn main() {}
