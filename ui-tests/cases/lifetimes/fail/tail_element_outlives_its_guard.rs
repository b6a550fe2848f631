use farfield::prelude::*;

#[remote]
struct Page {
    next: Link<Page>,
    slots: Tail<Atomic<u64>>,
}

async fn write_later(root: RemotePtr<Page>, ct: &ComputeThread) -> farfield::Result<()> {
    let g = ct.pin();
    let slot = root.next().load(&g).await?.slots().at(2);
    drop(g);
    slot.store(ct, 7).await
}

fn main() {}
