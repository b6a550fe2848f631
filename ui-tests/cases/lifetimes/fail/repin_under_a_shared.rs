use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    next: Link<Node>,
}

async fn repin(head: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<bool> {
    let mut g = ct.pin();
    let first = head.next().load(&g).await?;
    g.repin();
    Ok(first.is_null())
}

fn main() {}
