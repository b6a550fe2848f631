//! Planted bugs: the option `plant`, one for each invariant of the runtime whose violation the simulator must detect.
//!
//! A checker's silence is evidence only if it detects known bugs. Each plant omits one step that a correctness argument of the runtime needs.
//! `farfield-soak` has a program for each, which must detect it within 1,000 seeds. The runtime tests for a plant in virtual time only, and never on
//! the path of an operation that is ready immediately.

/// A planted bug of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// No bug.
    None,
    /// Retired memory is freed one epoch too early.
    EarlyReclamation,
    /// The epoch advances without regard to other processes' announcements.
    LonelyEpoch,
    /// A retired object is tagged with the process's cached epoch, not with an upper bound on the global one.
    LowTag,
    /// A detached chain does not hold back the epoch in which it was posted.
    UnguardedChain,
    /// A `Versioned` value has the same version after each write.
    SameVersion,
    /// A reader of a `Versioned` value does not read the version again.
    SingleLook,
    /// A writer of a `Versioned` value does not mark it as being written.
    QuietWriter,
    /// A live thread's locks are taken over.
    HastyTakeover,
    /// A thread counts as gone while chains that it posted may still be executed.
    HastyDeath,
    /// A lock that is taken over from a dead thread is not marked.
    UnmarkedTakeover,
    /// The CAS of a lock acquisition whose future was dropped in flight is not undone.
    KeptAttempt,
    /// All acquisitions of a thread have the same token.
    SameToken,
    /// A CAS that must take effect is not posted again after a failure.
    SingleAmend,
    /// A name whose claim was dropped in flight stays claimed.
    KeptName,
    /// A name counts as claimed although its CAS has failed.
    SharedName,
    /// A barrier waits for threads that have ended.
    EndlessBarrier,
    /// A sweep ignores concurrent writes.
    SweepWithoutWrites,
    /// A sweep does not wait until all threads of a process have acknowledged it.
    SweepWithoutThreads,
    /// A sweep ignores the objects that threads hold.
    SweepWithoutHoldings,
    /// A sweep does not search for links a second time.
    SweepWithoutSecondLook,
    /// A sweep does not wait for guards.
    SweepWithoutGuards,
    /// A sweep leaves one of the lost blocks.
    SweepButOne,
}

impl Plant {
    /// All plants and their names in URLs.
    pub(super) const ALL: [(&str, Self); 23] = [
        ("none", Self::None),
        ("early-reclamation", Self::EarlyReclamation),
        ("lonely-epoch", Self::LonelyEpoch),
        ("low-tag", Self::LowTag),
        ("unguarded-chain", Self::UnguardedChain),
        ("same-version", Self::SameVersion),
        ("single-look", Self::SingleLook),
        ("quiet-writer", Self::QuietWriter),
        ("hasty-takeover", Self::HastyTakeover),
        ("hasty-death", Self::HastyDeath),
        ("unmarked-takeover", Self::UnmarkedTakeover),
        ("kept-attempt", Self::KeptAttempt),
        ("same-token", Self::SameToken),
        ("single-amend", Self::SingleAmend),
        ("kept-name", Self::KeptName),
        ("shared-name", Self::SharedName),
        ("endless-barrier", Self::EndlessBarrier),
        ("sweep-without-writes", Self::SweepWithoutWrites),
        ("sweep-without-threads", Self::SweepWithoutThreads),
        ("sweep-without-holdings", Self::SweepWithoutHoldings),
        ("sweep-without-second-look", Self::SweepWithoutSecondLook),
        ("sweep-without-guards", Self::SweepWithoutGuards),
        ("sweep-but-one", Self::SweepButOne),
    ];
}
