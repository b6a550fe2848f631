use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    next: Link<Node>,
}

fn wrong() -> NodeInit {
    Node::init(1).next(5_u64)
}

fn main() {}
