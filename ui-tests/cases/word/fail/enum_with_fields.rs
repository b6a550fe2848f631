use farfield::prelude::*;

#[derive(Clone, Copy, Debug, Word)]
#[repr(u8)]
enum Shape {
    Round(u8),
    Square,
}

fn main() {}
