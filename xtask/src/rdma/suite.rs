//! The tests: each has a command, a name and a limit.
//!
//! A test is a shell script, so that it can start a server in the background and then a client. It fails with the first command that fails.
//! In a guest or on the host it has these variables:
//!
//! | variable | meaning |
//! |---|---|
//! | `RDMA_DEVICE` | the device to use |
//! | `RDMA_GID_INDEX` | the index of the device's global identifier that belongs to the address |
//! | `RDMA_ADDRESS` | the device's own address |
//! | `FARFIELD_REQUIRE` | `rdma`: a test of the library that does not find the device fails |
//!
//! and the functions of [`PRELUDE`]. Programs that a run brings along are on the path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::guest::{Guest, Network, PRELUDE, Role, Scenario, Test};
use super::programs::{TESTS, TESTS_DLOPEN};

/// The name of the test whose output has figures.
pub(super) const MEASURE: &str = "measure";

fn test(name: &str, limit_s: u64, command: &str) -> Test {
    Test { name: name.to_owned(), command: command.to_owned(), limit: Duration::from_secs(limit_s) }
}

/// The fabrics' tests that `filter` selects. A filter that selects no test makes the program succeed, so one whose name contains
/// `needed` must be among those that passed.
fn library(program: &str, filter: &str, needed: &str) -> String {
    format!(
        "log=$(mktemp)\n{program} {filter} --test-threads 1 >\"$log\" 2>&1 || {{ cat \"$log\"; exit 1; }}\ncat \"$log\"\n\
         grep -q '^test .*{needed}.* ok$' \"$log\" || {{ echo 'no test of this name passed: {needed}'; exit 1; }}\n"
    )
}

/// What runs on any one device. The last one takes the device away, so it runs in a machine of ours only.
pub(super) fn single(in_machine: bool) -> Vec<Test> {
    let mut tests = vec![
        test("device", 20, DEVICE),
        test("conformance", 120, &library(TESTS, "conformance", "rdma_conforms")),
        test("two-sides", 120, &few_connections(&library(TESTS, "verbs", "verbs::tests::"))),
        test("conformance-dlopen", 120, &library(TESTS_DLOPEN, "conformance", "rdma_conforms")),
        test("two-sides-dlopen", 120, &few_connections(&library(TESTS_DLOPEN, "verbs", "verbs::tests::"))),
        test("sets", 180, include_str!("scripts/sets.sh")),
        test("nodes", 120, include_str!("scripts/nodes.sh")),
        test("killed", 120, include_str!("scripts/killed.sh")),
        test("evicted", 180, include_str!("scripts/evicted.sh")),
        test("gone", 60, include_str!("scripts/gone.sh")),
        test("stalls", 60, include_str!("scripts/stalls.sh")),
        test(MEASURE, 400, include_str!("scripts/measure.sh")),
    ];
    if in_machine {
        tests.push(test("input", 120, include_str!("scripts/input.sh")));
    }
    tests
}

/// What takes minutes, and runs only if it is asked for by name: 10,000 connections that fail take 12 to 40 ms each on an
/// emulated processor.
pub(super) fn long() -> Vec<Test> {
    vec![test("connections", 900, &library(TESTS, "connections_that_fail", "leave_nothing_behind"))]
}

/// So many of them show a leak, too.
fn few_connections(command: &str) -> String {
    format!("export FARFIELD_CONNECTIONS=1000\n{command}")
}

/// A device that is up and has atomics.
const DEVICE: &str = "
ibv_devinfo -v -d $RDMA_DEVICE | grep -q 'state:.*PORT_ACTIVE' || { echo 'the port is not active'; exit 1; }
ibv_devinfo -v -d $RDMA_DEVICE | grep -Eq 'atomic_cap:.*ATOMIC_(HCA|GLOB)' || { echo 'no atomics'; exit 1; }
farfield devices
farfield devices --format json | grep -q $RDMA_ADDRESS
";

/// Two machines on a wire: a memory node in one, a compute node in the other, until the first loses its power.
pub(super) fn pair() -> Scenario {
    let service = format!("{PRELUDE}\n{}", include_str!("scripts/pair_service.sh"));
    let tests = vec![
        test("pair-sets", 240, include_str!("scripts/pair_sets.sh")),
        test("pair-power-off", 90, include_str!("scripts/pair_off.sh")),
    ];
    Scenario {
        name: "pair",
        guests: vec![
            Guest {
                name: "server",
                address: "10.0.0.1",
                network: Network::Wire,
                role: Role::Service(service),
            },
            Guest { name: "client", address: "10.0.0.2", network: Network::Wire, role: Role::Tests(tests) },
        ],
        programs: Vec::new(),
    }
}

/// A script of the user's.
pub(super) fn script(path: &Path, limit: Duration) -> Result<Test, String> {
    Ok(Test { name: "script".to_owned(), command: crate::workspace::read(path)?, limit })
}

/// Puts each test `times` times into the list, the second as `NAME.2` and so on, and `busy` processes beside each that compute
/// until it has ended. The rounds follow each other, so a device that one test has taken away is missing in the next round.
pub(super) fn repeat(tests: &mut Vec<Test>, times: u32, busy: u32) {
    let round = std::mem::take(tests);
    for number in 1..=times {
        tests.extend(round.iter().cloned().map(|mut test| {
            if number > 1 {
                test.name = format!("{}.{number}", test.name);
            }
            for _ in 0..busy {
                test.command = format!("{BUSY}{}", test.command);
            }
            test
        }));
    }
}

/// A process that computes until the test has ended, however it ends.
const BUSY: &str = "(while :; do :; done) & busy=\"$busy $!\"; trap 'kill $busy' EXIT\n";

/// Tests on one machine, with a device on nothing.
pub(super) fn alone(tests: Vec<Test>, programs: Vec<PathBuf>) -> Scenario {
    let guest =
        Guest { name: "alone", address: "10.0.0.1", network: Network::Nowhere, role: Role::Tests(tests) };
    Scenario { name: "single", guests: vec![guest], programs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_repeated_under_other_names_and_beside_what_computes() {
        let mut tests = vec![test("one", 1, "true"), test("two", 1, "true")];
        repeat(&mut tests, 2, 2);
        let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["one", "two", "one.2", "two.2"]);
        assert_eq!(tests[3].command.matches("while :").count(), 2);
        assert!(tests[3].command.ends_with("true"));
    }

    /// The shell itself says whether the processes beside a test end with it.
    #[test]
    fn what_computes_beside_a_test_ends_with_it() {
        let mut tests = vec![test("one", 1, "echo $busy; exit 3")];
        repeat(&mut tests, 1, 2);
        let ran = std::process::Command::new("sh").args(["-ec", &tests[0].command]).output().unwrap();
        assert_eq!(ran.status.code(), Some(3));
        let said = String::from_utf8(ran.stdout).unwrap();
        let processes: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(processes.len(), 2);
        for process in processes {
            // One that has been told to end may take a moment.
            let is_there = || {
                let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                !state.is_empty() && !state.contains(") Z ")
            };
            while is_there() {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn names_are_words_that_occur_once() {
        let pair = pair();
        let tests = pair.guests.iter().flat_map(|guest| guest.tests().iter().cloned());
        let mut names: Vec<String> =
            single(true).into_iter().chain(long()).chain(tests).map(|test| test.name).collect();
        assert!(names.iter().all(|name| !name.contains(char::is_whitespace)));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
