use farfield::prelude::*;

#[tag(fingerprint: 8)]
struct SlotTag {
    size: u8,
}

fn main() {}
