//! Scripted faults: their kinds and their times.

use std::time::Duration;

/// A fault of a simulated cluster: immediate, at a time, or at an operation.
///
/// [`Simulation::inject`](crate::Simulation::inject) takes it, before a run or during it. A compute node has `threads-per-node` compute threads, by
/// default one: then its number is the thread's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a fault does nothing until it is injected"]
pub struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) when: FaultTime,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Crash { compute: usize },
    Stall { compute: usize, duration: Duration },
    Cut { compute: usize, memory: u16, duration: Duration },
    MemoryCrash { memory: u16 },
    Slow { memory: u16, factor: u32 },
}

/// The time of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultTime {
    /// Immediately; at the run's start if no run is under way.
    Now,
    /// At this time.
    At(Duration),
    /// Once the compute node has posted this many chains of a run.
    AfterChains(u64),
}

impl Fault {
    fn new(kind: FaultKind) -> Self {
        Self { kind, when: FaultTime::Now }
    }

    /// The compute node dies: its threads stop where they wait, keep their locks, and never resume. Chains that they had posted take effect. Memory
    /// that they host becomes unreachable.
    pub fn crash(compute_node: usize) -> Self {
        Self::new(FaultKind::Crash { compute: compute_node })
    }

    /// The compute node's threads pause for a while, and then resume. Chains that they had posted take effect meanwhile.
    pub fn stall(compute_node: usize, duration: Duration) -> Self {
        Self::new(FaultKind::Stall { compute: compute_node, duration })
    }

    /// The link between a compute node and a memory node loses all packets for a while. A chain that is posted meanwhile waits until the link
    /// heals, or fails with [`NodeUnreachable`](farfield_fabric::Error::NodeUnreachable) after the `timeout`. A chain whose answer is lost has
    /// taken effect. The number of memory nodes plus that of a compute node stands for memory that the latter hosts.
    pub fn cut(compute_node: usize, memory_node: u16, duration: Duration) -> Self {
        Self::new(FaultKind::Cut { compute: compute_node, memory: memory_node, duration })
    }

    /// The memory node dies, and its memory is lost: operations on it fail with [`NodeUnreachable`](farfield_fabric::Error::NodeUnreachable) from
    /// now on. No effect on a compute node that hosts memory, which [`crash`](Self::crash) kills.
    pub fn memory_crash(memory_node: u16) -> Self {
        Self::new(FaultKind::MemoryCrash { memory: memory_node })
    }

    /// The memory node takes `factor` times as long for each operation. It may be a compute node that hosts memory, as in [`cut`](Self::cut).
    pub fn slow(memory_node: u16, factor: u32) -> Self {
        Self::new(FaultKind::Slow { memory: memory_node, factor: factor.max(1) })
    }

    /// Schedules the fault for this time of the cluster's clock, which continues from run to run.
    pub fn at(self, time: Duration) -> Self {
        Self { when: FaultTime::At(time), ..self }
    }

    /// Schedules the fault for the moment when the compute node has posted this many chains of a run: an exact point between two operations of
    /// its threads. Has no effect on a memory node's fault, which stays immediate.
    pub fn after_chains(self, chains: u64) -> Self {
        match self.kind {
            FaultKind::MemoryCrash { .. } | FaultKind::Slow { .. } => self,
            _ => Self { when: FaultTime::AfterChains(chains), ..self },
        }
    }

    /// Returns the compute node that the fault concerns; `None` for a memory node's fault.
    pub fn compute(&self) -> Option<usize> {
        match self.kind {
            FaultKind::Crash { compute }
            | FaultKind::Stall { compute, .. }
            | FaultKind::Cut { compute, .. } => Some(compute),
            FaultKind::MemoryCrash { .. } | FaultKind::Slow { .. } => None,
        }
    }
}
