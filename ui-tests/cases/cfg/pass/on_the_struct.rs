use farfield::prelude::*;

#[cfg(not(any()))]
#[remote]
struct Node {
    key: u64,
}

#[cfg(any())]
#[remote]
struct Node {
    key: u64,
    probes: Atomic<u64>,
}

#[farfield::main]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    Node::new_in(ct, Node::init(1)).await?.write(ct).await.map(drop)
}
