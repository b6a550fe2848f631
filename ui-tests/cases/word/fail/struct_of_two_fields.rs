use farfield::prelude::*;

#[derive(Clone, Copy, Debug, Word)]
struct Pair(u32, u32);

fn main() {}
