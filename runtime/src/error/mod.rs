//! Errors of the library: causes, and remedies.

use std::fmt;

pub use farfield_fabric::error::{
    CannotConnect, CannotServe, Evicted, Finding, NodeUnreachable, OperationFailed, Simulation, System,
};
pub use farfield_words::error::{InvalidArgument, InvalidPointer, InvalidValue, PointerFault, Printable};
use farfield_words::{Address, ThreadId};

/// The result of an operation on far memory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

farfield_words::errors! {
    /// The cause of a failed operation.
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
        /// A pointer to an address at which no object can be.
        InvalidPointer,
        /// Bits in far memory that encode no value of the expected type.
        InvalidValue,
        /// An argument outside its bounds.
        InvalidArgument,
        /// A memory node that does not answer: it has died, or the link to it is cut. The posted operations may have taken effect or not.
        NodeUnreachable,
        /// An operation that a memory node or the network has refused. Operations posted with it may have taken effect or not.
        OperationFailed,
        /// A memory node that refuses the connection or can not be reached.
        CannotConnect,
        /// This process is no longer a member of the cluster: its heartbeat was missing for longer than its lease, or a memory node lost its
        /// connection. Its last posted operations may have taken effect or not; no later one will. Connect again.
        Evicted,
        /// A memory node that can not begin to serve.
        CannotServe,
        /// A system call that failed.
        System,
        /// A bug that the simulator has found in a run.
        Simulation,
    }
    from farfield_words { InvalidPointer, InvalidValue, InvalidArgument, }
    from farfield_fabric {
        InvalidPointer, InvalidValue, InvalidArgument, NodeUnreachable, OperationFailed, CannotConnect, Evicted, CannotServe, System,
        Simulation,
    }

    /// A metadata word in far memory has a value that the runtime never writes, so other code has overwritten it. The operation is not executed.
    /// Other words may be corrupt, too; `farfield status` shows how much of the memory is still readable.
    #[error("far memory is corrupted: the {what} at {address} is {word:#x}: {reason}")]
    Corrupted {
        /// The word's name: `epoch`, `chunk table[3]`, and so on.
        what: Box<str>,
        /// The word's address.
        address: Address,
        /// The value found.
        word: u64,
        /// The rule that the value breaks.
        reason: &'static str,
    }
    /// No segment has a free block of this size. Enlarge the heap (`size=`, `segments=` or `nodes=` in the cluster's URL) or retire more.
    #[error("out of memory: no room for {size_bytes} bytes; tried {}", Segments(segments))]
    OutOfMemory {
        /// The size of the requested block.
        size_bytes: u64,
        /// The segments that were tried.
        segments: Vec<u16>,
    }
    /// A guard keeps retired memory from being freed. Drop that guard, or raise `max-retired` in the cluster's URL if so much retired memory is
    /// expected.
    #[error(
        "reclamation is held back by {holder}, for {held_ms} ms at least: {retired_bytes} bytes that this thread has retired are \
         not freed, more than max-retired={limit_bytes}"
    )]
    ReclamationHeldBack {
        /// The bytes that this thread has retired and not freed.
        retired_bytes: u64,
        /// The limit, `max-retired`.
        limit_bytes: u64,
        /// The time since this thread first exceeded the limit in the current epoch.
        held_ms: u64,
        /// The thread or process with the oldest guard, if known.
        held_back_by: Option<HeldBackBy>,
        /// Its description, with the identity of the thread or the number of the process.
        holder: Box<str>,
    }
    /// An alignment or size that the allocator does not support, however much memory is free.
    #[error("cannot allocate {size_bytes} bytes: {reason}")]
    InvalidAllocation {
        /// The requested size.
        size_bytes: u64,
        /// The limit that it exceeds.
        reason: &'static str,
    }
    /// A root that was published with another type, or by a build with another layout.
    #[error(
        "root `{root}` holds a `{found}` (layout {found_fingerprint:016x}), not a `{expected}` (layout \
         {expected_fingerprint:016x})"
    )]
    LayoutMismatch {
        /// The root's name.
        root: Box<str>,
        /// The requested type.
        expected: Box<str>,
        /// Its layout fingerprint in this build.
        expected_fingerprint: u64,
        /// The type that it was published with (its first 55 bytes).
        found: Box<str>,
        /// The layout fingerprint that it was published with.
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
    /// An invalid name of a root or barrier.
    #[error("the name `{name}` is not usable: {reason}")]
    InvalidName {
        /// The name.
        name: Box<str>,
        /// The rule that it breaks.
        reason: &'static str,
    }
    /// The directory of named roots and barriers is full.
    #[error("no room for the name `{name}`: the directory holds {capacity} roots and barriers")]
    DirectoryFull {
        /// The name that was to be added.
        name: Box<str>,
        /// The capacity of the directory, in names.
        capacity: usize,
    }
    /// A self-deadlock: the lock is taken again by the task that holds it, or twice by one chain.
    #[error("the lock at {lock} is taken twice: {how}")]
    LockTakenTwice {
        /// The lock's address.
        lock: Address,
        /// The current holder, and the remedy.
        how: &'static str,
    }
    /// A value whose writer died, or failed, in the middle of a write. There is no second copy: the old value is lost.
    #[error("the value at {address} was left half-written by thread {writer}: write it anew")]
    HalfWritten {
        /// The address of the [`Versioned`](crate::Versioned) value.
        address: Address,
        /// Its last writer. If the value was restored from a checkpoint, this is a thread of the cluster that wrote the checkpoint.
        writer: ThreadId,
    }
    /// A barrier that can not complete, because a compute thread ended without reaching it.
    #[error("barrier `{name}` is broken: {arrived} of {threads} threads reached it and another has ended")]
    BarrierBroken {
        /// The barrier's name.
        name: Box<str>,
        /// The number of threads that have arrived.
        arrived: u64,
        /// The number of threads of the run.
        threads: u64,
    }
    /// A run of several processes, one of which ended before the run began.
    #[error("part {part} of {parts} of `{group}` has ended before the run began")]
    GroupBroken {
        /// The group's name.
        group: Box<str>,
        /// The number of the missing part.
        part: u16,
        /// The number of parts.
        parts: u16,
    }
    /// An operation that requires a thread without guards.
    #[error("{operation} needs a quiescent thread, but it holds {guards} guards: drop them first")]
    Pinned {
        /// The operation.
        operation: &'static str,
        /// The number of guards that the thread holds.
        guards: u32,
    }
    /// An invalid cluster URL, or an invalid option of it.
    #[error("cluster URL `{url}`: {reason}")]
    InvalidUrl {
        /// The URL as given.
        url: Box<str>,
        /// The cause, with the option and its value.
        reason: Box<str>,
    }
    /// A checkpoint that can not be written or restored.
    #[error("checkpoint {file}: {reason}")]
    Checkpoint {
        /// The file.
        file: Box<str>,
        /// The cause.
        reason: Box<str>,
    }
    /// A compute thread that died in a run that requires all threads to return.
    #[error("compute thread {thread} died")]
    ComputeNodeDied {
        /// The thread's index in its run.
        thread: usize,
    }
    /// A full queue of a client. Await [`call`](crate::Client::call), enlarge the queue, or use more threads.
    #[error("the client's queue is full: {queue} calls wait; await `call`, or raise `ClientOptions::queue`")]
    ClientFull {
        /// The capacity of the queue, in calls.
        queue: usize,
    }
    /// A call of a client that is shut down, or whose threads have ended. The work was not executed, or its outcome is unknown.
    #[error("the client is shut down: make another with `cluster.client()`")]
    ClientClosed {}
    /// Work that was not done before its deadline, of a call or of [`ComputeThread::within`](crate::ComputeThread::within). It was not begun, or was
    /// cancelled at an `await`. Operations that it had posted take effect.
    #[error(
        "not done within {deadline_us} us: the work {}",
        if *has_begun { "was cancelled after it had begun" } else { "was not begun" }
    )]
    DeadlineExceeded {
        /// The deadline, in microseconds.
        deadline_us: u128,
        /// True if a compute thread had begun the work.
        has_begun: bool,
    }
    /// A trustee that has ended, or has died, with its values.
    #[error(
        "the trustee, thread {trustee}, has gone: `{function}` {}",
        if *may_have_run { "may have been called" } else { "was not called" }
    )]
    TrusteeGone {
        /// The trustee.
        trustee: ThreadId,
        /// The function that was requested.
        function: Box<str>,
        /// False if the function was certainly not called.
        may_have_run: bool,
    }
    /// A delegated function that panicked. Its trustee continues, with the value as the function left it.
    #[error("`{function}` panicked at its trustee, thread {trustee}: {message}")]
    DelegatedPanicked {
        /// The function.
        function: Box<str>,
        /// The trustee.
        trustee: ThreadId,
        /// The first line of the panic's message.
        message: Box<str>,
    }
    /// A request that a trustee has refused, or whose result did not arrive.
    #[error("`{function}` at the trustee, thread {trustee}: {reason}")]
    DelegationRefused {
        /// The function.
        function: Box<str>,
        /// The trustee.
        trustee: ThreadId,
        /// The cause.
        reason: &'static str,
    }
    /// A call whose work panicked. The compute thread continues.
    #[error("the work of the call panicked: {message}")]
    CallPanicked {
        /// The first line of the panic's message.
        message: Box<str>,
    }
}

/// The thread or process that delays reclamation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldBackBy {
    /// A thread of this process, by its number in the run. It holds a guard.
    Thread(usize),
    /// Another process, by the number of its slot. One of its threads holds a guard, or the process is stalled.
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
