use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    next: Link<Node>,
}

async fn nothing(node: RemotePtr<Node>, g: &Guard<'_>) {
    fetch!(g, node.{}).await.unwrap();
}

fn main() {}
