use farfield::prelude::*;

#[remote]
struct Nothing {
    #[local]
    hits: u64,
}

fn main() {}
