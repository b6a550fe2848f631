use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(flag, tag)]
    left: Link<Node>,
    #[marks(tag, flag)]
    right: Link<Node>,
}

fn main() {}
