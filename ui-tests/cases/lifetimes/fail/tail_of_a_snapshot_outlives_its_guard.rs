use farfield::prelude::*;

#[remote]
struct Page {
    next: Link<Page>,
    slots: Tail<Atomic<u64>>,
}

async fn write_later(root: RemotePtr<Page>, ct: &ComputeThread) -> farfield::Result<()> {
    let g = ct.pin();
    let page = root.next().load(&g).await?.read(&g).await?;
    let slots = page.slots;
    drop(g);
    slots.get(2).unwrap().store(ct, 7).await
}

fn main() {}
