//! `contest`: the benchmark of a contest of key-value engines, on the engine of `farfield-kv`, and on Redis and memcached.
//!
//! The contest gave an engine 8 GiB of local memory, 32 GiB of far memory, and 16 threads, each with 12 million records. Its phases, of which the last three are measured in the same run:
//!
//! | phase | requests at scale 1, of all 16 threads |
//! |---|---|
//! | `write` | 192 million writes: 70 % of the values have 80 to 128 bytes, 20 % 129 to 256, 10 % 257 to 1,024 |
//! | `delete` | 160 million deletions, in random order |
//! | `rewrite` | the same records again, with 80 to 256 bytes |
//! | `hot` | 64 million calls: three of four read, the others write 80 to 128 bytes; three of four reads are of hot records (Zipf) |
//!
//! In the first three phases one read for 16 changes verifies a record of the same worker; all values that are read are checked as a whole, and after the last phase those of all records.
//! Before, all phases run with some thousand records, encrypted where the engine can, and are not measured.
//!
//! Held equal: the requests, their order in each worker, and the checks; the threads of the client. A worker of the far engine is a task; 16 tasks of a thread are 16 requests that a thread sends to a server at once, through
//! its one connection on a Unix socket, by an ordinary client crate, without persistence. A server has threads of its own besides: memcached as many as the client, Redis one. Both have allocators of their own, and so has this program.
//! Different: an engine is in the process that uses it, a server is not; and the far engine's local memory is limited, by default to a quarter of the data. A server has the next requests before it has answered the first; the far engine is told the keys of the next two, by hints. On `local:` far memory is as fast as local memory: so its figures are what the
//! engine itself costs; on `sim:` round trips take their time, and the engine's own work 1 us a request, as on `local:`.
//!
//! | figure | meaning |
//! |---|---|
//! | `contest.<phase>.ratio_to_redis`, `…_to_memcached` | the far engine's time, over the server's; with `--rounds` the median |
//! | `contest.amplification.<phase>` | the far engine's far memory, over the bytes of keys and values, at the end of the phase |
//! | `contest.budget.over_bytes` | the bytes of local memory that the engine has counted beyond its budget |
//!
//! With `--encrypt` their names begin with `contest.encrypted.`.

#[cfg(test)]
mod eviction;
mod far;
mod memcached;
mod outcome;
mod plot;
mod redis;
mod servers;
mod workload;

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, ValueEnum, value_parser};
use farfield::parse_size;
use farfield_benches::rounds::{median, ratio};
use farfield_examples::program::{Format, Report, main as program};
use farfield_kv::Options;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use far::Setting;
use outcome::Outcome;
use workload::{MEAN_BYTES, Phase, Plan};

/// Redis and memcached bring allocators of their own, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the benchmark of a contest of key-value engines, and verifies all values.
#[derive(Clone, Debug, Parser)]
#[command(name = "contest", version)]
struct Args {
    /// The engines, separated by commas; they run one after the other
    #[arg(long, value_enum, value_delimiter = ',', default_value = "far")]
    engine: Vec<Engine>,
    /// The phases to report; those before it are run, too
    #[arg(long, value_enum, default_value_t = Phases::All)]
    phase: Phases,
    /// The part of the contest's records and calls
    #[arg(long, default_value_t = 0.01, value_parser = scale)]
    scale: f64,
    /// The cluster's URL, of the far engine
    #[arg(long, default_value = "local:")]
    cluster: String,
    /// Threads that use the engine
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Tasks of each thread, or requests that it sends to a server at once
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u64).range(1..=1024))]
    tasks: u64,
    /// The far engine's local memory, for example 64MiB [default: a quarter of keys and values]
    #[arg(long, value_parser = parse_size)]
    local_memory: Option<u64>,
    /// Encrypt the records in far memory
    #[arg(long)]
    encrypt: bool,
    /// Runs of all engines; ratios are medians
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// The seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the times of the last round
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// The format of the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// The engines that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// farfield-kv
    Far,
    /// redis-server
    Redis,
    /// memcached
    Memcached,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Far => "far",
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }
}

/// The phases that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Phases {
    All,
    Write,
    Delete,
    Rewrite,
    Hot,
}

impl Phases {
    fn only(self) -> Option<Phase> {
        match self {
            Self::All => None,
            Self::Write => Some(Phase::Write),
            Self::Delete => Some(Phase::Delete),
            Self::Rewrite => Some(Phase::Rewrite),
            Self::Hot => Some(Phase::Hot),
        }
    }

    /// The phases that are run.
    fn run(self) -> &'static [Phase] {
        const ALL: [Phase; 4] = Phase::ALL;
        let last = self.only().and_then(|phase| ALL.iter().position(|other| *other == phase));
        last.map_or(&ALL, |last| ALL.split_at(last + 1).0)
    }

    fn reports(self, phase: Phase) -> bool {
        self.only().is_none_or(|only| only == phase)
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale @ 1e-7..=1.0) => Ok(scale),
        _ => Err("the scale is a number from 0.0000001 to 1".to_owned()),
    }
}

/// The scale at which engines are tested before they are measured.
const TEST_SCALE: f64 = 2e-5;
/// The least local memory: less is too little for the pages that two threads fill.
const LEAST_LOCAL_BYTES: u64 = 1 << 20;
/// Far memory, in bytes for each byte of keys and values. The engine needs less, and a limit that it reaches would make it slower.
const FAR_FACTOR: u64 = 2;
const KEY: [u8; 32] = [0x5a; 32];

impl Args {
    fn data_bytes(plan: &Plan) -> u64 {
        plan.all_records() * MEAN_BYTES
    }

    fn local_bytes(&self, plan: &Plan) -> u64 {
        let least = LEAST_LOCAL_BYTES + 128 * 1024 * self.threads;
        self.local_memory.unwrap_or_else(|| (Self::data_bytes(plan) / 4).max(least))
    }

    fn far_bytes(&self, plan: &Plan) -> u64 {
        FAR_FACTOR * Self::data_bytes(plan) + (1 + self.threads) * (1 << 20)
    }

    /// The cluster's URL, with enough memory if it has none of its own.
    fn url(&self, plan: &Plan) -> String {
        let url = &self.cluster;
        let is_in_process = url.starts_with("local:") || url.starts_with("sim:");
        if !is_in_process || url.contains("size=") {
            return url.clone();
        }
        let mebibytes = (self.far_bytes(plan) / 8 * 9).div_ceil(1 << 20) + 16;
        let separator = if url.ends_with(':') { "" } else { "," };
        format!("{url}{separator}size={mebibytes}MiB")
    }

    fn run(&self, engine: Engine, plan: &Plan, progress: &ProgressBar) -> Result<Outcome, String> {
        let (phases, threads, tasks) = (self.phase.run(), self.threads as usize, self.tasks as usize);
        match engine {
            Engine::Far => {
                let options =
                    Options::new(self.local_bytes(plan) as usize, self.far_bytes(plan)).with_key(KEY);
                let url = &self.url(plan);
                let is_encrypted = self.encrypt;
                let setting = Setting { url, threads, tasks, options, is_encrypted, phases, progress };
                far::run(&setting, plan).map_err(|error| error.to_string())
            }
            Engine::Redis => {
                Ok(servers::run::<redis::Redis>(&redis::start()?, (threads, tasks), phases, plan, progress))
            }
            Engine::Memcached => {
                let server = memcached::start(threads, Self::data_bytes(plan))?;
                Ok(servers::run::<memcached::Memcached>(&server, (threads, tasks), phases, plan, progress))
            }
        }
    }
}

/// Begins anew with an allocator that keeps what is freed, which only the environment can tell it to. It would give that back to the operating system after a tenth of a second, and take it again; jemalloc, in
/// Redis, waits ten seconds, and memcached gives nothing back.
fn keep_freed_memory() -> Result<(), String> {
    const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";
    if std::env::var_os(PURGE_DELAY).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut again = Command::new(program);
    Err(again.args(std::env::args_os().skip(1)).env(PURGE_DELAY, "-1").exec().to_string())
}

fn main() -> ExitCode {
    program(|args: Args| {
        keep_freed_memory()?;
        let format = if args.json { Format::Json } else { args.format };
        Ok((format, measure(&args)?))
    })
}

fn measure(args: &Args) -> Result<Vec<Report>, String> {
    // Opened before the run, so that a file that cannot be written is an error immediately.
    let plot = args.plot.as_ref().map(|path| {
        let name = path.display().to_string();
        std::fs::File::create(path)
            .map(|file| (name.clone(), file))
            .map_err(|error| format!("--plot {name}: {error}"))
    });
    let plot = plot.transpose()?;
    let workers = args.threads * args.tasks;
    let tested = Plan::new(TEST_SCALE, workers, args.seed);
    let test = Args { encrypt: true, local_memory: None, ..args.clone() };
    for engine in &args.engine {
        let outcome = test.run(*engine, &tested, &ProgressBar::hidden())?;
        if let Some(fault) = outcome.fault {
            return Err(format!("{}, with few records: {fault}", engine.name()));
        }
    }
    let plan = Plan::new(args.scale, workers, args.seed);
    let progress = progress(args, &plan);
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        // Each begins every second round.
        let mut engines = args.engine.clone();
        if round % 2 == 1 {
            engines.reverse();
        }
        let outcomes: Result<Vec<_>, String> =
            engines.into_iter().map(|engine| Ok((engine, args.run(engine, &plan, &progress)?))).collect();
        rounds.push(outcomes?);
    }
    progress.finish_and_clear();
    let figures = figures(args, &plan, &rounds);
    let Some(last) = rounds.pop() else { return Err("nothing was run".to_owned()) };
    if let Some((name, mut file)) = plot {
        let bars: Vec<_> =
            last.iter().map(|(engine, outcome)| (engine.name(), &outcome.phases[..])).collect();
        let title = format!("scale {}, threads: {}, tasks: {}", args.scale, args.threads, args.tasks);
        let svg = plot::drawn(&title, &bars)?;
        std::io::Write::write_all(&mut file, svg.as_bytes())
            .map_err(|error| format!("--plot {name}: {error}"))?;
    }
    let earlier = rounds.into_iter().flatten().find_map(|(_, outcome)| outcome.fault);
    let mut reports: Vec<_> = last
        .into_iter()
        .map(|(engine, outcome)| report(args, &plan, engine, outcome, earlier.clone()))
        .collect();
    if let Some(report) = reports.pop() {
        reports.push(report.with_figures(figures));
    }
    Ok(reports)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Returns the figures of all rounds.
fn figures(args: &Args, plan: &Plan, rounds: &[Vec<(Engine, Outcome)>]) -> Vec<(String, Value)> {
    let prefix = if args.encrypt { "contest.encrypted" } else { "contest" };
    let of = |engine: Engine| -> Vec<&Outcome> {
        rounds.iter().flatten().filter(|(other, _)| *other == engine).map(|(_, outcome)| outcome).collect()
    };
    let far = of(Engine::Far);
    if far.is_empty() {
        return Vec::new();
    }
    let mut figures = Vec::new();
    for (index, phase) in args.phase.run().iter().enumerate() {
        if !args.phase.reports(*phase) {
            continue;
        }
        let times = |outcomes: &[&Outcome]| -> Vec<f64> {
            outcomes.iter().map(|outcome| outcome.phases[index].time.as_secs_f64()).collect()
        };
        for other in [Engine::Redis, Engine::Memcached] {
            let theirs = of(other);
            if !theirs.is_empty() {
                let name = format!("{prefix}.{}.ratio_to_{}", phase.name(), other.name());
                figures.push((name, json!(rounded(ratio(&times(&far), &times(&theirs))))));
            }
        }
        let amplification = far.iter().map(|outcome| outcome.phases[index].amplification());
        let name = format!("{prefix}.amplification.{}", phase.name());
        figures.push((name, json!(rounded(median(amplification.collect())))));
    }
    let budget = args.local_bytes(plan);
    let over = far.iter().filter_map(|outcome| outcome.local_bytes).map(|bytes| bytes.saturating_sub(budget));
    figures.push((format!("{prefix}.budget.over_bytes"), json!(over.max())));
    figures
}

fn report(args: &Args, plan: &Plan, engine: Engine, outcome: Outcome, earlier: Option<String>) -> Report {
    let is_far = engine == Engine::Far;
    let of_far = |value: Value| if is_far { value } else { Value::Null };
    let of_run = [
        ("engine", json!(engine.name())),
        ("cluster", of_far(json!(args.cluster))),
        ("threads", json!(args.threads)),
        ("tasks", json!(args.tasks)),
        ("scale", json!(args.scale)),
        ("records", json!(plan.all_records())),
        ("encrypted", json!(args.encrypt && is_far)),
        ("local_memory", of_far(json!(args.local_bytes(plan)))),
        ("local_memory_peak", json!(outcome.local_bytes)),
    ];
    let mut values: Vec<_> = of_run.map(|(name, value)| (name.to_owned(), value)).into();
    let mut total = 0.0;
    for measured in &outcome.phases {
        let (phase, seconds) = (measured.phase, measured.time.as_secs_f64());
        total += seconds;
        if !args.phase.reports(phase) {
            continue;
        }
        #[allow(clippy::cast_precision_loss)] // a time, rounded
        let us = |nanoseconds: u64| json!(rounded(nanoseconds as f64 / 1e3));
        let latencies = &measured.latencies;
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // a rate, rounded
        let rate = if seconds > 0.0 { (latencies.len() as f64 / seconds).round() as u64 } else { 0 };
        let of_phase = [
            ("seconds", json!((seconds * 1e6).round() / 1e6)),
            ("ops_per_sec", json!(rate)),
            ("latency_us_p50", us(latencies.value_at_quantile(0.5))),
            ("latency_us_p99", us(latencies.value_at_quantile(0.99))),
            ("latency_us_max", us(latencies.max())),
            ("live_bytes", json!(measured.live_bytes)),
            ("amplification", json!(rounded(measured.amplification()))),
            ("hit_rate", json!(measured.hit_rate.map(rounded))),
        ];
        values.extend(of_phase.map(|(name, value)| (format!("{}.{name}", phase.name()), value)));
    }
    if args.phase == Phases::All {
        values.push(("seconds".to_owned(), json!(rounded(total))));
    }
    Report::named(values, outcome.fault.map(|fault| format!("{}: {fault}", engine.name())).or(earlier))
}

/// A progress bar, hidden if stderr is not a terminal.
fn progress(args: &Args, plan: &Plan) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let requests: u64 = args.phase.run().iter().map(|phase| plan.requests(*phase)).sum();
    let bar = ProgressBar::new(requests * args.engine.len() as u64 * args.rounds);
    let style =
        ProgressStyle::with_template("{elapsed} {wide_bar} {human_pos} of {human_len} requests, {per_sec}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
