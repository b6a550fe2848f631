//! The memory node of a new object.

use farfield_words::Address;

/// The choice of the memory node for a new object: `placement=…` in a cluster's URL, or
/// [`ComputeThread::placed`](crate::ComputeThread::placed) for one object.
///
/// A thread's *own* memory node is the one with its process's number, modulo the number of nodes: the node in the same machine, if each
/// machine has a process and a node. A thread takes memory in chunks of up to 16 KiB; the policy also chooses the segment of a chunk. If a
/// node is full, the next one is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Any node, at random: `rand`.
    Random,
    /// All nodes in turn, each thread beginning with another: `global-rr`.
    #[default]
    GlobalRoundRobin,
    /// Always the node with the thread's number, modulo the number of nodes: `global-mod`.
    GlobalModulo,
    /// Always the thread's own node, and its segments in turn: `local-rr`.
    LocalRoundRobin,
    /// Always the thread's own node, and the segment with the thread's number, modulo their number: `local-mod`.
    LocalModulo,
}

impl Policy {
    const ALL: [(&str, Self); 5] = [
        ("rand", Self::Random),
        ("global-rr", Self::GlobalRoundRobin),
        ("global-mod", Self::GlobalModulo),
        ("local-rr", Self::LocalRoundRobin),
        ("local-mod", Self::LocalModulo),
    ];

    /// The policy with a name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| *policy).ok_or_else(|| {
            let known = Self::ALL.map(|(known, _)| format!("`{known}`")).join(", ");
            format!("placement={name} is none of {known}")
        })
    }
}

/// The memory node that an object is allocated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// By the cluster's policy.
    Default,
    /// By this policy.
    By(Policy),
    /// The node of this address, so that one chain reaches both.
    Near(Address),
    /// This node.
    Node(u16),
}

/// The memory node to try first for a block, and the order in which its segments are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) node: u16,
    pub(crate) segments: SegmentOrder,
}

/// The segment of a node that a thread takes its next chunk from, after a successful one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentOrder {
    /// The same segment.
    Same,
    /// The next segment.
    Rotating,
}

impl Target {
    /// A node whose segments are filled one after the other.
    pub(crate) const fn on(node: u16) -> Self {
        Self { node, segments: SegmentOrder::Same }
    }
}
