use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    hits: Atomic<u64>,
    next: Link<Node>,
}

async fn write_later(root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<()> {
    let hits = {
        let g = ct.pin();
        root.next().load(&g).await?.hits()
    };
    let later = ct.pin();
    hits.store(&later, 7).await
}

fn main() {}
