use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    hits: Atomic<u64>,
    next: Link<Node>,
}

async fn follow_later(root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<u64> {
    let g = ct.pin();
    let next = g.chain(op::load(root.next())).submit().await?;
    drop(g);
    next.key().read(&ct.pin()).await
}

fn main() {}
