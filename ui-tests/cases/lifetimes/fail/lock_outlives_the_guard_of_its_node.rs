use farfield::prelude::*;

#[remote]
struct Node {
    lock: Lock,
    next: Link<Node>,
}

async fn release_later(root: RemotePtr<Node>, ct: &ComputeThread) -> farfield::Result<()> {
    let g = ct.pin();
    let lock = root.next().load(&g).await?.lock().acquire(ct).await?;
    drop(g);
    Ok(lock.release().await?)
}

fn main() {}
