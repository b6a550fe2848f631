use farfield::prelude::*;

#[derive(Clone, Copy, Message)]
union Bits {
    word: u64,
    float: f64,
}

fn main() {}
