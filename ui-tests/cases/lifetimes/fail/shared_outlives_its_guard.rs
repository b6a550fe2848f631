use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    next: Link<Node>,
}

async fn escape(head: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<u64> {
    let first = {
        let g = &ct.pin();
        head.next().load(g).await?
    };
    let g = &ct.pin();
    Ok(first.read(g).await?.key)
}

fn main() {}
