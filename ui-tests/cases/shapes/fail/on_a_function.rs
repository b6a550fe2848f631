use farfield::prelude::*;

#[remote]
fn node() {}

fn main() {}
