//! Errors of moving words, making connections and serving memory.

use std::fmt;

use farfield_words::Address;
pub use farfield_words::error::{InvalidArgument, InvalidPointer, InvalidValue, PointerFault, Printable};

/// The result of operations on far memory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

farfield_words::errors! {
    /// An error of a fabric.
    pub enum Error {
        /// A pointer that no object can have.
        InvalidPointer,
        /// Bits in far memory that no value of the expected type has.
        InvalidValue,
        /// An argument outside its bounds.
        InvalidArgument,
    }
    from farfield_words { InvalidPointer, InvalidValue, InvalidArgument, }

        /// A memory node that does not answer: it has died, or the link to it is cut. Chains posted to it may have taken effect or not.
    #[error("memory node {node} did not answer within {timeout_us} us ({operation} of {address})")]
    NodeUnreachable {
        /// The memory node. In the simulator, numbers behind those of the memory nodes are those of compute nodes that host memory.
        node: u16,
                /// The timeout, in microseconds.
        timeout_us: u64,
                /// The first unanswered operation.
        operation: &'static str,
                /// The operation's address.
        address: Address,
    }
        /// An operation that a memory node or the network refused. Operations posted with it may have taken effect or not.
    #[error("{operation} of {address} failed on memory node {node}: {reason}")]
    OperationFailed {
        /// The memory node.
        node: u16,
        /// The operation.
        operation: &'static str,
                /// The operation's address.
        address: Address,
                /// The device's reason.
        reason: Box<str>,
    }
    /// A memory node that can not be connected to.
    #[error("cannot connect to memory node {address}: {reason}")]
    CannotConnect {
                /// Its address, as in the URL.
        address: Box<str>,
        /// The reason.
        reason: Box<str>,
    }
        /// The cluster has evicted this process: it sent no heartbeat for longer than its lease, or a memory node lost its connection. Its last
        /// operations may have taken effect or not; no later ones will. Connect again to become a member again.
    #[error("process {process} has been evicted: it sent no heartbeat for longer than its lease, or lost a connection; connect again")]
    Evicted {
        /// The process's number.
        process: u32,
    }
    /// A memory node that can not begin to serve.
    #[error("cannot serve {address}: {reason}")]
    CannotServe {
                /// The address or name that it was to serve.
        address: Box<str>,
        /// The reason.
        reason: Box<str>,
    }
    /// A request that the operating system refused.
    #[error("cannot {action}: {cause}")]
    System {
                /// The attempted action.
        action: &'static str,
                /// The system's error.
        cause: std::io::Error,
    }
        /// A finding of the simulator, which checks its program.
    #[error("{finding} at {}.{:03} us, seed {seed}: {report}", at.as_micros(), at.subsec_nanos() % 1000)]
    Simulation {
                /// The kind of the finding.
        finding: Finding,
                /// The seed that reproduces it.
        seed: u64,
                /// The virtual time of the finding.
        at: std::time::Duration,
                /// The operations, objects and threads involved.
        report: Box<str>,
    }
}

impl Error {
    /// Returns whether the failed operation may have taken effect, or may take effect if it is retried.
    pub fn is_of_unknown_outcome(&self) -> bool {
        matches!(self, Self::NodeUnreachable(_) | Self::OperationFailed(_))
    }
}

/// A kind of error in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Finding {
    /// An operation on memory that has been freed.
    UseAfterFree,
    /// An operation on memory that was never allocated, or past the end of an object.
    WildAccess,
    /// An object that was freed or retired a second time.
    DoubleFree,
    /// An object that overlaps another that is not freed.
    DoubleAllocation,
    /// An object that was never freed and is not reachable from any root.
    Leak,
    /// Every thread is blocked.
    Deadlock,
    /// Every thread retries without progress: each loops until another thread acts, and none does. Words may change meanwhile.
    Livelock,
    /// A task fails repeatedly because other threads are faster, while these complete many operations.
    Starved,
    /// A run that took longer than its limit.
    OutOfTime,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UseAfterFree => "use after free",
            Self::WildAccess => "wild access",
            Self::DoubleFree => "double free",
            Self::DoubleAllocation => "double allocation",
            Self::Leak => "leak",
            Self::Deadlock => "deadlock",
            Self::Livelock => "livelock",
            Self::Starved => "starved",
            Self::OutOfTime => "out of time",
        })
    }
}
