//! Where a new object goes.

use crate::cluster::ComputeThread;
use crate::memory::guard::Guard;
use crate::pointer::{Address, Pointer};

/// A thread to allocate with, and on which memory node.
///
/// A `&ComputeThread` or a `&Guard` is a site of its own: the cluster's policy picks the node.
/// [`ComputeThread::near`] and [`ComputeThread::on_node`] pick it by hand.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub(crate) ct: &'a ComputeThread,
    pub(crate) placement: Placement,
}

/// Which memory node picks itself for a new object, if nobody says more: `placement=…` of a cluster's URL, or
/// [`ComputeThread::placed`] for one object.
///
/// A thread's *own* memory node is the one with its process's number, modulo the number of nodes: the one in the same
/// machine, where each machine has both. A thread takes memory in chunks of up to 16 KiB; which segment of a node a chunk
/// comes from is part of the policy. A node that is full is passed over for the next.
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

/// Which memory node an object is allocated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// What the cluster's policy says.
    Default,
    /// What this one says.
    By(Policy),
    /// The node of this address, so that one chain reaches both.
    Near(Address),
    /// This node.
    Node(u16),
}

impl ComputeThread {
    /// A site on the memory node that `neighbour` is on, so that one chain can reach both.
    ///
    /// Falls back to other nodes when that one is full.
    pub fn near(&self, neighbour: impl Pointer) -> Site<'_> {
        Site { ct: self, placement: Placement::Near(neighbour.points_to()) }
    }

    /// A site that a policy picks, whatever the cluster's is.
    pub fn placed(&self, policy: Policy) -> Site<'_> {
        Site { ct: self, placement: Placement::By(policy) }
    }

    /// A site on memory node `node`; the number wraps around at the number of nodes.
    pub fn on_node(&self, node: u16) -> Site<'_> {
        Site { ct: self, placement: Placement::Node(node) }
    }
}

impl<'a> From<&'a ComputeThread> for Site<'a> {
    fn from(ct: &'a ComputeThread) -> Self {
        Self { ct, placement: Placement::Default }
    }
}

impl<'a> From<&&'a ComputeThread> for Site<'a> {
    fn from(ct: &&'a ComputeThread) -> Self {
        Self::from(*ct)
    }
}

impl<'a> From<&'a Guard<'_>> for Site<'a> {
    fn from(g: &'a Guard<'_>) -> Self {
        Self::from(&**g)
    }
}
