use farfield::prelude::*;

#[tag(fingerprint: 12, size: 5)]
struct SlotTag;

fn main() {}
