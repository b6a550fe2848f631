//! Planted bugs: the option `plant`, one for each invariant of the runtime that the simulator must see broken.
//!
//! A checker that finds nothing proves something only if it finds what is there. Each bug leaves out one step that an argument of the
//! runtime rests on; `farfield-soak` runs a program for each, which must find it within 1,000 seeds. The runtime asks for a plant
//! where time is virtual only, and nowhere on the way of an operation that is ready at once.

/// A bug of the runtime, for checkers to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None.
    None,
    /// Retired memory is freed one epoch too early.
    EarlyReclamation,
    /// The epoch advances whatever other processes have announced.
    LonelyEpoch,
    /// A retired object is tagged with the epoch that the process knows, not with a bound on the true one.
    LowTag,
    /// A chain that is posted and left does not keep the epoch in which it was posted.
    UnguardedChain,
    /// A `Versioned` value has the same version after each write.
    SameVersion,
    /// A reader of a `Versioned` value does not look at the version again.
    SingleLook,
    /// A writer of a `Versioned` value does not say that it is being written.
    QuietWriter,
    /// What a live thread holds is taken from it.
    HastyTakeover,
    /// A thread counts as gone though what it posted may still be executed.
    HastyDeath,
    /// A lock that is taken from a dead thread is not marked.
    UnmarkedTakeover,
    /// The CAS of an acquisition that was dropped in flight is not undone.
    KeptAttempt,
    /// All acquisitions of a thread have the same token.
    SameToken,
    /// An exchange that must take effect is not posted again when it has failed.
    SingleAmend,
    /// A name whose claim was dropped in flight stays claimed.
    KeptName,
    /// A name is taken for claimed though the exchange has failed.
    SharedName,
    /// A barrier waits for threads that have ended.
    EndlessBarrier,
    /// A sweep does not hear of what others write meanwhile.
    SweepWithoutWrites,
    /// It does not wait until all threads of a process have heard of it.
    SweepWithoutThreads,
    /// It does not hear of what threads hold.
    SweepWithoutHoldings,
    /// It does not look for links again.
    SweepWithoutSecondLook,
    /// It does not wait for guards.
    SweepWithoutGuards,
    /// It leaves one block of those that are lost.
    SweepButOne,
}

impl Plant {
    /// All of them, by the names that they have in URLs.
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
