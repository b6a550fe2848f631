use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(bits = 2)]
    next: Link<Node>,
}

fn main() {}
