use farfield::prelude::*;

#[remote]
struct Node<K: Word> {
    key: K,
    next: Link<Node<K>>,
}

#[remote]
struct List<K> {
    head: RemotePtr<Node<K>>,
}

impl<K: Word> List<K> {
    async fn is_empty(&self, ct: &ComputeThread) -> farfield::Result<bool> {
        let g = &ct.pin();
        Ok(self.head().next().load(g).await?.is_null())
    }
}

fn main() {}
