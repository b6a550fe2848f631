//! Planted bugs: the option `plant`, one for each invariant of the runtime whose violation the simulator must detect.
//!
//! A checker's silence is evidence only if it detects known bugs. Each plant omits one step that a correctness argument of the runtime needs.
//! `farfield-soak` has a program for each, which must detect it within 1,000 seeds. The runtime tests for a plant in virtual time only, and never on
//! the path of an operation that is ready immediately.

macro_rules! plants {
    ($($(#[$doc:meta])* $plant:ident = $name:literal,)*) => {
        /// A planted bug of the runtime.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Plant {
            $($(#[$doc])* $plant,)*
        }

        impl Plant {
            /// All plants.
            pub const ALL: &[Self] = &[$(Self::$plant),*];

            /// The name in URLs.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$plant => $name,)*
                }
            }
        }
    };
}

plants! {
    /// No bug.
    None = "none",
    /// Retired memory is freed one epoch too early.
    EarlyReclamation = "early-reclamation",
    /// The epoch advances without regard to other processes' announcements.
    LonelyEpoch = "lonely-epoch",
    /// A retired object is tagged with the process's cached epoch, not with an upper bound on the global one.
    LowTag = "low-tag",
    /// A detached chain does not hold back the epoch in which it was posted.
    UnguardedChain = "unguarded-chain",
    /// A `Versioned` value has the same version after each write.
    SameVersion = "same-version",
    /// A reader of a `Versioned` value does not read the version again.
    SingleLook = "single-look",
    /// A writer of a `Versioned` value does not mark it as being written.
    QuietWriter = "quiet-writer",
    /// A live thread's locks are taken over.
    HastyTakeover = "hasty-takeover",
    /// A thread counts as gone while chains that it posted may still be executed.
    HastyDeath = "hasty-death",
    /// A lock that is taken over from a dead thread is not marked.
    UnmarkedTakeover = "unmarked-takeover",
    /// The CAS of a lock acquisition whose future was dropped in flight is not undone.
    KeptAttempt = "kept-attempt",
    /// All acquisitions of a thread have the same token.
    SameToken = "same-token",
    /// A CAS that must take effect is not posted again after a failure.
    SingleAmend = "single-amend",
    /// A name whose claim was dropped in flight stays claimed.
    KeptName = "kept-name",
    /// A name counts as claimed although its CAS has failed.
    SharedName = "shared-name",
    /// A barrier waits for threads that have ended.
    EndlessBarrier = "endless-barrier",
    /// A sweep ignores concurrent writes.
    SweepWithoutWrites = "sweep-without-writes",
    /// A sweep does not wait until all threads of a process have acknowledged it.
    SweepWithoutThreads = "sweep-without-threads",
    /// A sweep ignores the objects that threads hold.
    SweepWithoutHoldings = "sweep-without-holdings",
    /// A sweep does not search for links a second time.
    SweepWithoutSecondLook = "sweep-without-second-look",
    /// A sweep does not wait for guards.
    SweepWithoutGuards = "sweep-without-guards",
    /// A batch's header is written before its words.
    HeaderFirst = "header-first",
    /// A client has one more batch in flight than there are slots.
    WideWindow = "wide-window",
    /// A client does not ring for a batch while another is in flight.
    SilentBatch = "silent-batch",
    /// The answers of a batch go to its requests in reverse order.
    SwappedAnswers = "swapped-answers",
    /// A trustee goes on with a batch although the one before has arrived, too.
    ForgottenBatch = "forgotten-batch",
    /// A trustee that is rung for executes the last batch again.
    RepeatedBatch = "repeated-batch",
    /// A client writes a batch that may have been lost under the next number, too.
    ResentBatch = "resent-batch",
    /// A trustee counts a dead client's handles out before it executes the last batch of that client.
    LateLastWords = "late-last-words",
    /// A handle that is sent has the same edge as the one that stays.
    SharedEdge = "shared-edge",
    /// A handle is sent to a third thread before its value's trustee knows.
    LateGive = "late-give",
    /// A dead trustee counts as not having executed what it has not answered.
    SureOfDeath = "sure-of-death",
    /// The words of a mailbox's slot are read before its header.
    TornMailbox = "torn-mailbox",
    /// A sweep leaves one of the lost blocks.
    SweepButOne = "sweep-but-one",
}
