use farfield::prelude::*;

struct Local(u64);

#[derive(Message)]
enum Change {
    Clear,
    Set { number: u64, to: Local },
}

fn main() {}
