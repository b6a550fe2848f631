//! What is tested: each test a command, a name and a limit.
//!
//! A test is a script for the shell, so that it can start a server in the background and a client after it. It fails with
//! the first command that fails. Where it runs, in a guest or on the host, it finds these variables:
//!
//! | variable | what |
//! |---|---|
//! | `RDMA_DEVICE` | the device to use |
//! | `RDMA_GID_INDEX` | the index of the device's global identifier that belongs to the address |
//! | `RDMA_ADDRESS` | the device's own address |
//!
//! and the functions of [`PRELUDE`]. Programs that a run brings along are on the path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::guest::{Guest, Role};

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
/// - `await_port` waits until somebody listens on perftest's port, for ten seconds at most.
/// - `perftest PROGRAM FLAGS` runs a program of perftest against itself; `perftest_client PROGRAM FLAGS ADDRESS` against
///   one that runs elsewhere and may not be ready.
/// - `tell WORDS` asks the host for something: `tell off GUEST` powers another guest off.
pub(super) const PRELUDE: &str = include_str!("prelude.sh");

/// The names of the tests whose output has figures.
pub(super) const READ_LATENCY: &str = "read-latency";
pub(super) const WRITE_LATENCY: &str = "write-latency";
pub(super) const ATOMIC_LATENCY: &str = "atomic-latency";
pub(super) const READ_RATE: &str = "read-rate";

fn test(name: &str, limit_s: u64, command: &str) -> Test {
    Test { name: name.to_owned(), command: command.to_owned(), limit: Duration::from_secs(limit_s) }
}

/// What runs on any one device.
pub(super) fn single() -> Vec<Test> {
    vec![
        test("device", 20, DEVICE),
        test(READ_LATENCY, 60, "perftest ib_read_lat -s 8 -n 1000"),
        test(WRITE_LATENCY, 60, "perftest ib_write_lat -s 8 -n 1000"),
        test(ATOMIC_LATENCY, 60, "perftest ib_atomic_lat -n 1000"),
        test(READ_RATE, 60, "perftest ib_read_bw -s 64 -n 5000"),
    ]
}

/// A device that is up and has atomics.
const DEVICE: &str = "
ibv_devinfo -v -d $RDMA_DEVICE
ibv_devinfo -v -d $RDMA_DEVICE | grep -q 'state:.*PORT_ACTIVE' || { echo 'the port is not active'; exit 1; }
ibv_devinfo -v -d $RDMA_DEVICE | grep -Eq 'atomic_cap:.*ATOMIC_(HCA|GLOB)' || { echo 'no atomics'; exit 1; }
";

/// Two machines on a wire: reading from one to the other, then the other loses its power.
pub(super) fn pair() -> Scenario {
    let service = format!(
        "{PRELUDE}
        ib_read_lat $PERFTEST -s 8 -n 1000
        ib_read_bw $PERFTEST -R -s 64 --run_infinitely"
    );
    let tests = vec![
        test("pair-read-latency", 60, "perftest_client ib_read_lat -s 8 -n 1000 10.0.0.1"),
        test("pair-power-off", 90, POWER_OFF),
    ];
    Scenario {
        name: "pair",
        guests: vec![
            Guest { name: "server", address: "10.0.0.1", wire: true, role: Role::Service(service) },
            Guest { name: "client", address: "10.0.0.2", wire: true, role: Role::Tests(tests) },
        ],
        programs: Vec::new(),
    }
}

/// A client whose server vanishes must end with an error, not wait for ever.
const POWER_OFF: &str = "
perftest_client ib_read_bw -R --retry_count=2 -s 64 --run_infinitely 10.0.0.1 &
client=$!
sleep 5
kill -0 $client || { echo 'the client ended before the server did'; exit 1; }
tell off server
if wait $client; then echo 'the client did not notice'; exit 1; fi
exit 9
";

/// A script of the user's.
pub(super) fn script(path: &Path, limit: Duration) -> Result<Test, String> {
    Ok(Test { name: "script".to_owned(), command: crate::workspace::read(path)?, limit })
}

/// Tests on one machine, with a device on nothing.
pub(super) fn alone(tests: Vec<Test>, programs: Vec<PathBuf>) -> Scenario {
    let guest = Guest { name: "alone", address: "10.0.0.1", wire: false, role: Role::Tests(tests) };
    Scenario { name: "single", guests: vec![guest], programs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_that_occur_once() {
        let pair = pair();
        let tests = pair.guests.iter().flat_map(|guest| guest.tests().iter().cloned());
        let mut names: Vec<String> = single().into_iter().chain(tests).map(|test| test.name).collect();
        assert!(names.iter().all(|name| !name.contains(char::is_whitespace)));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
