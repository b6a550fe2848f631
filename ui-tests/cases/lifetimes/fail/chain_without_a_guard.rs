use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    hits: Atomic<u64>,
    next: Link<Node>,
}

async fn load(root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<()> {
    ct.chain(op::load(root.next())).submit().await.map(drop)
}

fn main() {}
