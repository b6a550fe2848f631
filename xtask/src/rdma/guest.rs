//! Guests: the machines of a scenario, and their tasks.

use std::path::PathBuf;
use std::time::Duration;

/// One machine of a scenario.
pub(super) struct Guest {
    pub(super) name: &'static str,
    /// Its address; all guests are in one /24 network.
    pub(super) address: &'static str,
    pub(super) network: Network,
    pub(super) role: Role,
}

/// The connection of a guest's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// Connected to the other guest.
    Wire,
    Unconnected,
}

/// The task of a guest after it has booted.
pub(super) enum Role {
    /// Tests, in order.
    Tests(Vec<Test>),
    /// A service for other guests, until their tests have ended.
    Service(String),
}

impl Guest {
    pub(super) fn tests(&self) -> &[Test] {
        match &self.role {
            Role::Tests(tests) => tests,
            Role::Service(_) => &[],
        }
    }

    /// Keeps the tests that `wanted` selects.
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

/// Machines that run together: one, or several on one wire.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) guests: Vec<Guest>,
    /// Programs of this host that the guests get, with their shared libraries.
    pub(super) programs: Vec<PathBuf>,
}

/// Functions that every test can call.
///
/// - `perftest PROGRAM FLAGS` runs a program of perftest against itself.
/// - `memnode PORT FLAGS` starts a memory node; `set_is_sound FLAGS` runs a set and fails unless it is verified afterwards;
///   `slow_tcp` delays and loses TCP's packets; `refuses TEXT COMMAND` fails unless the command ends with an error that contains the text.
/// - `request WORDS` sends a request to the host: `request off GUEST` powers another guest off.
pub(super) const PRELUDE: &str = include_str!("scripts/prelude.sh");
