//! Sites: the placement of new objects.

use super::{Guard, Pointer};
use crate::memory::placement::{Placement, Policy};
use crate::session::ComputeThread;

/// A compute thread, and the memory node on which it allocates.
///
/// A `&ComputeThread` or a `&Guard` converts to a site whose node is chosen by the cluster's policy. [`ComputeThread::near`],
/// [`ComputeThread::on_node`] and [`ComputeThread::placed`] choose otherwise.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub(crate) ct: &'a ComputeThread,
    pub(crate) placement: Placement,
}

impl ComputeThread {
    /// Returns a site on the memory node of `neighbour`, so that one chain can access both objects.
    ///
    /// If that node is full, allocation uses other nodes.
    pub fn near(&self, neighbour: impl Pointer) -> Site<'_> {
        Site { ct: self, placement: Placement::Near(neighbour.points_to()) }
    }

    /// Returns a site whose node `policy` chooses, independent of the cluster's policy.
    pub fn placed(&self, policy: Policy) -> Site<'_> {
        Site { ct: self, placement: Placement::By(policy) }
    }

    /// Returns a site on memory node `node`, modulo the number of nodes.
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
