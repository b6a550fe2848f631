use farfield::prelude::*;

#[remote]
struct Node {
    #[marks(deleted)]
    next: Link<Node>,
}

#[remote]
struct Index {
    #[marks(stale, deleted)]
    first: Link<Node>,
}

async fn copy(node: RemotePtr<Node>, index: RemotePtr<Index>, g: &Guard<'_>) -> farfield::Result<()> {
    // The lowest bit means `deleted` here and `stale` there.
    let next = node.next().load(g).await?;
    index.first().store(g, next).await?;
    Ok(())
}

fn main() {}
