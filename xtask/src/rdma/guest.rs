//! Guests: the machines of a scenario, and what each is to do.

use std::path::PathBuf;
use std::time::Duration;

/// One machine of a scenario.
pub(super) struct Guest {
    pub(super) name: &'static str,
    /// On its only network, in whose first 24 bits all guests agree.
    pub(super) address: &'static str,
    pub(super) network: Network,
    pub(super) role: Role,
}

/// Where a guest's network leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// To the other guest.
    Wire,
    Nowhere,
}

/// What a guest does once it is up.
pub(super) enum Role {
    /// These, in turn; then it is done.
    Tests(Vec<Test>),
    /// Something for the others, until they are done.
    Service(String),
}

impl Guest {
    pub(super) fn tests(&self) -> &[Test] {
        match &self.role {
            Role::Tests(tests) => tests,
            Role::Service(_) => &[],
        }
    }

    /// Keeps only some of its tests.
    pub(super) fn keep(&mut self, wanted: impl FnMut(&Test) -> bool) {
        if let Role::Tests(tests) = &mut self.role {
            tests.retain(wanted);
        }
    }
}

/// One test.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) command: String,
    pub(super) limit: Duration,
}

/// What is run together: tests of one machine, or of several on one wire.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) guests: Vec<Guest>,
    /// Programs of this host that the guests get, with the libraries that they are linked to.
    pub(super) programs: Vec<PathBuf>,
}

/// Functions that every test can call.
///
/// - `perftest PROGRAM FLAGS` runs a program of perftest against itself.
/// - `memnode PORT FLAGS` starts a memory node; `set_is_sound FLAGS` drives a set and fails unless it is whole afterwards;
///   `refuses TEXT COMMAND` fails unless the command refuses with that text.
/// - `tell WORDS` asks the host for something: `tell off GUEST` powers another guest off.
pub(super) const PRELUDE: &str = include_str!("scripts/prelude.sh");
