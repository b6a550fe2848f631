use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    next: Link<Node>,
}

async fn escape(head: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<bool> {
    let node = {
        let g = &ct.pin();
        head.read(g).await?
    };
    Ok(node.next.is_null())
}

fn main() {}
