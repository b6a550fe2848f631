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
    // A cached handle outlives every guard: whoever caches an object says that it stays, with `as_ptr`.
    Ok(cache.get(node, ct).await?.key())
}

fn main() {}
