mod list {
    use farfield::prelude::*;

    #[remote]
    pub struct Node {
        pub key: u64,
        lock: Lock,
    }
}

async fn peek(ptr: farfield::RemotePtr<list::Node>, g: &farfield::Guard<'_>) {
    ptr.key().read(g).await.unwrap();
    ptr.lock().acquire(g).await.unwrap();
}

fn main() {}
