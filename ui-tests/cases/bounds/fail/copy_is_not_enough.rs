use farfield::prelude::*;

#[remote]
struct Node<K: Copy + Ord> {
    key: K,
    next: Link<Node<K>>,
}

fn main() {}
