use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    hits: Atomic<u64>,
    next: Link<Node>,
}

async fn keep(root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<RemotePtr<Node>> {
    let g = &ct.pin();
    // Must be explicit: `as_ptr`.
    Ok(root.next().load(g).await?.into())
}

fn main() {}
