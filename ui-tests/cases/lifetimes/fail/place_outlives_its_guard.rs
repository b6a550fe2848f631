use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    hits: Atomic<u64>,
    next: Link<Node>,
}

async fn write_later(root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<()> {
    let g = ct.pin();
    let node = root.next().load(&g).await?;
    let hits = node.hits();
    drop(g);
    hits.store(ct, 7).await
}

fn main() {}
