use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(deleted)]
    next: Link<Node>,
    #[marks(stale)]
    back: Link<Node>,
}

async fn unlink(node: RemotePtr<Node>, g: &Guard<'_>) -> farfield::Result<bool> {
    let (next, back) = farfield::fetch!(g, node.{next, back}).await?;
    Ok(node.next().compare_exchange(g, back, next).await?.is_ok())
}

fn main() {}
