use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(a, b, c, d)]
    next: Link<Node>,
}

fn main() {}
