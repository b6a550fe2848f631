use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(deleted, deleted)]
    next: Link<Node>,
}

fn main() {}
