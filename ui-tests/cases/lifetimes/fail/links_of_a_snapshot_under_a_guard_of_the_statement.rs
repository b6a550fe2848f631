use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    next: Link<Node>,
}

async fn is_last(node: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<bool> {
    // The snapshot's `next` is bound to the guard, which is dropped at the end of the statement.
    let seen = node.read(&ct.pin()).await?;
    Ok(seen.next.is_null())
}

fn main() {}
