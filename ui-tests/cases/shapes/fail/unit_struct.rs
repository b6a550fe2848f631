use farfield::prelude::*;

#[remote]
struct Nothing;

fn main() {}
