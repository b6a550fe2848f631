use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(deleted)]
    key: u64,
}

fn main() {}
