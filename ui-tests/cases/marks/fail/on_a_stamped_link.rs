use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(deleted)]
    next: StampedLink<Node>,
}

fn main() {}
