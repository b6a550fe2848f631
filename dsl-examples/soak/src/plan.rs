//! Plans: what a seed stands for.
//!
//! A seed decides everything about a run: the cluster, how its network behaves, how many threads and tasks there are and
//! what each does. Runs are small and crowded, because that is where operations meet, and because a small history is
//! quick to check and short to read.

use std::fmt;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::planted::Structure;

/// Whether nodes and links fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Nothing fails. Threads may hesitate, and memory nodes be slow.
    None,
    /// Compute nodes die, links are cut and heal.
    Injected,
}

/// A cluster and a workload.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is soaked, or is the original of what is hunted.
    pub structure: Structure,
    /// What everything else is drawn from.
    pub seed: u64,
    /// Whether anything fails.
    pub faults: Faults,
    /// Compute threads.
    pub threads: usize,
    /// Tasks of each.
    pub tasks: usize,
    /// Operations of each task.
    pub operations: usize,
    /// How many keys a set may have: 0 to this.
    pub keys: u64,
    /// How many of the operations on a set look, and how many insert, in percent. The others remove.
    pub gets_and_inserts_percent: [u64; 2],
    /// How many of the operations on a stack or a queue put a value in, in percent. The others take one out.
    pub puts_percent: u64,
    /// How often a client pauses before an operation, in percent.
    pub pauses_percent: u64,
    /// The odds that a compute node dies, as its threads post a chain, in parts per thousand.
    pub crashes_permille: u64,
    /// The odds that the link to a memory node is cut for up to 100 round trips, as a chain is posted to it, in parts per
    /// thousand.
    pub cuts_permille: u64,
    /// Compute nodes that die in the middle of an operation.
    pub deaths: Vec<Death>,
    /// Whether what dead threads have left is put right at once, and not by the next operation that meets it.
    pub recovers_first: bool,
    /// The odds that a compute node stalls for up to 100 round trips, as its threads post a chain, in percent. Nothing
    /// fails by that; it opens windows that threads in step never see.
    pub stalls_percent: u64,
    /// Memory nodes.
    pub nodes: usize,
    /// By how much the time of a chain on the network differs, in percent: how far chains overtake each other.
    pub jitter_percent: u64,
    /// Operations that a memory node serves in a second: if they are few, chains queue up.
    pub rate: &'static str,
    /// The odds that a memory node takes ten times as long for everything, in percent.
    pub slow_percent: u64,
    /// Compute threads of each process: one, some or all. In a process of several, guards of one hold back what another retires
    /// without a message, and blocks of ended threads go to the others.
    pub threads_per_node: usize,
    /// More options of the cluster's URL: a bug in the runtime, to be found.
    pub options: &'static str,
}

/// The death of a compute node in the middle of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// Its first thread, which it takes along with the others.
    pub thread: usize,
    /// From which operation of the thread's first task on it counts changes.
    pub operation: usize,
    /// How often the thread has changed far memory since then, by WRITE, CAS or FAA. What a death leaves half done lies
    /// between two changes.
    pub changes: u64,
    /// How much later it happens: the last change is still under way at first, and the next may be at the end.
    pub after: Duration,
}

/// The longest time from a change to a death: a little more than a round trip.
const LONGEST_AFTER_NS: u64 = 3000;

/// After how many changes a thread dies at most: those of an update that takes two locks.
const MOST_CHANGES: u64 = 6;

impl Plan {
    /// What `seed` stands for.
    pub fn new(structure: Structure, seed: u64, faults: Faults) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let tasks = one_of(&mut rng, &[1, 1, 2]);
        let odds = |rng: &mut SmallRng, permille: &[u64]| match faults {
            Faults::None => 0,
            Faults::Injected => one_of(rng, permille),
        };
        let mut plan = Self {
            structure,
            seed,
            faults,
            threads: rng.random_range(3..=4),
            tasks,
            operations: rng.random_range(8_usize..=12).div_ceil(tasks),
            keys: one_of(&mut rng, &[1, 2, 2, 3]),
            gets_and_inserts_percent: one_of(&mut rng, &[[10, 45], [30, 35], [40, 15], [60, 20]]),
            puts_percent: one_of(&mut rng, &[20, 30, 45]),
            pauses_percent: one_of(&mut rng, &[0, 20, 50]),
            // High odds kill all threads but one before they have done much; low ones let them meet first.
            crashes_permille: odds(&mut rng, &[0, 5, 10, 20, 50]),
            cuts_permille: odds(&mut rng, &[0, 0, 0, 20, 50]),
            deaths: Vec::new(),
            recovers_first: odds(&mut rng, &[0, 1]) == 1,
            stalls_percent: one_of(&mut rng, &[0, 5, 12, 25, 40]),
            nodes: rng.random_range(1..=2),
            jitter_percent: one_of(&mut rng, &[0, 10, 50, 90]),
            rate: one_of(&mut rng, &["1M", "20M", "inf"]),
            slow_percent: one_of(&mut rng, &[0, 0, 40]),
            threads_per_node: one_of(&mut rng, &[1, 1, 2, 3, 4]),
            options: "",
        };
        // By chance most nodes die while the structure is being made, or as they wait; so most plans say when.
        if faults == Faults::Injected && rng.random_ratio(2, 3) {
            plan.crashes_permille = 0;
            if rng.random_ratio(1, 2) {
                plan.cuts_permille = 0;
            }
            let (threads, operations) = (plan.threads, plan.operations);
            // The first node survives.
            let dying = (plan.threads_per_node..threads).step_by(plan.threads_per_node);
            let death = |thread| Death {
                thread,
                operation: rng.random_range(1..=operations),
                changes: rng.random_range(1..=MOST_CHANGES),
                after: Duration::from_nanos(rng.random_range(0..LONGEST_AFTER_NS)),
            };
            plan.deaths = dying.map(death).collect();
        }
        plan
    }

    /// The cluster's URL.
    pub fn url(&self) -> String {
        let Self { seed, nodes, jitter_percent, rate, slow_percent, stalls_percent, .. } = self;
        let url = format!(
            "sim:seed={seed},nodes={nodes},size=256KiB,limit=500ms,jitter={jitter_percent}%,rate={rate},\
             slow={slow_percent}%,stall={stalls_percent}%"
        );
        let comma = if self.options.is_empty() { "" } else { "," };
        let url = format!("{url},threads-per-node={}{comma}{}", self.threads_per_node, self.options);
        let percent = |permille: u64| format!("{}.{}%", permille / 10, permille % 10);
        let (crash, cut) = (percent(self.crashes_permille), percent(self.cuts_permille));
        match self.faults {
            Faults::None => url,
            Faults::Injected => format!("{url},crash={crash},cut={cut},leaks=ignore"),
        }
    }

    /// Whether the release of a lock may be lost while its owner lives. (What the dead held is taken from them.)
    pub fn may_lose_locks(&self) -> bool {
        self.cuts_permille > 0
    }

    /// At most how many values are put into a stack or a queue.
    pub fn values(&self) -> u64 {
        (self.threads * self.tasks * self.operations) as u64
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, tasks, operations, keys, puts_percent, pauses_percent, .. } = self;
        let [gets, inserts] = self.gets_and_inserts_percent;
        let death = |Death { thread, operation, changes, after }: &Death| {
            format!("; thread {thread} dies {after:?} after change {changes} from operation {operation} on")
        };
        let deaths: String = self.deaths.iter().map(death).collect();
        write!(
            f,
            "{threads} threads of {tasks} tasks of {operations} operations; of a set: {keys} keys, {gets} % gets, \
             {inserts} % inserts; else: {puts_percent} % puts; {pauses_percent} % pauses; {}{}",
            self.url(),
            deaths
        )
    }
}

fn one_of<T: Copy>(rng: &mut SmallRng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_stands_for_the_same() {
        let plan = |seed| Plan::new(Structure::LazyList, seed, Faults::Injected).to_string();
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn plans_without_faults_have_none() {
        for seed in 0..100 {
            let plan = Plan::new(Structure::MsQueue, seed, Faults::None);
            assert!(!plan.may_lose_locks() && !plan.url().contains("crash"), "{plan}");
        }
    }
}
