use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(deleted)]
    next: Link<Node>,
    origin: Link<Node>,
}

async fn is_gone(node: RemotePtr<Node>, g: &Guard<'_>) -> farfield::Result<bool> {
    // The mark is `next`'s.
    Ok(node.origin().load(g).await?.is_deleted())
}

fn main() {}
