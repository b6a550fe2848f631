//! What can go wrong, and what to do about it.

use std::fmt;

pub use farfield_fabric::error::{
    CannotConnect, CannotServe, Evicted, Finding, NodeUnreachable, OperationFailed, Simulation, System,
};
pub use farfield_words::error::{InvalidArgument, InvalidPointer, InvalidValue, PointerFault, Printable};
use farfield_words::{Address, ThreadId};

/// The result of everything that touches far memory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

farfield_words::errors! {
    /// Why an operation failed.
    ///
    /// Its message is one line and names the value at fault; control characters of names and URLs are escaped. `{:?}` shows the
    /// same line, because that is what `fn main() -> farfield::Result<()>` prints; `{:#?}` shows the variant and its fields.
    ///
    /// ```
    /// let error = farfield::Cluster::connect("moon:\n").unwrap_err();
    /// assert_eq!(format!("{error:?}"), error.to_string());
    /// assert!(error.to_string().starts_with("cluster URL `moon:\\n`: unknown fabric `moon`"));
    /// assert!(format!("{error:#?}").starts_with("InvalidUrl("));
    /// ```
    [non_exhaustive]
    pub enum Error {
        /// A pointer that no object can have.
        InvalidPointer,
        /// Bits in far memory that no value of the expected type has.
        InvalidValue,
        /// An argument outside its bounds.
        InvalidArgument,
        /// A memory node that does not answer: it has died, or the link to it is cut. What was posted to it may have taken
        /// effect or not.
        NodeUnreachable,
        /// An operation that a memory node or the network between has refused. What was posted with it may have taken effect
        /// or not.
        OperationFailed,
        /// A memory node that can not be connected to.
        CannotConnect,
        /// The cluster goes on without this process: it gave no sign of life for longer than its lease, or a memory node lost its
        /// connection. What it had posted last may have taken effect or not; nothing more will. Connect again.
        Evicted,
        /// A memory node that can not begin to serve.
        CannotServe,
        /// The operating system refused something.
        System,
        /// What the simulator found wrong with a run.
        Simulation,
    }
    from farfield_words { InvalidPointer, InvalidValue, InvalidArgument, }
    from farfield_fabric {
        InvalidPointer, InvalidValue, InvalidArgument, NodeUnreachable, OperationFailed, CannotConnect, Evicted, CannotServe, System,
        Simulation,
    }

    /// A word of the runtime's own in far memory that the runtime did not write: something else has. What the operation was to do is not
    /// done. Nothing is known of the rest of the memory; `farfield status` says how much of it can still be read.
    #[error("far memory is corrupted: the {what} at {address} is {word:#x}: {reason}")]
    Corrupted {
        /// What stands there: `epoch`, `chunk table[3]`, and so on.
        what: Box<str>,
        /// Where it is.
        address: Address,
        /// What was found there.
        word: u64,
        /// Why it can not be right.
        reason: &'static str,
    }
    /// No segment has room left. Make the heap larger (`size=`, `segments=` or `nodes=` in the cluster's URL) or
    /// retire more.
    #[error("out of memory: no room for {size_bytes} bytes; tried {}", Segments(segments))]
    OutOfMemory {
        /// The size of the block asked for.
        size_bytes: u64,
        /// The segments that were tried.
        segments: Vec<u16>,
    }
    /// Retired memory that is not freed because a guard is kept. Drop that guard; or, if this much is to be expected, raise
    /// `max-retired` in the cluster's URL.
    #[error(
        "reclamation is held back by {holder}, for {held_ms} ms at least: {retired_bytes} bytes that this thread has retired are \
         not freed, more than max-retired={limit_bytes}"
    )]
    ReclamationHeldBack {
        /// What this thread has retired and not freed.
        retired_bytes: u64,
        /// How much that may be.
        limit_bytes: u64,
        /// For how long this thread has found more, without a new epoch.
        held_ms: u64,
        /// Who holds it back.
        held_back_by: Option<HeldBackBy>,
        /// The same in words, with the identity of the thread or the number of the process.
        holder: Box<str>,
    }
    /// An alignment or size that the allocator can not serve whatever is free.
    #[error("cannot allocate {size_bytes} bytes: {reason}")]
    InvalidAllocation {
        /// The size asked for.
        size_bytes: u64,
        /// Which limit it exceeds.
        reason: &'static str,
    }
    /// A root that was published with another type or by another build.
    #[error(
        "root `{root}` holds a `{found}` (layout {found_fingerprint:016x}), not a `{expected}` (layout \
         {expected_fingerprint:016x})"
    )]
    LayoutMismatch {
        /// The root's name.
        root: Box<str>,
        /// The type asked for.
        expected: Box<str>,
        /// Its layout fingerprint in this build.
        expected_fingerprint: u64,
        /// The type it was published with (its first 55 bytes).
        found: Box<str>,
        /// The layout fingerprint it was published with.
        found_fingerprint: u64,
    }
    /// No root of this name is published.
    #[error("no root is named `{root}`")]
    RootNotFound {
        /// The name looked up.
        root: Box<str>,
    }
    /// A root of this name exists already.
    #[error("a root named `{root}` exists already")]
    RootExists {
        /// The name.
        root: Box<str>,
    }
    /// A root's or barrier's name that the directory can not hold.
    #[error("the name `{name}` is not usable: {reason}")]
    InvalidName {
        /// The name.
        name: Box<str>,
        /// What is wrong with it.
        reason: &'static str,
    }
    /// The directory of named roots and barriers is full.
    #[error("no room for the name `{name}`: the directory holds {capacity} roots and barriers")]
    DirectoryFull {
        /// The name that found no room.
        name: Box<str>,
        /// How many it holds.
        capacity: usize,
    }
    /// A lock that would never be had: it is taken again by the task that holds it, or twice by one chain.
    #[error("the lock at {lock} is taken twice: {how}")]
    LockTakenTwice {
        /// Where the lock is.
        lock: Address,
        /// Who holds it, and what to do.
        how: &'static str,
    }
    /// A value whose writer died, or whose write failed, before it was whole. There is one copy, so what it was is lost.
    #[error("the value at {address} was left half-written by thread {writer}: write it anew")]
    HalfWritten {
        /// Where the [`Versioned`](crate::Versioned) value is.
        address: Address,
        /// The thread that wrote it; if the value was restored from a checkpoint, a thread of the cluster that the checkpoint is from.
        writer: ThreadId,
    }
    /// A barrier that can not complete, because a compute thread ended without reaching it.
    #[error("barrier `{name}` is broken: {arrived} of {threads} threads reached it and another has ended")]
    BarrierBroken {
        /// The barrier's name.
        name: Box<str>,
        /// How many threads had arrived.
        arrived: u64,
        /// How many it waits for.
        threads: u64,
    }
    /// A run of several processes one of which has ended before it began.
    #[error("part {part} of {parts} of `{group}` has ended before the run began")]
    GroupBroken {
        /// The group's name.
        group: Box<str>,
        /// Which part is missing.
        part: u16,
        /// How many there are.
        parts: u16,
    }
    /// An operation that needs a quiescent thread while the thread holds a guard.
    #[error("{operation} needs a quiescent thread, but it holds {guards} guards: drop them first")]
    Pinned {
        /// The operation.
        operation: &'static str,
        /// How many guards the thread holds.
        guards: u32,
    }
    /// A cluster URL, or an option of it, that makes no sense.
    #[error("cluster URL `{url}`: {reason}")]
    InvalidUrl {
        /// The URL as given.
        url: Box<str>,
        /// What is wrong, naming the option and its value.
        reason: Box<str>,
    }
    /// A checkpoint that can not be written, or is none that the cluster can take in.
    #[error("checkpoint {file}: {reason}")]
    Checkpoint {
        /// The file.
        file: Box<str>,
        /// What is wrong with it.
        reason: Box<str>,
    }
    /// A compute thread that died in a run whose caller expects all of them to return.
    #[error("compute thread {thread} died")]
    ComputeNodeDied {
        /// The thread's index in its run.
        thread: usize,
    }
    /// A client's queue has no room. Wait for it with [`call`](crate::Client::call), make it longer, or use more threads.
    #[error("the client's queue is full: {queue} calls wait; await `call`, or raise `ClientOptions::queue`")]
    ClientFull {
        /// How many calls it holds.
        queue: usize,
    }
    /// A call of a client that has been shut down, or whose threads have ended. It was not done, or is not known to have been.
    #[error("the client is shut down: make another with `cluster.client()`")]
    ClientClosed {}
    /// A call that had no answer in time, and was given up: its work was not begun, or its future was dropped where it waited.
    /// What that had posted takes effect.
    #[error(
        "no answer to the call within {deadline_us} us: its work {}",
        if *has_begun { "was cancelled after it had begun" } else { "was not begun" }
    )]
    DeadlineExceeded {
        /// How long it was waited for, in microseconds.
        deadline_us: u128,
        /// Whether a compute thread had begun the work.
        has_begun: bool,
    }
    /// A call whose work panicked. Its thread goes on.
    #[error("the work of the call panicked: {message}")]
    CallPanicked {
        /// The first line of the panic's message.
        message: Box<str>,
    }
}

/// Who holds reclamation back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldBackBy {
    /// A thread of this process, by its number in the run, which holds a guard.
    Thread(usize),
    /// Another process, by the number of its slot: one of its threads holds a guard, or it does nothing at all.
    Process(usize),
}

struct Segments<'a>(&'a [u16]);

impl fmt::Display for Segments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "segment " } else { "segments " })?;
        for (position, segment) in self.0.iter().take(8).enumerate() {
            write!(f, "{}{segment}", if position == 0 { "" } else { ", " })?;
        }
        if self.0.len() > 8 { write!(f, " and {} more", self.0.len() - 8) } else { Ok(()) }
    }
}
