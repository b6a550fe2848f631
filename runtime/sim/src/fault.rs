//! Faults by script: what is to go wrong, and when.

use std::time::Duration;

/// Something that goes wrong in a simulated cluster: at once, at a time, or at an operation.
///
/// Given to [`Simulation::inject`](crate::Simulation::inject), before a run or during it. A compute node is
/// `threads-per-node` compute threads, by default one: then its number is the thread's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a fault does nothing until it is injected"]
pub struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) when: FaultTime,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Crash { compute: usize },
    Stall { compute: usize, duration: Duration },
    Cut { compute: usize, memory: u16, duration: Duration },
    MemoryCrash { memory: u16 },
    Slow { memory: u16, factor: u32 },
}

/// When it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultTime {
    /// At once; before a run, at its start.
    Now,
    /// At this time.
    At(Duration),
    /// Once the compute node has posted so many chains of a run.
    AfterChains(u64),
}

impl Fault {
    fn new(kind: FaultKind) -> Self {
        Self { kind, when: FaultTime::Now }
    }

    /// The compute node dies: its threads stop where they wait, holding what they hold, and never go on. What they had
    /// posted takes effect.
    pub fn crash(compute_node: usize) -> Self {
        Self::new(FaultKind::Crash { compute: compute_node })
    }

    /// The compute node's threads do nothing for a while, and then go on. What they had posted takes effect meanwhile.
    pub fn stall(compute_node: usize, duration: Duration) -> Self {
        Self::new(FaultKind::Stall { compute: compute_node, duration })
    }

    /// The link between a compute node and a memory node loses everything for a while. What is posted meanwhile waits
    /// until the link heals, or fails with [`NodeUnreachable`](farfield_fabric::Error::NodeUnreachable) after the `timeout`. A chain
    /// whose answer is lost has taken effect all the same.
    pub fn cut(compute_node: usize, memory_node: u16, duration: Duration) -> Self {
        Self::new(FaultKind::Cut { compute: compute_node, memory: memory_node, duration })
    }

    /// The memory node dies, with all it holds: operations on it fail with
    /// [`NodeUnreachable`](farfield_fabric::Error::NodeUnreachable) from now on.
    pub fn memory_crash(memory_node: u16) -> Self {
        Self::new(FaultKind::MemoryCrash { memory: memory_node })
    }

    /// The memory node takes `factor` times as long for everything.
    pub fn slow(memory_node: u16, factor: u32) -> Self {
        Self::new(FaultKind::Slow { memory: memory_node, factor: factor.max(1) })
    }

    /// It happens at this time of the cluster's clock, which goes on from run to run.
    pub fn at(self, time: Duration) -> Self {
        Self { when: FaultTime::At(time), ..self }
    }

    /// It happens once the compute node has posted this many chains of a run: between two operations of its threads,
    /// chosen exactly. Of a memory node's fault this says nothing, and it happens at once.
    pub fn after_chains(self, chains: u64) -> Self {
        match self.kind {
            FaultKind::MemoryCrash { .. } | FaultKind::Slow { .. } => self,
            _ => Self { when: FaultTime::AfterChains(chains), ..self },
        }
    }

    /// The compute node it befalls, if it is one's.
    pub fn compute(&self) -> Option<usize> {
        match self.kind {
            FaultKind::Crash { compute }
            | FaultKind::Stall { compute, .. }
            | FaultKind::Cut { compute, .. } => Some(compute),
            FaultKind::MemoryCrash { .. } | FaultKind::Slow { .. } => None,
        }
    }
}
