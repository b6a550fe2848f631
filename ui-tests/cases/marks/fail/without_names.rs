use farfield::prelude::*;

#[remote]
struct Node {
    #[marks]
    next: Link<Node>,
}

fn main() {}
