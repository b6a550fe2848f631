use farfield::prelude::*;

#[tag(fingerprint: 8, size: 0)]
struct SlotTag;

fn main() {}
