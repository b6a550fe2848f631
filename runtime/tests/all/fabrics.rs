//! The clusters on which delegation is tested.

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;

const CLUSTERS: [&str; 4] = ["local:", "local:delay=3", "sim:", "sim:delegation=mailboxes"];

/// Runs threads on each of them, and over TCP.
pub(crate) fn on_all(threads: usize, body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    for url in CLUSTERS {
        run(url, threads, &body);
    }
    if cfg!(target_os = "linux") {
        let mut options = MemoryNodeOptions::new("tcp://127.0.0.1:0");
        options.segment_bytes = 16 << 20;
        let node = MemoryNode::listen(&options).unwrap();
        let (url, stopper) = (node.urls()[0].clone(), node.stopper().unwrap());
        let serving = std::thread::spawn(move || node.serve().unwrap());
        run(&url, threads, &body);
        stopper.stop();
        serving.join().unwrap();
    }
}

fn run(url: &str, threads: usize, body: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) {
    Cluster::connect(url).unwrap().run(threads, body).unwrap_or_else(|error| panic!("{url}: {error}"));
}
