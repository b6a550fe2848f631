use farfield::prelude::*;

#[derive(Message)]
struct Tree {
    key: u64,
    children: Vec<Tree>,
}

fn main() {}
