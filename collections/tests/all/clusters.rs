//! The clusters on which the structures are tested.

use std::time::{Duration, Instant};

use farfield::prelude::*;

/// The time within which a thread's objects must be freed.
const PATIENCE: Duration = Duration::from_secs(10);
/// A cluster whose round trips are counted: nothing else takes time.
pub(crate) const EXACT: &str =
    "sim:rtt=2us,bandwidth=inf,rate=inf,jitter=0%,doorbell=0ns,compute=0,nodes=2,size=64MiB";

/// Runs `body` on each fabric that needs no device: where operations complete immediately, where they complete later, where memory nodes execute
/// them, and where they are counted. Afterwards every object must be freed.
pub(crate) fn everywhere(threads: usize, body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    for url in ["local:nodes=2,size=64MiB", "local:nodes=3,size=64MiB,delay=7", EXACT] {
        on(url, threads, &body);
    }
    #[cfg(target_os = "linux")]
    memory_nodes::on_each(|url| on(url, threads, &body));
}

fn on(url: &str, threads: usize, body: &(impl AsyncFn(&ComputeThread) -> Result<()> + Sync)) {
    let cluster = Cluster::connect(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let done = cluster.run(threads, async |ct| {
        body(ct).await?;
        // On a busy machine a thread may end before the epoch advances. Then the process's keeper frees what it leaves, and counts for itself.
        let began = Instant::now();
        while ct.metrics().reclaimed < ct.metrics().retired && began.elapsed() < PATIENCE {
            ct.try_reclaim().await;
            ct.sleep(Duration::from_micros(50)).await;
        }
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{url}: {error}"));
    let metrics = cluster.metrics();
    assert_eq!(metrics.allocated, metrics.freed, "{url}: objects are lost");
}

/// Returns `most`, or a fifth where each round trip takes real time.
#[allow(dead_code)] // not all structures have slow tests
pub(crate) fn affordable(most: u64, ct: &ComputeThread) -> u64 {
    if ct.is_immediate() || ct.cluster().simulation().is_some() { most } else { most / 5 }
}

/// Clusters with memory nodes, which serve in this process.
#[cfg(target_os = "linux")]
mod memory_nodes {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use farfield::memory_node::{MemoryNode, MemoryNodeOptions, Stopper};

    /// The number of clusters in shared memory so far: each has a name of its own.
    static CLUSTERS: AtomicU32 = AtomicU32::new(0);

    /// Calls `test` with the URL of two memory nodes over TCP, and of one in shared memory.
    pub(super) fn on_each(test: impl Fn(&str)) {
        let tcp = || listen("tcp://127.0.0.1:0?encrypt=no", 1);
        let (first, second) = (tcp(), tcp());
        let address = |node: &MemoryNode| node.urls()[0].trim_start_matches("tcp://").to_owned();
        let url = format!("tcp://{},{}?encrypt=no", address(&first), address(&second));
        serving([first, second], || test(&url));

        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let node = listen(&format!("shm:maps-{}-{number}", std::process::id()), 2);
        let url = node.urls()[0].clone();
        serving([node], || test(&url));
    }

    fn listen(way: &str, nodes: u16) -> MemoryNode {
        let mut options = MemoryNodeOptions::new(way);
        (options.nodes, options.segment_bytes) = (nodes, 64 << 20);
        MemoryNode::listen(&options).unwrap_or_else(|error| panic!("{way}: {error}"))
    }

    /// Calls a closure while memory nodes serve.
    fn serving<const N: usize>(nodes: [MemoryNode; N], body: impl FnOnce()) {
        let stoppers = nodes.each_ref().map(|node| node.stopper().unwrap());
        thread::scope(|scope| {
            for node in nodes {
                scope.spawn(|| node.serve().unwrap());
            }
            let outcome = catch_unwind(AssertUnwindSafe(body));
            stoppers.iter().for_each(Stopper::stop);
            outcome.unwrap_or_else(|panic| resume_unwind(panic));
        });
    }
}
