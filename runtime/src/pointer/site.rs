//! Where a new object goes.

use super::{Guard, Pointer};
use crate::memory::placement::{Placement, Policy};
use crate::session::ComputeThread;

/// A thread to allocate with, and on which memory node.
///
/// A `&ComputeThread` or a `&Guard` is a site of its own: the cluster's policy picks the node.
/// [`ComputeThread::near`] and [`ComputeThread::on_node`] pick it by hand.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub(crate) ct: &'a ComputeThread,
    pub(crate) placement: Placement,
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
