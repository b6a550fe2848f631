use farfield::prelude::*;

#[derive(Clone, Copy, Debug, Word)]
struct Wide(u128);

fn main() {}
