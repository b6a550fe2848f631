use farfield::prelude::*;

#[remote]
struct Node {
    next: Link<Node>,
}

#[remote]
struct Index {
    #[marks(like = Node)]
    first: Link<Node>,
}

fn main() {}
