use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    hits: Atomic<u64>,
    next: Link<Node>,
}

async fn load(root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<()> {
    let mut chain = ct.chain();
    let _ = chain.load(root.next());
    chain.submit().await
}

fn main() {}
