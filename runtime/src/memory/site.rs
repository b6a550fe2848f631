//! Where a new object goes.

use crate::cluster::ComputeThread;
use crate::memory::guard::Guard;
use crate::pointer::{Address, RemotePtr, Shared};

/// A thread to allocate with, and on which memory node.
///
/// A `&ComputeThread` or a `&Guard` is a site of its own: the cluster's policy picks the node.
/// [`ComputeThread::near`] and [`ComputeThread::on_node`] pick it by hand.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub(crate) ct: &'a ComputeThread,
    pub(crate) placement: Placement,
}

/// Which memory node an object is allocated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The thread's next node, in turn.
    RoundRobin,
    /// The node of this address, so that one chain reaches both.
    Near(Address),
    /// This node.
    Node(u16),
}

impl ComputeThread {
    /// A site on the memory node that `neighbour` is on, so that one chain can reach both.
    ///
    /// Falls back to other nodes when that one is full.
    pub fn near<T>(&self, neighbour: impl Into<RemotePtr<T>>) -> Site<'_> {
        Site { ct: self, placement: Placement::Near(neighbour.into().address()) }
    }

    /// A site on memory node `node`; the number wraps around at the number of nodes.
    pub fn on_node(&self, node: u16) -> Site<'_> {
        Site { ct: self, placement: Placement::Node(node) }
    }
}

impl<T> From<Shared<'_, T>> for RemotePtr<T> {
    fn from(shared: Shared<'_, T>) -> Self {
        shared.as_ptr()
    }
}

impl<'a> From<&'a ComputeThread> for Site<'a> {
    fn from(ct: &'a ComputeThread) -> Self {
        Self { ct, placement: Placement::RoundRobin }
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
