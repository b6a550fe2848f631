//! `cargo xtask rdma-test`: tests over RDMA, also on machines without a device.
//!
//! The tests run on a device of this host, in hardware or software (rxe), or else in a virtual machine with a software device. The machine
//! is built from packages of the host's distribution, which are downloaded once and unpacked, not installed:
//!
//! ```text
//! packages ─► image (archive, modules) ─► machine ─► console ─► scenario ─► report
//! downloads    the guests' file system     qemu       marks      deadlines    ok or
//!                                                                             FAILED
//! ```
//!
//! Every run ends: each test has a time limit, which the guest enforces, and the host after it. So has the whole run. To add a test, see
//! `suite`.

mod archive;
mod bounded;
mod console;
mod figures;
mod guest;
mod host;
mod image;
mod machine;
mod modules;
mod packages;
mod programs;
mod report;
mod scenario;
mod suite;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::Value;

use self::guest::{Scenario, Test};
use self::host::DeviceKind;
use self::machine::Acceleration;
pub(crate) use self::programs::{FEATURES, PACKAGES, TARGET};
use self::report::Report;
use self::scenario::{Failure, Settings};

/// Options of `cargo xtask rdma-test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Machine to run on
    #[arg(long = "where", value_enum, default_value_t = Location::Auto)]
    location: Location,
    /// Only the tests whose names begin with PREFIX; `connections` takes minutes, and runs only if it is named
    #[arg(long, value_name = "PREFIX", conflicts_with = "script")]
    only: Option<String>,
    /// Run this shell script instead of the tests, in the same environment
    #[arg(long, value_name = "PATH")]
    script: Option<PathBuf>,
    /// Number of runs of each test in one boot, for rare failures
    #[arg(long, default_value_t = 1, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Processes that compute during each test, for failures that need a busy machine
    #[arg(long, default_value_t = 0, value_name = "PROCESSES", value_parser = clap::value_parser!(u32).range(0..=64))]
    busy: u32,
    /// Time limit of all tests, in seconds, once their programs are built
    #[arg(long, default_value_t = LIMIT_S, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    limit: u64,
    /// Acceleration of the virtual machine; by default KVM if it works
    #[arg(long, value_enum)]
    accel: Option<Acceleration>,
    /// Without the tests whose times are figures, and those of what other tests check, too
    #[arg(long)]
    short: bool,
    /// Download the virtual machine's packages again
    #[arg(long)]
    refresh: bool,
    /// Show the tests' output and the machine's console
    #[arg(long)]
    verbose: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Options {
    /// All tests, wherever they can run.
    pub(crate) fn all() -> Self {
        Self {
            location: Location::Auto,
            only: None,
            script: None,
            repeat: 1,
            busy: 0,
            limit: LIMIT_S,
            accel: None,
            short: false,
            refresh: false,
            verbose: false,
            format: Format::Json,
        }
    }

    /// The tests that every change must pass.
    pub(crate) fn checks() -> Self {
        Self { short: true, ..Self::all() }
    }
}

/// Default time limit of all tests, in seconds: without KVM, on two cores, they take 500 to 900.
const LIMIT_S: u64 = 1800;

/// Where tests run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Location {
    /// On a device of this host, hardware first; without one, in a virtual machine
    Auto,
    /// On a device of this host
    Host,
    /// In a virtual machine
    Vm,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for each test and each figure
    Text,
    /// The figures as one JSON object on stdout; the lines go to stderr
    Json,
}

/// Runs the tests and prints their results. Fails if a count of instructions exceeds its recorded value.
pub(crate) fn run(options: &Options, recorded: &[(&str, f64)]) -> Result<(), String> {
    let end = || Instant::now() + Duration::from_secs(options.limit);
    let prefix = options.only.as_deref().unwrap_or_default();
    let device = if options.location == Location::Vm { None } else { host::device() };
    let mut single = match &options.script {
        Some(path) => vec![suite::script(path, Duration::from_secs(options.limit))?],
        None if prefix.is_empty() => suite::single(device.is_none()),
        None => suite::single(device.is_none()).into_iter().chain(suite::long()).collect(),
    };
    let programs = programs::build()?;
    let is_left_out = |name: &str| options.short && suite::LONG.contains(&name);
    single.retain(|test| test.name.starts_with(prefix) && !is_left_out(&test.name));
    suite::repeat(&mut single, options.repeat, options.busy);
    let reports = match device {
        Some(device) => {
            require_tests(&single, prefix)?;
            require(host::TOOLS)?;
            let kind = match device.kind {
                DeviceKind::Hardware => "hardware",
                DeviceKind::Software => "software",
            };
            eprintln!("on {} of this host ({kind}, {})", device.name, device.address);
            let reports = host::run(&device, &single, &programs, options.verbose, end())?;
            print(options, &reports);
            reports
        }
        None if options.location == Location::Host => {
            return Err("this host has no RDMA device with an active port and an IPv4 address".to_owned());
        }
        None => {
            let mut pair = suite::pair();
            pair.programs.clone_from(&programs);
            let whole = options.script.is_none();
            pair.guests.iter_mut().for_each(|guest| {
                guest.keep(|test| whole && test.name.starts_with(prefix) && !is_left_out(&test.name));
            });
            let scenarios = [suite::alone(single, programs), pair];
            let scenarios: Vec<&Scenario> = scenarios.iter().filter(|one| one.tests().count() > 0).collect();
            require_tests(&scenarios, prefix)?;
            in_machines(&scenarios, options, end)?
        }
    };
    conclude(&reports, recorded, options)
}

/// Runs scenarios in virtual machines.
fn in_machines(
    scenarios: &[&Scenario],
    options: &Options,
    end: impl FnOnce() -> Instant,
) -> Result<Vec<Report>, String> {
    require(machine::TOOLS)?;
    require(packages::TOOLS)?;
    let unpacked = packages::unpacked(options.refresh)?;
    let end = end();
    let kernel = packages::kernel_version(&unpacked);
    let mut acceleration = options.accel.unwrap_or_else(Acceleration::best);
    let mut reports = Vec::new();
    for scenario in scenarios {
        let ended = loop {
            let settings = Settings { unpacked: &unpacked, acceleration, verbose: options.verbose, end };
            match scenario::run(scenario, &settings) {
                Ok(ended) => break ended,
                Err(Failure::Boot(why)) if options.accel.is_none() && acceleration == Acceleration::Kvm => {
                    eprintln!("without KVM: with it, {why}");
                    acceleration = Acceleration::Tcg;
                }
                Err(Failure::Boot(why) | Failure::Other(why)) => return Err(why),
            }
        };
        let machines = scenario.guests.len();
        eprintln!(
            "{}: {machines} virtual machine(s), {acceleration:?}, kernel {kernel}, up after {:.1} s",
            scenario.name,
            ended.boot.as_secs_f64()
        );
        print(options, &ended.reports);
        reports.extend(ended.reports);
    }
    Ok(reports)
}

fn print(options: &Options, reports: &[Report]) {
    for report in reports {
        match options.format {
            Format::Text => println!("{}", report.text()),
            Format::Json => eprintln!("{}", report.text()),
        }
    }
}

/// Prints the figures; returns an error if a test failed.
fn conclude(reports: &[Report], recorded: &[(&str, f64)], options: &Options) -> Result<(), String> {
    let figures = figures::figures(reports, recorded)?;
    match options.format {
        Format::Text => figures.iter().for_each(|(name, value)| println!("{name} {value}")),
        Format::Json => println!("{}", Value::Object(figures)),
    }
    let failed: Vec<&str> =
        reports.iter().filter(|report| !report.passed()).map(|report| report.name.as_str()).collect();
    if failed.is_empty() {
        eprintln!("{} tests passed", reports.len());
        Ok(())
    } else {
        Err(format!("{} of {} tests failed: {}", failed.len(), reports.len(), failed.join(", ")))
    }
}

fn require_tests<T>(chosen: &[T], prefix: &str) -> Result<(), String> {
    if chosen.is_empty() { Err(format!("--only {prefix}: no test has this prefix")) } else { Ok(()) }
}

/// Returns an error that names missing tools and their packages.
fn require(tools: &[(&str, &str)]) -> Result<(), String> {
    let missing: Vec<_> = tools.iter().filter(|(program, _)| !bounded::is_installed(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    Err(format!(
        "missing here: {}; apt-get install --yes --no-install-recommends {}",
        programs.join(", "),
        packages.join(" ")
    ))
}

impl Scenario {
    fn tests(&self) -> impl Iterator<Item = &Test> {
        self.guests.iter().flat_map(|guest| guest.tests())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tools_are_named_with_their_packages() {
        assert_eq!(require(&[("cargo", "cargo")]), Ok(()));
        let error = require(&[("no-such-tool", "its-package"), ("cargo", "cargo")]).unwrap_err();
        assert_eq!(
            error,
            "missing here: no-such-tool; apt-get install --yes --no-install-recommends its-package"
        );
    }

    #[test]
    fn a_prefix_of_no_test_is_named() {
        assert_eq!(
            require_tests::<Test>(&[], "moon"),
            Err("--only moon: no test has this prefix".to_owned())
        );
    }
}
