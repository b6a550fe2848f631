use farfield::prelude::*;

use farfield::Cached;

#[remote]
struct Node {
    key: u64,
    hits: Atomic<u64>,
    next: Link<Node>,
}

async fn keep(cache: &Cached<Node, 8>, root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<u64> {
    let g = &ct.pin();
    let node = root.next().load(g).await?;
    // A cached handle outlives every guard, so caching needs `as_ptr`: the program states that the object stays.
    Ok(cache.get(node, ct).await?.key())
}

fn main() {}
