use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(old)]
    next: Link<Node>,
    is_old: u64,
}

fn main() {}
