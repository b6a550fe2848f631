use farfield::prelude::*;

#[remote]
struct Progress {
    done: Atomic<u64>,
}

#[remote]
struct Job {
    progress: Progress,
    next: Link<Job>,
}

async fn write_later(root: RemotePtr<Job>, ct: &ComputeThread) -> farfield::Result<()> {
    let g = ct.pin();
    let done = root.next().load(&g).await?.progress().done();
    drop(g);
    done.store(ct, 7).await
}

fn main() {}
