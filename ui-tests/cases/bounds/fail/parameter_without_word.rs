use farfield::prelude::*;

#[remote]
struct Node<K> {
    key: K,
    next: Link<Node<K>>,
}

fn main() {}
