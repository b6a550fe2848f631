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
//! and the functions of [`PRELUDE`]. The run's programs are on the path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::guest::{Guest, Network, PRELUDE, Role, Scenario, Test};
use super::programs::{TESTS, TESTS_DLOPEN};

/// The names of the tests whose output has figures: times and rates, of the maps too, and counts of instructions.
pub(super) const MEASURE: &str = "measure";
pub(super) const MAPS: &str = "measure-maps";
pub(super) const INSTRUCTIONS: &str = "instructions";
/// The tests of both sides on rdma-core that is loaded at run time, whose code is the same from the first call on; and those of TCP between two machines, beside `cargo xtask tcp-test`.
const TWO_SIDES_DLOPEN: &str = "two-sides-dlopen";
const PAIR_TCP: &str = "pair-tcp";
/// The tests that `--short` leaves out.
pub(super) const LONG: [&str; 4] = [MEASURE, MAPS, TWO_SIDES_DLOPEN, PAIR_TCP];

fn test(name: &str, limit_s: u64, command: &str) -> Test {
    Test { name: name.to_owned(), command: command.to_owned(), limit: Duration::from_secs(limit_s) }
}

/// The fabrics' tests that `filter` selects. The program succeeds if a filter selects no test. So a test whose name contains `needed` must
/// have passed.
fn library(program: &str, filter: &str, needed: &str) -> String {
    format!(
        "log=$(mktemp)\n{program} {filter} --test-threads 1 >\"$log\" 2>&1 || {{ cat \"$log\"; exit 1; }}\ncat \"$log\"\n\
         grep -q '^test .*{needed}.* ok$' \"$log\" || {{ echo 'no test of this name passed: {needed}'; exit 1; }}\n"
    )
}

/// The tests for one device. The last one removes the device, so it runs only in a virtual machine.
pub(super) fn single(in_machine: bool) -> Vec<Test> {
    let mut tests = vec![
        test("device", 60, DEVICE),
        test("conformance", 120, &library(TESTS, "rdma_conforms", "rdma_conforms")),
        test("two-sides", 120, &few_connections(&library(TESTS, "verbs", "verbs::tests::"))),
        test("conformance-dlopen", 120, &library(TESTS_DLOPEN, "rdma_conforms", "rdma_conforms")),
        test(TWO_SIDES_DLOPEN, 120, &few_connections(&library(TESTS_DLOPEN, "verbs", "verbs::tests::"))),
        test("sets", 180, include_str!("scripts/sets.sh")),
        test("nodes", 120, include_str!("scripts/nodes.sh")),
        test("delegation", 240, include_str!("scripts/delegation.sh")),
        test("killed", 120, include_str!("scripts/killed.sh")),
        test("evicted", 180, include_str!("scripts/evicted.sh")),
        test("gone", 120, include_str!("scripts/gone.sh")),
        test("stalls", 120, include_str!("scripts/stalls.sh")),
        test(MEASURE, 400, include_str!("scripts/measure.sh")),
        test(MAPS, 180, include_str!("scripts/maps.sh")),
    ];
    if in_machine {
        // A device of another machine may take time, so that polls that find nothing are counted.
        tests.push(test(INSTRUCTIONS, 300, include_str!("scripts/instructions.sh")));
        tests.push(test("input", 120, include_str!("scripts/input.sh")));
    }
    tests
}

/// The tests that take minutes, and run only if they are named: each of 10,000 failing connections takes 12 to 40 ms on an emulated
/// processor.
pub(super) fn long() -> Vec<Test> {
    vec![test("connections", 900, &library(TESTS, "failed_connections", "leave_no_object_behind"))]
}

/// Lets the test of failing connections make 1,000, which suffices to show a leak.
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

/// Two machines on a wire: memory nodes in one, a compute node in the other, until the first loses its power. TCP's packets are delayed, and some
/// are lost.
pub(super) fn pair() -> Scenario {
    let service = format!("{PRELUDE}\n{}", include_str!("scripts/pair_service.sh"));
    let tests = vec![
        test("pair-sets", 480, include_str!("scripts/pair_sets.sh")),
        test(PAIR_TCP, 480, include_str!("scripts/pair_tcp.sh")),
        test("pair-power-off", 180, include_str!("scripts/pair_off.sh")),
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

/// Repeats the list of tests `times` times, the second time as `NAME.2` and so on. Beside each test `busy` processes compute until it has
/// ended. A device that a test has removed is missing in the next round.
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

/// Tests on one machine, whose device is connected to no other.
pub(super) fn alone(tests: Vec<Test>, programs: Vec<PathBuf>) -> Scenario {
    let guest =
        Guest { name: "alone", address: "10.0.0.1", network: Network::Unconnected, role: Role::Tests(tests) };
    Scenario { name: "single", guests: vec![guest], programs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_repeated_under_other_names_beside_computing_processes() {
        let mut tests = vec![test("one", 1, "true"), test("two", 1, "true")];
        repeat(&mut tests, 2, 2);
        let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["one", "two", "one.2", "two.2"]);
        assert_eq!(tests[3].command.matches("while :").count(), 2);
        assert!(tests[3].command.ends_with("true"));
    }

    /// Runs the shell with a test, and waits for the end of the computing processes.
    #[test]
    fn computing_processes_end_with_their_test() {
        let mut tests = vec![test("one", 1, "echo $busy; exit 3")];
        repeat(&mut tests, 1, 2);
        let ran = std::process::Command::new("sh").args(["-ec", &tests[0].command]).output().unwrap();
        assert_eq!(ran.status.code(), Some(3));
        let printed = String::from_utf8(ran.stdout).unwrap();
        let processes: Vec<&str> = printed.split_whitespace().collect();
        assert_eq!(processes.len(), 2);
        for process in processes {
            // A process may end some time after its signal.
            let is_alive = || {
                let state = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                !state.is_empty() && !state.contains(") Z ")
            };
            while is_alive() {
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
