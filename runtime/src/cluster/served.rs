//! A cluster whose memory node is in this process, for tests.

use crate::memory_node::{MemoryNode, MemoryNodeOptions};
use crate::session::Cluster;
use farfield_fabric::Stopper;
use farfield_fabric::host::BackgroundThread;

pub(crate) struct Served {
    pub(crate) url: String,
    stopper: Stopper,
    _serves: BackgroundThread,
}

impl Served {
    /// Starts a memory node of 1 MiB with a name of its own.
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, |_| ())
    }

    pub(crate) fn with(name: &str, adjust: impl FnOnce(&mut MemoryNodeOptions)) -> Self {
        let mut options = MemoryNodeOptions::new(&format!("shm:{name}-{}", std::process::id()));
        options.segment_bytes = 1 << 20;
        adjust(&mut options);
        let node = MemoryNode::listen(&options).unwrap();
        let stopper = node.stopper().unwrap();
        let url = options.listen[0].clone();
        let serves = BackgroundThread::start("memory node", move |_| node.serve().unwrap()).unwrap();
        Self { url, stopper, _serves: serves }
    }

    pub(crate) fn connect(&self) -> Cluster {
        Cluster::connect(&self.url).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}
