use farfield::prelude::*;

#[remote]
struct Page {
    slots: [Atomic<u64>; 4],
    next: Link<Page>,
}

async fn write_later(root: RemotePtr<Page>, ct: &ComputeThread) -> farfield::Result<()> {
    let g = ct.pin();
    let slot = root.next().load(&g).await?.slots().at(2);
    drop(g);
    slot.store(ct, 7).await
}

fn main() {}
