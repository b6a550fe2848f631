//! What the connections of a memory node refer to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::watches::Watches;
use crate::admission::Admission;
use crate::error::Result;
use crate::handshake::{Nonce, Secret, Segment, Welcome};
use crate::host::{Arena, Host};
use crate::status::NodeStatus;
use crate::{Contents, Departure};
use farfield_words::Address;
use farfield_words::geometry::Geometry;

/// A memory node's memory and clients.
pub(crate) struct Node {
    pub(crate) admission: Admission,
    pub(crate) secret: Secret,
    pub(crate) host: Host,
    pub(crate) status: Arc<NodeStatus>,
    pub(crate) watches: Watches,
}

/// What a memory node is made of, beside its memory.
pub(crate) struct NodeOptions {
    pub(crate) lease_ms: u32,
    pub(crate) secret: Secret,
    pub(crate) contents: Box<dyn Contents>,
    /// True if it can disconnect clients, since some are on a network.
    pub(crate) disconnects: bool,
    /// True if it is a cluster by itself; otherwise the first client sets its position in a cluster.
    pub(crate) is_alone: bool,
}

impl Node {
    /// Makes a node without clients.
    pub(crate) fn new(arena: Arc<Arena>, options: NodeOptions) -> Result<Self> {
        let NodeOptions { lease_ms, secret, contents, disconnects, is_alone } = options;
        let observed = Arc::clone(&arena);
        let load = move |at| observed.word(at).map_or(0, |word| word.load(Ordering::SeqCst));
        let status = Arc::new(NodeStatus::new(arena.geometry(), load));
        if is_alone {
            arena.format(&*contents, true)?;
            status.set_position(0, arena.geometry());
        }
        let mut admission =
            Admission::new(arena.geometry(), lease_ms, contents, secret.clone(), disconnects)?;
        if is_alone {
            admission.stay_alone();
        }
        Ok(Self { admission, secret, host: Host::new(arena), status, watches: Watches::default() })
    }

    /// Admits the client that sends this request to join. A client `is_here` that maps the memory.
    ///
    /// # Errors
    /// The reason, in one line.
    pub(crate) fn join(
        &mut self,
        message: &[u8],
        nonces: &(Nonce, Nonce),
        is_here: bool,
    ) -> Result<Welcome, String> {
        let Self { admission, host, status, .. } = self;
        let arena = host.arena();
        let geometry = arena.geometry();
        // A client on a network addresses this memory by this node's own numbers of its segments; one that maps it, by offsets.
        let base = |segment: u64| {
            if is_here { segment << geometry.stride_log2() } else { Address::new(segment as u16, 0).bits() }
        };
        let segments =
            (0..u64::from(geometry.segments())).map(|segment| Segment { base: base(segment), rkey: 0 });
        let format = |node, cluster: Geometry, contents: &dyn Contents| {
            arena.format(contents, node == 0).map_err(|error| error.to_string())?;
            status.set_position(node, cluster);
            Ok(())
        };
        admission.join(message, nonces, segments, format, &status.clients, is_here)
    }

    /// Marks a process's record, if this is the first memory node.
    pub(crate) fn mark(&self, process: u32, departure: Departure) {
        self.admission.mark(process, departure, &|at| self.host.words(at, 1).ok()?.first());
    }
}
