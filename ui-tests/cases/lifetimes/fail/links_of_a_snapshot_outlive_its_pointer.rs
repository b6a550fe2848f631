use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    hits: Atomic<u64>,
    next: Link<Node>,
}

async fn follow_later(root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<u64> {
    let (old, young) = (ct.pin(), ct.pin());
    let node = root.next().load(&old).await?;
    // Read under the younger guard, but only the older one is known to protect the node's successor.
    let seen = node.read(&young).await?;
    drop(old);
    seen.next.key().read(&young).await
}

fn main() {}
