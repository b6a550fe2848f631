use farfield::prelude::*;

#[remote]
union Bits {
    a: u64,
    b: i64,
}

fn main() {}
