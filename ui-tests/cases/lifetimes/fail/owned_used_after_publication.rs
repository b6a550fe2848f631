use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    next: Link<Node>,
}

async fn twice(head: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<()> {
    let g = &ct.pin();
    let mut node = Node::new_in(ct, Node::init(1)).await?;
    head.next().store(g, node).await?;
    node.set(|node| node.key(), 2);
    Ok(())
}

fn main() {}
