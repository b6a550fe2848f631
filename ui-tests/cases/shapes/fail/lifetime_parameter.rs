use farfield::prelude::*;

#[remote]
struct Node<'a> {
    key: u64,
    name: &'a str,
}

fn main() {}
