use farfield::prelude::*;

#[derive(Message)]
struct Range {
    from: u64,
    length: usize,
}

fn main() {}
