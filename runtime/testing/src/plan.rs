//! Plans: the input that determines a run, as data.
//!
//! A plan has the cluster, its network and faults, and for each client its operations and pauses. Plans are drawn from a seed
//! ([`Plan::draw`]), generated and shrunk by `proptest` (feature `proptest`), or written by hand, and failing ones are shrunk
//! ([`shrink`](crate::shrink)). The same plan always executes the same run.
//!
//! Drawn plans are small, with few keys: operations conflict often, and a small history is quick to check and short to read.

use std::fmt::{self, Write as _};
use std::time::Duration;

use farfield::sim::Fault;

use crate::random::Random;

/// The longest time from a change to a death, in nanoseconds: a little more than a round trip.
const LONGEST_AFTER_NS: u64 = 3000;

/// Most changes after which a thread dies: those of an update that takes two locks.
pub(crate) const MOST_CHANGES: u64 = 6;

/// The longest pause of a client between two operations, in nanoseconds: a few round trips.
pub(crate) const LONGEST_PAUSE_NS: u64 = 6000;

/// The faults in drawn plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Faults {
    /// No failures. Threads may stall, and memory nodes may be slow.
    #[default]
    None,
    /// Compute nodes die; links are cut and heal.
    Injected,
}

/// How a dead compute node is handled: the options `dead` and `sweep` of the cluster's URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dead {
    /// It is evicted immediately, and its memory goes to the other processes. No process has a keeper.
    #[default]
    Cleared,
    /// As on a real cluster: the keeper of another process evicts it, and its memory is lost.
    Marked,
    /// A keeper evicts it, and keepers sweep its memory.
    Swept,
}

/// A cluster and a workload, which determine a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<O> {
    /// The simulator's seed.
    pub seed: u64,
    /// For each compute thread, for each of its tasks: the steps in order.
    pub threads: Vec<Vec<Vec<Step<O>>>>,
    /// Number of memory nodes.
    pub nodes: u64,
    /// Far memory of each memory node, in KiB.
    pub size_kib: u64,
    /// Compute threads of each process: one, some or all. Threads of one process see each other's guards without a message, take over the
    /// blocks of ended threads, and die together.
    pub threads_per_node: u64,
    /// How dead compute nodes are handled. Keepers also run if no node dies, and compete with the threads of their processes.
    pub dead: Dead,
    /// Variation of a chain's time on the network, in percent: more lets chains overtake each other more.
    pub jitter_percent: u64,
    /// Million operations a second that a memory node serves; unlimited if none. At a low rate chains queue up.
    pub rate_million: Option<u64>,
    /// Probability that a memory node is ten times slower, in percent.
    pub slow_percent: u64,
    /// Probability that a compute node stalls for up to 100 round trips when one of its threads posts a chain, in percent. A stall is no
    /// failure; it opens race windows that threads in lockstep never reach.
    pub stall_percent: u64,
    /// Probability that a compute node dies when one of its threads posts a chain, in permille.
    pub crash_permille: u64,
    /// Probability that the link to a memory node is cut for up to 100 round trips when a chain is posted to it, in permille.
    pub cut_permille: u64,
    /// Faults at exact moments.
    pub script: Vec<Scripted>,
    /// True if the final thread recovers the structure before the final operations, rather than leaving recovery to the operations that
    /// need it.
    pub recovers_first: bool,
    /// Virtual time limit of the run, in milliseconds.
    pub limit_ms: u64,
    /// Further options of the cluster's URL, such as `rtt=3us`.
    pub options: String,
}

/// An operation of a client, with its pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<O> {
    /// Pause of the client before the operation.
    pub pause: Duration,
    /// The operation.
    pub operation: O,
    /// True if the client then asks for retired memory to be freed. Otherwise memory is freed much later.
    pub reclaims: bool,
}

/// A fault at an exact moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripted {
    /// A compute node dies.
    Crash {
        /// Its number: that of its first thread, divided by `threads_per_node`.
        compute: usize,
        /// Number of chains that it has posted.
        after_chains: u64,
    },
    /// A compute node dies in the middle of an operation.
    Death {
        /// One of its threads. The others die with it.
        thread: usize,
        /// The operation of the thread's first task from which changes are counted; the first is 1.
        operation: usize,
        /// Number of changes of far memory by the thread since then: WRITE, CAS or FAA. A death between two changes leaves an update half
        /// done.
        changes: u64,
        /// Delay in nanoseconds: at first the last change is still in flight, and at the end the next one may be.
        after_ns: u64,
    },
    /// The link from a compute node to a memory node drops all messages for a time.
    Cut {
        /// The compute node.
        compute: usize,
        /// The memory node.
        memory: u16,
        /// Start, in microseconds.
        at_us: u64,
        /// Duration, in microseconds.
        us: u64,
    },
    /// A compute node is suspended for a time. This is no failure.
    Stall {
        /// The compute node.
        compute: usize,
        /// Number of chains that it has posted.
        after_chains: u64,
        /// Duration, in microseconds.
        us: u64,
    },
}

impl Scripted {
    /// The same fault at another moment: a number of chains, of microseconds, or of an operation's changes.
    pub(crate) fn moved_to(mut self, moment: u64) -> Self {
        match &mut self {
            Self::Death { operation, changes, .. } => {
                (*operation, *changes) = (1 + (moment / MOST_CHANGES) as usize, 1 + moment % MOST_CHANGES);
            }
            Self::Crash { after_chains, .. } | Self::Stall { after_chains, .. } => *after_chains = moment,
            Self::Cut { at_us, .. } => *at_us = moment,
        }
        self
    }

    /// The fault to inject before the run. `None` for a death in an operation, whose moment is known only during the run.
    pub(crate) fn fault(self) -> Option<Fault> {
        Some(match self {
            Self::Crash { compute, after_chains } => Fault::crash(compute).after_chains(after_chains),
            Self::Cut { compute, memory, at_us, us } => {
                Fault::cut(compute, memory, Duration::from_micros(us)).at(Duration::from_micros(at_us))
            }
            Self::Stall { compute, after_chains, us } => {
                Fault::stall(compute, Duration::from_micros(us)).after_chains(after_chains)
            }
            Self::Death { .. } => return None,
        })
    }
}

impl<O> Plan<O> {
    /// A plan of these threads on a cluster without variation or failures.
    pub fn plain(threads: Vec<Vec<Vec<Step<O>>>>) -> Self {
        Self {
            seed: 0,
            threads,
            nodes: 1,
            size_kib: 256,
            threads_per_node: 1,
            dead: Dead::Cleared,
            jitter_percent: 0,
            rate_million: None,
            slow_percent: 0,
            stall_percent: 0,
            crash_permille: 0,
            cut_permille: 0,
            script: Vec::new(),
            recovers_first: false,
            limit_ms: 500,
            options: String::new(),
        }
    }

    /// Removes all random variation and failures. The script stays.
    pub(crate) fn make_plain(&mut self) {
        let plain = Self::plain(std::mem::take(&mut self.threads));
        let (script, options) = (std::mem::take(&mut self.script), std::mem::take(&mut self.options));
        let Self { seed, size_kib, recovers_first, limit_ms, .. } = *self;
        *self = Self { seed, size_kib, script, recovers_first, limit_ms, options, ..plain };
    }

    /// Draws the plan of `seed`: 3 or 4 threads with 8 to 12 operations each, in one or two tasks, on one of many networks.
    pub fn draw(seed: u64, faults: Faults, mut operation: impl FnMut(&mut Random) -> O) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let odds = |random: &mut Random, permille: &[u64]| match faults {
            Faults::None => 0,
            Faults::Injected => random.one_of(permille),
        };
        let tasks = random.one_of(&[1, 1, 2]);
        let (threads, operations) = (random.range(3..5), random.range(8..13).div_ceil(tasks));
        let pauses_percent = random.one_of(&[0, 20, 50]);
        let mut cluster = Self {
            seed,
            nodes: random.range(1..3),
            threads_per_node: random.one_of(&[1, 1, 2, 3, 4]),
            dead: [Dead::Cleared, Dead::Cleared, Dead::Marked, Dead::Swept]
                [random.once("dead", 0..4) as usize],
            jitter_percent: random.one_of(&[0, 10, 50, 90]),
            rate_million: random.one_of(&[Some(1), Some(20), None]),
            slow_percent: random.one_of(&[0, 0, 40]),
            stall_percent: random.one_of(&[0, 5, 12, 25, 40]),
            // High probabilities kill all threads but one after few operations; low ones let them interact first.
            crash_permille: odds(random, &[0, 5, 10, 20, 50]),
            cut_permille: odds(random, &[0, 0, 0, 20, 50]),
            recovers_first: odds(random, &[0, 1]) == 1,
            ..Self::plain(Vec::new())
        };
        // Random deaths mostly hit nodes during creation of the structure or while they wait, so most plans script the moment.
        if faults == Faults::Injected && random.range(0..3) > 0 {
            cluster.crash_permille = 0;
            if random.percent(50) {
                cluster.cut_permille = 0;
            }
            // The first node survives.
            for thread in (cluster.threads_per_node..threads).step_by(cluster.threads_per_node as usize) {
                cluster.script.push(Scripted::Death {
                    thread: thread as usize,
                    operation: random.range(1..operations + 1) as usize,
                    changes: random.range(1..MOST_CHANGES + 1),
                    after_ns: random.range(0..LONGEST_AFTER_NS),
                });
            }
        }
        let mut step = || {
            let pauses = random.percent(pauses_percent);
            let pause_ns = if pauses { random.range(0..LONGEST_PAUSE_NS) } else { 0 };
            let operation = operation(random);
            let reclaims = random.range(0..8) > 0;
            Step { pause: Duration::from_nanos(pause_ns), operation, reclaims }
        };
        let mut task = || (0..operations).map(|_| step()).collect();
        let mut thread = || (0..tasks).map(|_| task()).collect();
        Self { threads: (0..threads).map(|_| thread()).collect(), ..cluster }
    }

    /// The cluster's URL, without the scripted faults.
    pub fn url(&self) -> String {
        let Self { seed, nodes, size_kib, threads_per_node, jitter_percent, .. } = self;
        let Self { slow_percent, stall_percent, limit_ms, .. } = self;
        let rate = self.rate_million.map_or("inf".to_owned(), |million| format!("{million}M"));
        let mut url = format!(
            "sim:seed={seed},nodes={nodes},size={size_kib}KiB,limit={limit_ms}ms,jitter={jitter_percent}%,rate={rate},\
             slow={slow_percent}%,stall={stall_percent}%,threads-per-node={threads_per_node}"
        );
        url.push_str(match self.dead {
            Dead::Cleared => "",
            Dead::Marked => ",dead=marked",
            Dead::Swept => ",sweep=yes",
        });
        // Writing to a string does not fail.
        if self.may_fail() {
            let percent = |permille: u64| format!("{}.{}%", permille / 10, permille % 10);
            let (crash, cut) = (percent(self.crash_permille), percent(self.cut_permille));
            let _ = write!(url, ",crash={crash},cut={cut}");
        }
        if self.may_lose_memory() {
            url.push_str(",leaks=ignore");
        }
        if !self.options.is_empty() {
            let _ = write!(url, ",{}", self.options);
        }
        url
    }

    /// Returns whether compute nodes may die or links be cut.
    pub fn may_fail(&self) -> bool {
        let fails = |scripted: &Scripted| !matches!(scripted, Scripted::Stall { .. });
        self.crash_permille > 0 || self.cut_permille > 0 || self.script.iter().any(fails)
    }

    /// Returns whether the release of a lock may be lost while its owner lives. (Locks of dead owners are taken over.)
    pub fn may_lose_locks(&self) -> bool {
        self.cut_permille > 0 || self.script.iter().any(|scripted| matches!(scripted, Scripted::Cut { .. }))
    }

    /// Returns whether unreachable memory may stay allocated: the memory of a dead process if it is not swept; or an object that a thread has
    /// linked without a response, so that the thread can not know whether it is in use.
    pub fn may_lose_memory(&self) -> bool {
        self.may_lose_locks() || (self.may_fail() && self.dead != Dead::Swept)
    }

    /// All operations, by thread.
    pub fn operations(&self) -> impl Iterator<Item = &O> {
        self.threads.iter().flatten().flatten().map(|step| &step.operation)
    }

    /// All operations, by thread, mutable: to number values that must be distinct, for example.
    pub fn operations_mut(&mut self) -> impl Iterator<Item = &mut O> {
        self.threads.iter_mut().flatten().flatten().map(|step| &mut step.operation)
    }
}

impl<O> Step<O> {
    /// An operation without a pause.
    pub fn new(operation: O) -> Self {
        Self { pause: Duration::ZERO, operation, reclaims: false }
    }
}

impl<O: fmt::Debug> Plan<O> {
    /// The plan as a few lines, with operations formatted by `show`.
    pub fn show(&self, show: impl Fn(&O) -> String) -> String {
        // Writing to a string does not fail.
        let mut text = String::new();
        for (index, thread) in self.threads.iter().enumerate() {
            for (number, task) in thread.iter().enumerate() {
                let of = if thread.len() > 1 { format!(" task {number}") } else { String::new() };
                let steps: Vec<String> = task.iter().map(|step| step.show(&show)).collect();
                let _ = writeln!(text, "  thread {index}{of}: {}", steps.join(", "));
            }
        }
        for scripted in &self.script {
            let _ = writeln!(text, "  {scripted}");
        }
        format!("{text}  on {}\n", self.url())
    }
}

impl<O: fmt::Debug> fmt::Display for Plan<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show(|operation| format!("{operation:?}")))
    }
}

impl<O> Step<O> {
    fn show(&self, show: impl Fn(&O) -> String) -> String {
        let pause = if self.pause.is_zero() { String::new() } else { format!("pause {:?}, ", self.pause) };
        let reclaims = if self.reclaims { ", reclaim" } else { "" };
        format!("{pause}{}{reclaims}", show(&self.operation))
    }
}

impl fmt::Display for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash { compute, after_chains } => {
                write!(f, "compute node {compute} dies after {after_chains} chains")
            }
            Self::Death { thread, operation, changes, after_ns } => write!(
                f,
                "thread {thread} dies {after_ns} ns after change {changes} from operation {operation} on"
            ),
            Self::Cut { compute, memory, at_us, us } => write!(
                f,
                "the link from compute node {compute} to memory node {memory} is cut at {at_us} us, for {us} us"
            ),
            Self::Stall { compute, after_chains, us } => {
                write!(f, "compute node {compute} stalls for {us} us after {after_chains} chains")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_draws_the_same_plan() {
        let plan = |seed| Plan::draw(seed, Faults::Injected, |random| random.range(0..5));
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn plans_without_faults_have_none() {
        for seed in 0..100 {
            let plan = Plan::draw(seed, Faults::None, |random| random.fresh());
            assert!(!plan.may_fail() && !plan.may_lose_locks() && !plan.url().contains("crash"), "{plan}");
        }
    }

    #[test]
    fn plans_with_faults_differ_in_them() {
        let plans = || (0..100).map(|seed| Plan::draw(seed, Faults::Injected, |random| random.fresh()));
        for count in [
            plans().filter(Plan::may_fail).count(),
            plans().filter(Plan::may_lose_locks).count(),
            plans().filter(|plan| plan.crash_permille > 0 && !plan.may_lose_locks()).count(),
            plans().filter(|plan| !plan.script.is_empty()).count(),
            plans().filter(|plan| plan.recovers_first).count(),
            plans().filter(|plan| plan.dead == Dead::Marked).count(),
            plans().filter(|plan| plan.dead == Dead::Swept).count(),
            plans().filter(|plan| plan.may_fail() && !plan.may_lose_memory()).count(),
        ] {
            assert!((10..100).contains(&count), "{count}");
        }
    }

    #[test]
    fn a_plan_is_a_few_lines() {
        let mut steps = vec![Step::new("insert"), Step::new("remove")];
        steps[1].pause = Duration::from_nanos(1500);
        steps[1].reclaims = true;
        let mut plan = Plan::plain(vec![vec![steps], vec![vec![Step::new("get")], vec![]]]);
        plan.script = vec![Scripted::Crash { compute: 1, after_chains: 7 }];
        let shown = plan.to_string();
        assert_eq!(
            shown.lines().take(4).collect::<Vec<_>>(),
            [
                "  thread 0: \"insert\", pause 1.5µs, \"remove\", reclaim",
                "  thread 1 task 0: \"get\"",
                "  thread 1 task 1: ",
                "  compute node 1 dies after 7 chains",
            ]
        );
    }
}
