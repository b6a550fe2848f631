use farfield::prelude::*;

#[remote]
struct Pair(u64, u64);

fn main() {}
