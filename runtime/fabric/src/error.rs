//! What can go wrong when words are moved, connections made or memory served.

use std::fmt;

use farfield_words::Address;
pub use farfield_words::error::{InvalidArgument, InvalidPointer, InvalidValue, PointerFault, Printable};

/// The result of everything that touches far memory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

farfield_words::errors! {
    /// Why a fabric failed.
    pub enum Error {
        /// A pointer that no object can have.
        InvalidPointer,
        /// Bits in far memory that no value of the expected type has.
        InvalidValue,
        /// An argument outside its bounds.
        InvalidArgument,
    }
    from farfield_words { InvalidPointer, InvalidValue, InvalidArgument, }

    /// A memory node that does not answer: it has died, or the link to it is cut. What was posted to it may have taken
    /// effect or not.
    #[error("memory node {node} did not answer within {timeout_us} us ({operation} of {address})")]
    NodeUnreachable {
        /// The memory node.
        node: u16,
        /// How long it was tried, in microseconds.
        timeout_us: u64,
        /// The first operation that had no answer.
        operation: &'static str,
        /// Where it was to take place.
        address: Address,
    }
    /// An operation that a memory node or the network between has refused. What was posted with it may have taken effect
    /// or not.
    #[error("{operation} of {address} failed on memory node {node}: {reason}")]
    OperationFailed {
        /// The memory node.
        node: u16,
        /// The operation.
        operation: &'static str,
        /// Where it was to take place.
        address: Address,
        /// What the device reports.
        reason: Box<str>,
    }
    /// A memory node that can not be connected to.
    #[error("cannot connect to memory node {address}: {reason}")]
    CannotConnect {
        /// Its address as it was given.
        address: Box<str>,
        /// Why not.
        reason: Box<str>,
    }
    /// The cluster goes on without this process: it gave no sign of life for longer than its lease, or a memory node lost its connection.
    /// What it had posted last may have taken effect or not; nothing more will. Connect again to take part anew.
    #[error("process {process} has been evicted: it gave no sign of life for too long; connect again")]
    Evicted {
        /// The process's number.
        process: u32,
    }
    /// A memory node that can not begin to serve.
    #[error("cannot serve {address}: {reason}")]
    CannotServe {
        /// What it was to serve.
        address: Box<str>,
        /// Why not.
        reason: Box<str>,
    }
    /// The operating system refused something.
    #[error("cannot {action}: {cause}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        cause: std::io::Error,
    }
    /// What a fabric that checks its program found wrong with it: the simulator.
    #[error("{finding} at {}.{:03} us, seed {seed}: {report}", at.as_micros(), at.subsec_nanos() % 1000)]
    Simulation {
        /// What kind of mistake it is.
        finding: Finding,
        /// The seed that shows it.
        seed: u64,
        /// When, in virtual time.
        at: std::time::Duration,
        /// Which operations, objects and threads are concerned.
        report: Box<str>,
    }
}

/// What can be wrong with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Finding {
    /// An operation on memory that has been freed.
    UseAfterFree,
    /// An operation on memory that was never allocated, or past the end of an object.
    WildAccess,
    /// An object that is freed or retired a second time.
    DoubleFree,
    /// An object in the place of another that is not freed.
    DoubleAllocation,
    /// An object that was never freed and that no root leads to.
    Leak,
    /// All threads wait for what nobody will do.
    Deadlock,
    /// All threads try again and again, and none gets on: each waits in a loop for what another would have to do. Words may change
    /// meanwhile.
    Livelock,
    /// A task that fails again and again, because others are faster, while these do a lot.
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
