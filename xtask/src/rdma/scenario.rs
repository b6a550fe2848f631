//! Runs a scenario: powers machines on, watches them, and powers them off.
//!
//! Every wait is bounded: each machine and the whole run have a deadline, and a machine that misses it is powered off.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::console::Event;
use super::guest::{Guest, Network, Role, Scenario};
use super::image;
use super::machine::{Acceleration, Machine, Plan};
use super::packages;
use super::report::{Outcome, Report, outcome};

/// Timeout for booting.
const BOOT: Duration = Duration::from_secs(120);
/// KVM boots in seconds. If KVM is present but does not work, the machine prints no line.
const BOOT_BY_KVM: Duration = Duration::from_secs(20);
/// Timeout between two tests.
const PAUSE: Duration = Duration::from_secs(20);

/// The host enforces a test's limit later than the guest, whose report has more information.
const GRACE: Duration = Duration::from_secs(15);

/// The result of a scenario.
pub(super) struct Ended {
    pub(super) reports: Vec<Report>,
    /// Time until the last machine was ready.
    pub(super) boot: Duration,
}

/// Why a scenario has no reports.
pub(super) enum Failure {
    /// A machine did not boot; another acceleration may work.
    Boot(String),
    Other(String),
}

/// Settings of a run.
pub(super) struct Settings<'a> {
    pub(super) unpacked: &'a Path,
    pub(super) acceleration: Acceleration,
    pub(super) verbose: bool,
    /// The deadline of the whole run.
    pub(super) end: Instant,
}

/// Runs a scenario.
pub(super) fn run(scenario: &Scenario, settings: &Settings<'_>) -> Result<Ended, Failure> {
    // In the system's folder for temporary files, since the path of a socket must be short.
    let folder = tempfile::Builder::new().prefix("farfield-rdma-").tempdir();
    let folder = folder.map_err(|error| Failure::Other(format!("temporary folder: {error}")))?;
    let archive = folder.path().join("initramfs");
    image::write(scenario, settings.unpacked, &archive).map_err(Failure::Other)?;
    let (kernel, _) = packages::kernel(settings.unpacked).map_err(Failure::Other)?;
    let mark = mark();
    let plan = Plan {
        kernel: &kernel,
        archive: &archive,
        folder: folder.path(),
        acceleration: settings.acceleration,
        mark: &mark,
        verbose: settings.verbose,
    };
    let (sender, events) = mpsc::channel();
    let started = Instant::now();
    let mut watched = Vec::new();
    for (number, guest) in scenario.guests.iter().enumerate() {
        let peer = match guest.network {
            Network::Wire => scenario.guests.iter().find(|peer| peer.name != guest.name),
            Network::Unconnected => None,
        };
        let machine = Machine::start(&plan, guest, peer, number, sender.clone()).map_err(Failure::Other)?;
        watched.push(Watched::new(guest, machine, settings.acceleration));
    }
    let mut boot = Duration::ZERO;
    while watched.iter().any(Watched::is_awaited) {
        let now = Instant::now();
        let next = watched
            .iter()
            .filter_map(|one| one.state.deadline())
            .min()
            .unwrap_or(settings.end)
            .min(settings.end);
        match events.recv_timeout(next.saturating_duration_since(now)) {
            Ok((number, event)) => {
                if settings.verbose {
                    show(watched[number].guest, &event);
                }
                if let Event::Request(words) = &event {
                    execute(words, &mut watched).map_err(Failure::Other)?;
                }
                if event == Event::Ready {
                    boot = started.elapsed();
                }
                watched[number].take(event);
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                for one in &mut watched {
                    if now >= settings.end {
                        one.abort("the run has exceeded its time limit");
                    } else if one.state.deadline().is_some_and(|deadline| deadline <= now) {
                        one.expire();
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Other("all consoles have closed".to_owned()));
            }
        }
        if let Some(one) = watched.iter().find(|one| matches!(one.state, State::BootFailed)) {
            return Err(Failure::Boot(one.boot_failure()));
        }
    }
    let mut reports: Vec<Report> =
        watched.iter_mut().flat_map(|one| std::mem::take(&mut one.reports)).collect();
    // The cause of a failure may be in a service's output.
    let printed: String = watched.iter().filter(|one| one.is_service()).map(Watched::service_text).collect();
    if let Some(failed) = reports.iter_mut().find(|report| !report.passed()) {
        failed.printed.push_str(&printed);
    }
    Ok(Ended { reports, boot })
}

/// A machine and its reports. `M` is a [`Machine`], which is powered off when it is dropped.
struct Watched<'a, M> {
    guest: &'a Guest,
    state: State<M>,
    /// The output since the last test began; of a service, all output.
    printed: String,
    reports: Vec<Report>,
}

/// The state of a machine, with its deadline.
enum State<M> {
    Booting {
        machine: M,
        until: Instant,
    },
    /// Between tests. Only a service has no deadline.
    Ready {
        machine: M,
        until: Option<Instant>,
    },
    /// In the test of this number.
    Testing {
        machine: M,
        test: usize,
        since: Instant,
        until: Instant,
    },
    /// Off. Each of its tests has a report.
    Off,
    /// Off before it had booted.
    BootFailed,
}

impl<M> State<M> {
    /// The time by which the next mark must arrive.
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Booting { until, .. } | Self::Testing { until, .. } => Some(*until),
            Self::Ready { until, .. } => *until,
            Self::Off | Self::BootFailed => None,
        }
    }
}

impl<'a, M> Watched<'a, M> {
    fn new(guest: &'a Guest, machine: M, acceleration: Acceleration) -> Self {
        let boot = if acceleration == Acceleration::Kvm { BOOT_BY_KVM } else { BOOT };
        let state = State::Booting { machine, until: Instant::now() + boot };
        Self { guest, state, printed: String::new(), reports: vec![] }
    }

    fn is_service(&self) -> bool {
        matches!(self.guest.role, Role::Service(_))
    }

    /// Returns whether the run must wait for it.
    fn is_awaited(&self) -> bool {
        match self.state {
            State::Booting { .. } | State::BootFailed => true,
            State::Ready { .. } | State::Testing { .. } | State::Off => {
                self.reports.len() < self.guest.tests().len()
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Ready => self.enter(|machine, guest| {
                let is_service = matches!(guest.role, Role::Service(_));
                State::Ready { machine, until: (!is_service).then(|| Instant::now() + PAUSE) }
            }),
            Event::Begin { test } => {
                self.enter(|machine, guest| {
                    let limit = guest.tests().get(test).map_or(Duration::ZERO, |test| test.limit);
                    let since = Instant::now();
                    State::Testing { machine, test, since, until: since + limit + GRACE }
                });
                self.printed.clear();
            }
            Event::End { test, code, ms } => {
                let took = Duration::from_millis(ms);
                if let Some(ended) = self.guest.tests().get(test) {
                    self.report(outcome(code, took, ended.limit), took);
                }
            }
            Event::Text(line) => {
                self.printed.push_str(&line);
                self.printed.push('\n');
            }
            Event::Request(_) => {}
            Event::Broken(why) => self.abort(&why),
            Event::Done => self.abort("the machine ended before all tests had run"),
            Event::Closed => self.abort("the machine powered itself off"),
        }
    }

    /// Changes the state of a machine that is on.
    fn enter(&mut self, next: impl FnOnce(M, &Guest) -> State<M>) {
        self.state = match std::mem::replace(&mut self.state, State::Off) {
            State::Booting { machine, .. }
            | State::Ready { machine, .. }
            | State::Testing { machine, .. } => next(machine, self.guest),
            off @ (State::Off | State::BootFailed) => off,
        };
    }

    /// Ends the current test.
    fn report(&mut self, outcome: Outcome, took: Duration) {
        if let State::Testing { test, .. } = self.state {
            let name = self.guest.tests().get(test).map(|test| test.name.clone()).unwrap_or_default();
            self.reports.push(Report { name, outcome, took, printed: std::mem::take(&mut self.printed) });
            self.enter(|machine, _| State::Ready { machine, until: Some(Instant::now() + PAUSE) });
        }
    }

    /// Handles a missed deadline.
    fn expire(&mut self) {
        if let State::Testing { since, .. } = self.state {
            self.report(Outcome::TimedOut, since.elapsed());
            self.abort("the test before it hangs");
        } else {
            self.abort("the machine does not answer");
        }
    }

    /// Powers the machine off and aborts the remaining tests, for this reason.
    fn abort(&mut self, why: &str) {
        if let State::Testing { since, .. } = self.state {
            self.report(Outcome::Aborted(why.to_owned()), since.elapsed());
        }
        match self.state {
            State::Booting { .. } => {
                self.state = State::BootFailed;
                self.printed.push_str(why);
            }
            State::Ready { .. } | State::Testing { .. } => {
                self.state = State::Off;
                let left = &self.guest.tests()[self.reports.len().min(self.guest.tests().len())..];
                let why = format!("not run: {why}");
                self.reports.extend(left.iter().map(|test| Report::aborted(&test.name, &why)));
            }
            State::Off | State::BootFailed => {}
        }
    }

    fn boot_failure(&self) -> String {
        let last = self.printed.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map_or("no output", str::trim);
        format!("the machine {} did not boot: {last} (--verbose shows all output)", self.guest.name)
    }

    fn service_text(&self) -> String {
        format!("output of the machine {}:\n{}", self.guest.name, self.printed)
    }
}

/// Executes a test's request.
fn execute<M>(words: &str, watched: &mut [Watched<'_, M>]) -> Result<(), String> {
    let name = words.strip_prefix("off ").map(str::trim);
    let one = watched.iter_mut().find(|one| Some(one.guest.name) == name);
    let one = one.ok_or_else(|| format!("unknown request of a test: {words}"))?;
    one.abort("it was powered off");
    Ok(())
}

fn show(guest: &Guest, event: &Event) {
    match event {
        Event::Text(line) => eprintln!("{}| {line}", guest.name),
        event => eprintln!("{}> {event:?}", guest.name),
    }
}

/// A word for marks that programs do not know: it depends on the time and the process.
fn mark() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:08x}{:x}", since.subsec_nanos(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::guest::Test;

    fn guest(tests: &[&str]) -> Guest {
        let test = |name: &&str| Test {
            name: (*name).to_owned(),
            command: String::new(),
            limit: Duration::from_secs(60),
        };
        let role = Role::Tests(tests.iter().map(test).collect());
        Guest { name: "alone", address: "10.0.0.1", network: Network::Unconnected, role }
    }

    fn outcomes(watched: &Watched<'_, ()>) -> Vec<(String, Outcome)> {
        watched.reports.iter().map(|report| (report.name.clone(), report.outcome.clone())).collect()
    }

    #[test]
    fn tests_are_reported_in_turn() {
        let guest = guest(&["one", "two"]);
        let mut watched = Watched::new(&guest, (), Acceleration::Tcg);
        for event in [
            Event::Text("booting".to_owned()),
            Event::Ready,
            Event::Begin { test: 0 },
            Event::Text("printed".to_owned()),
            Event::End { test: 0, code: 0, ms: 7 },
            Event::Begin { test: 1 },
        ] {
            assert!(watched.is_awaited());
            assert!(watched.state.deadline().is_some());
            watched.take(event);
        }
        watched.take(Event::End { test: 1, code: 3, ms: 7 });
        assert!(!watched.is_awaited());
        assert_eq!(
            outcomes(&watched),
            [("one".to_owned(), Outcome::Passed), ("two".to_owned(), Outcome::Failed(3))]
        );
        assert_eq!(watched.reports[0].printed, "printed\n");
    }

    #[test]
    fn a_machine_that_powers_off_aborts_its_tests() {
        let guest = guest(&["one", "two"]);
        let mut watched = Watched::new(&guest, (), Acceleration::Tcg);
        watched.take(Event::Ready);
        watched.take(Event::Begin { test: 0 });
        watched.take(Event::Closed);
        let why = "the machine powered itself off";
        let expected = [
            ("one".to_owned(), Outcome::Aborted(why.to_owned())),
            ("two".to_owned(), Outcome::Aborted(format!("not run: {why}"))),
        ];
        assert_eq!(outcomes(&watched), expected);
        assert!(!watched.is_awaited() && watched.state.deadline().is_none());
        // Events that were in flight when it went off are ignored.
        for event in
            [Event::Ready, Event::Begin { test: 1 }, Event::End { test: 1, code: 0, ms: 1 }, Event::Done]
        {
            watched.take(event);
        }
        assert_eq!(outcomes(&watched), expected);
    }

    #[test]
    fn a_test_that_hangs_times_out_and_the_next_is_not_run() {
        let guest = guest(&["one", "two"]);
        let mut watched = Watched::new(&guest, (), Acceleration::Tcg);
        watched.take(Event::Ready);
        watched.take(Event::Begin { test: 0 });
        watched.expire();
        let expected = [
            ("one".to_owned(), Outcome::TimedOut),
            ("two".to_owned(), Outcome::Aborted("not run: the test before it hangs".to_owned())),
        ];
        assert_eq!(outcomes(&watched), expected);
    }

    #[test]
    fn a_machine_that_does_not_boot_reports_the_reason() {
        let guest = guest(&["one"]);
        let mut watched = Watched::new(&guest, (), Acceleration::Kvm);
        watched.take(Event::Broken("no device".to_owned()));
        assert!(matches!(watched.state, State::BootFailed));
        assert!(watched.boot_failure().contains("no device") && watched.reports.is_empty());
    }

    #[test]
    fn a_service_is_not_awaited_once_it_is_ready() {
        let role = Role::Service(String::new());
        let guest = Guest { name: "server", address: "10.0.0.1", network: Network::Wire, role };
        let mut watched = Watched::new(&guest, (), Acceleration::Tcg);
        assert!(watched.is_awaited());
        watched.take(Event::Ready);
        assert!(!watched.is_awaited() && watched.state.deadline().is_none());
    }
}
