//! Bugs of the runtime: options of the cluster's URL. The structures that show them are unchanged.

use super::bug::{Bug, Check, Planted, Structure};

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "runtime_reclaims_early",
        structure: Structure::MsQueue,
        bug: Bug::Runtime("plant=early-reclamation"),
        invariant: "memory is freed two epochs after its object was retired",
        why: "a thread whose guard is one epoch old may still hold a pointer to it",
        caught_by: Check::Memory,
        needs_faults: false,
    },
    Planted {
        name: "runtime_repeats_a_version",
        structure: Structure::Register,
        bug: Bug::Runtime("plant=same-version"),
        invariant: "each write of a `Versioned` value gives it another version",
        why: "a reader sees the same version before and after a write that it overlaps, and takes a torn value for a whole one",
        caught_by: Check::Error,
        needs_faults: false,
    },
    Planted {
        name: "runtime_takes_over_from_the_living",
        structure: Structure::Register,
        bug: Bug::Runtime("plant=hasty-takeover"),
        invariant: "only a dead thread's right to write is taken from it",
        why: "two threads write one value at the same time",
        caught_by: Check::Error,
        needs_faults: false,
    },
];
