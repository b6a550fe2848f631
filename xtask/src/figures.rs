//! Every figure that the project claims: its name, its unit, what it means, and the command that measures it.

/// A figure.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) source: Source,
    pub(crate) command: &'static [&'static str],
}

/// What of a command is the figure.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// What it prints: a line `name value`.
    Printed,
    /// How long it takes, in seconds.
    Seconds,
    /// How much memory it has at most, in MiB.
    PeakMib,
}

impl Figure {
    /// A figure that its command prints.
    pub(crate) const fn printed(
        name: &'static str,
        unit: &'static str,
        meaning: &'static str,
        command: &'static [&'static str],
    ) -> Self {
        Self { name, unit, meaning, source: Source::Printed, command }
    }

    /// What its command takes.
    const fn taken(
        name: &'static str,
        source: Source,
        meaning: &'static str,
        command: &'static [&'static str],
    ) -> Self {
        let unit = match source {
            Source::Seconds => "s",
            Source::PeakMib => "MiB",
            Source::Printed => "",
        };
        Self { name, unit, meaning, source, command }
    }
}

const RDMA: &[&str] = &["cargo", "xtask", "rdma-test"];
const ABSTRACTION: &[&str] =
    &["cargo", "bench", "--quiet", "-p", "farfield-benches", "--bench", "abstraction", "--", "--ratio"];
const OPERATIONS: &[&str] =
    &["cargo", "bench", "--quiet", "-p", "farfield-benches", "--bench", "operations", "--", "--ratio"];
const MEMORY: &[&str] =
    &["cargo", "bench", "--quiet", "-p", "farfield-benches", "--bench", "memory", "--", "--ratio"];
const UI: &[&str] =
    &["cargo", "test", "--quiet", "-p", "farfield-ui-tests", "--test", "ui", "--", "--nocapture"];
const ALLOCATIONS: &[&str] = &test("allocations");
const ALLOC_RTTS: &[&str] = &test("alloc_rtts");
const BUDGETS: &[&str] = &test("budgets");
const OVERLAP: &[&str] = &test("overlap");
const MILLION_OPS: &[&str] = &[
    "target/release/intset",
    "--cluster",
    "sim:seed=1",
    "--threads",
    "8",
    "--num-ops",
    "125000",
    "--key-ub",
    "63",
];
const TEN_THOUSAND_THREADS: &[&str] = &[
    "target/release/intset",
    "--cluster",
    "sim:seed=1",
    "--threads",
    "10000",
    "--num-ops",
    "10",
    "--key-ub",
    "63",
];
const TEN_THOUSAND_ON_DEFAULT_KEYS: &[&str] =
    &["target/release/intset", "--cluster", "sim:seed=1", "--threads", "10000", "--num-ops", "1"];
const EPOCHS: &[&str] = &["target/release/epoch_bench"];
const CLIENT_CALLS: &[&str] = &["target/release/client_calls"];
const SHARED_MEMORY: &[&str] = &["target/release/shared_memory"];
const LONG_RUN: &[&str] = &["target/release/long_run"];
const PLANTED: &[&str] = &["target/release/soak", "--planted"];
const SOAK: &[&str] = &["target/release/soak", "--seeds", "0..1000"];

/// The tests of the examples in one file, which print what they measure. (`--quiet` would put dots before it.)
const fn test(name: &'static str) -> [&'static str; 8] {
    ["cargo", "test", "-p", "farfield-examples", "--test", name, "--", "--nocapture"]
}

const fn ratio(name: &'static str, meaning: &'static str) -> Figure {
    Figure::printed(name, "times", meaning, OPERATIONS)
}

const fn excess(name: &'static str, meaning: &'static str) -> Figure {
    Figure::printed(name, "round trips", meaning, BUDGETS)
}

const fn memory(name: &'static str, meaning: &'static str) -> Figure {
    Figure::printed(name, "times", meaning, MEMORY)
}

const fn growth(name: &'static str, meaning: &'static str) -> Figure {
    Figure::printed(name, "times", meaning, EPOCHS)
}

/// The figures of the README's table, in its order.
pub(crate) const HEADLINES: &[&str] = &[
    "abstraction.get.ratio",
    "abstraction.update.ratio",
    "abstraction.heap_allocations_per_op",
    "rtts.lazy-list.get.excess",
    "rtts.lazy-list.insert.excess",
    "rtts.ms-queue.enqueue.excess",
    "pipelining.lazy-list.speedup",
    "epoch.pin.ratio",
    "epoch_bench.sparse.growth",
    "shm.throughput.ratio",
    "client.call.ratio_to_mpsc",
    "rdma.read.ratio_to_raw",
    "sim.planted_bugs_found",
];

/// All of them, in the order of the book's table.
pub(crate) const FIGURES: &[Figure] = &[
    Figure::printed(
        "abstraction.get.ratio",
        "times",
        "time of a lazy list's `get` of 256 keys on the embedded fabric, over that of the same list by hand on `crossbeam-epoch`",
        ABSTRACTION,
    ),
    Figure::printed(
        "abstraction.get.segments_4.ratio",
        "times",
        "the same in a cluster of four segments, where each load translates an address first",
        ABSTRACTION,
    ),
    Figure::printed(
        "abstraction.update.ratio",
        "times",
        "time of a lazy list's `insert` and `remove` in turn, with half of 512 keys present, over that of the same list by hand",
        ABSTRACTION,
    ),
    Figure::printed(
        "abstraction.heap_allocations_per_op",
        "allocations",
        "heap allocations of an operation of six structures on the embedded fabric, once warm",
        ALLOCATIONS,
    ),
    Figure::printed(
        "shm.throughput.ratio",
        "times",
        "operations a second of three processes on `shm:`, over those of one process with as many threads",
        SHARED_MEMORY,
    ),
    Figure::printed(
        "shm.fetch_add.ratio_to_raw",
        "times",
        "time of a `fetch_add` by a process that mapped another's memory, over that of an `AtomicU64` in the same mapping",
        SHARED_MEMORY,
    ),
    Figure::printed(
        "client.call.ratio_to_mpsc",
        "times",
        "time of a `client.call` that does one load, over that of a request by `tokio::sync::mpsc` and its answer",
        CLIENT_CALLS,
    ),
    Figure::printed(
        "client.idle.core_percent",
        "% of a core",
        "processor time of a process with an idle cluster and client, the larger of `local:` and `shm:`",
        CLIENT_CALLS,
    ),
    ratio("ops.load.ratio", "time of an `Atomic`'s load, over that of an `AtomicU64`"),
    ratio("ops.store.ratio", "time of its store, likewise"),
    ratio("ops.compare_exchange.ratio", "time of its compare-and-exchange, likewise"),
    ratio("ops.snapshot_3.ratio", "time of a READ of an object of 3 words, over that of 3 atomic loads"),
    ratio("ops.snapshot_64.ratio", "time of a READ of 64 words, over that of 64 atomic loads"),
    ratio(
        "ops.chain_4.ratio",
        "time of a chain of load, store, exchange and addition, over that of the four by hand",
    ),
    excess(
        "rtts.lazy-list.get.excess",
        "round trips of a lazy list's `get` in the simulator, beyond one for each node visited",
    ),
    excess(
        "rtts.lazy-list.insert.excess",
        "round trips of a lazy list's `insert` that succeeds, beyond one for each node visited",
    ),
    excess("rtts.lazy-list.remove.excess", "of its `remove` that succeeds, likewise"),
    excess("rtts.harris-list.get.excess", "of a Harris list's `get`, likewise"),
    excess("rtts.harris-list.insert.excess", "of its `insert` that succeeds, likewise"),
    excess("rtts.harris-list.remove.excess", "of its `remove` that succeeds, likewise"),
    excess("rtts.treiber-stack.push.excess", "round trips of a stack's `push` after the first, in all"),
    excess("rtts.treiber-stack.pop.excess", "round trips of a stack's `pop`, in all"),
    excess("rtts.ms-queue.enqueue.excess", "round trips of a queue's `enqueue`, in all"),
    excess("rtts.ms-queue.dequeue.excess", "round trips of a queue's `dequeue` after the first, in all"),
    Figure::printed(
        "pipelining.lazy-list.speedup",
        "times",
        "throughput of one simulated thread on a lazy list with 16 tasks, over that with one task, at 2 us a round trip",
        OVERLAP,
    ),
    Figure::printed("pipelining.harris-list.speedup", "times", "the same on a Harris list", OVERLAP),
    growth(
        "epoch_bench.read-only.growth",
        "time of a pinned READ with 64 simulated nodes of 4 threads, over that with 1",
    ),
    growth("epoch_bench.never.growth", "the same with a retirement, without calls of `try_reclaim`"),
    growth(
        "epoch_bench.sparse.growth",
        "time of a pinned READ and a retirement, with `try_reclaim` after every 1,024, on 64 simulated nodes, over that on 1",
    ),
    growth("epoch_bench.dense.growth", "the same with `try_reclaim` after each"),
    memory(
        "alloc.single.ratio",
        "time of allocating, writing and freeing 64 bytes on the embedded fabric, over that of a `Box`",
    ),
    memory("alloc.cross.ratio", "the same of two threads, each of which frees the other's blocks"),
    Figure::printed(
        "alloc.rtts_per_alloc",
        "round trips",
        "round trips of an allocation of 64 bytes in the simulator, averaged over 10,000 that are never freed",
        ALLOC_RTTS,
    ),
    Figure::printed(
        "long_run.leaked_bytes",
        "bytes",
        "lost memory after 10 million insertions and removals in a heap of twice the live set",
        LONG_RUN,
    ),
    Figure::printed(
        "long_run.growth_bytes",
        "bytes",
        "growth of the memory of live and free objects, from the first tenth of that run to its end",
        LONG_RUN,
    ),
    memory("epoch.pin.ratio", "time of pin and unpin, over that of `crossbeam-epoch`"),
    memory(
        "epoch.retire.ratio",
        "time to pin, retire a `Box` of 64 bytes in a `LocalEpoch` and unpin, over that of `crossbeam-epoch`",
    ),
    memory("epoch.retire_to_seize.ratio", "the same, over the time of `seize`"),
    memory(
        "epoch.retire_far.ratio",
        "the same of an object in far memory, over the time of `crossbeam-epoch` and a `Box`",
    ),
    memory(
        "atomic_object.atomic.ratio",
        "time of a quarter each of read, write, CAS and exchange, over that of an `AtomicU64`",
    ),
    memory("atomic_object.link.ratio", "the same of a `Link`"),
    memory("atomic_object.stamped_link.ratio", "the same of a `StampedLink`"),
    Figure::printed("ui.cases", "cases", "mistakes whose compile errors are tested word by word", UI),
    Figure::taken(
        "sim.million_ops.seconds",
        Source::Seconds,
        "a million simulated operations on a lazy list of up to 64 keys, by 8 threads",
        MILLION_OPS,
    ),
    Figure::taken(
        "sim.ten_thousand_threads.seconds",
        Source::Seconds,
        "10 operations by each of 10,000 simulated threads, on the same list",
        TEN_THOUSAND_THREADS,
    ),
    Figure::taken(
        "sim.ten_thousand_threads.peak_mib",
        Source::PeakMib,
        "the most memory of that process",
        TEN_THOUSAND_THREADS,
    ),
    Figure::taken(
        "sim.ten_thousand_threads.default_keys.seconds",
        Source::Seconds,
        "one operation by each of 10,000 simulated threads on a list of up to 4,097 keys, of some thousand READs each",
        TEN_THOUSAND_ON_DEFAULT_KEYS,
    ),
    Figure::printed(
        "sim.planted_bugs",
        "bugs",
        "bugs planted in the example structures and in the runtime, each against another invariant",
        PLANTED,
    ),
    Figure::printed(
        "sim.planted_bugs_found",
        "bugs",
        "planted bugs that the simulator finds within 1,000 seeds each",
        PLANTED,
    ),
    Figure::printed("sim.planted_bugs_worst_seed", "(seed)", "the seed that finds the last of them", PLANTED),
    Figure::printed(
        "sim.soak_seeds_per_minute",
        "runs",
        "runs a minute: one seed on one structure, checked for linearizability and memory safety",
        SOAK,
    ),
    Figure::printed(
        "sim.thousand_seeds.seconds",
        "s",
        "time of a soak of 1,000 seeds on each of the seven structures",
        SOAK,
    ),
    // ---- RDMA: in one boot of the test bed ----
    Figure::printed(
        "rdma.read.ratio_to_raw",
        "times",
        "median time of an awaited READ of 8 bytes over RDMA in an emulated machine, over that of a loop that posts and polls one work request",
        RDMA,
    ),
    Figure::printed("rdma.write.ratio_to_raw", "times", "of a WRITE, likewise", RDMA),
    Figure::printed("rdma.cas.ratio_to_raw", "times", "of a CAS, likewise", RDMA),
    Figure::printed("rdma.faa.ratio_to_raw", "times", "of an FAA, likewise", RDMA),
    Figure::printed(
        "rdma.read.ratio_to_perftest",
        "times",
        "of a READ, over that of perftest's `ib_read_lat`",
        RDMA,
    ),
    Figure::printed(
        "rdma.faa.ratio_to_perftest",
        "times",
        "of an FAA, over that of perftest's `ib_atomic_lat`",
        RDMA,
    ),
    Figure::printed(
        "rdma.message_rate.ratio_to_perftest",
        "times",
        "READs of 64 bytes a second by a thread of 16 tasks, over those of perftest's `ib_read_bw`",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.0/0.tasks1.verbs_per_op",
        "verbs",
        "of an operation on a lazy list, `get`s of 256 keys, half of them present, one thread, one task",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.0/0.tasks1.raw_reads_per_op",
        "READs",
        "READs that the loop above awaits one by one in the time of that operation",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.0/0.tasks16.verbs_per_op",
        "verbs",
        "of an operation on a lazy list, `get`s of 256 keys, half of them present, one thread, 16 tasks",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.0/0.tasks16.raw_reads_per_op",
        "READs",
        "READs that the loop above awaits one by one in the time of that operation",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.10/10.tasks1.verbs_per_op",
        "verbs",
        "of an operation on a lazy list, a tenth each of `insert` and `remove`, one thread, one task",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.10/10.tasks1.raw_reads_per_op",
        "READs",
        "READs that the loop above awaits one by one in the time of that operation",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.10/10.tasks16.verbs_per_op",
        "verbs",
        "of an operation on a lazy list, a tenth each of `insert` and `remove`, one thread, 16 tasks",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.10/10.tasks16.raw_reads_per_op",
        "READs",
        "READs that the loop above awaits one by one in the time of that operation",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.50/50.tasks1.verbs_per_op",
        "verbs",
        "of an operation on a lazy list, half each of `insert` and `remove`, one thread, one task",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.50/50.tasks1.raw_reads_per_op",
        "READs",
        "READs that the loop above awaits one by one in the time of that operation",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.50/50.tasks16.verbs_per_op",
        "verbs",
        "of an operation on a lazy list, half each of `insert` and `remove`, one thread, 16 tasks",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.50/50.tasks16.raw_reads_per_op",
        "READs",
        "READs that the loop above awaits one by one in the time of that operation",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.10/10.threads2.tasks1.raw_reads_per_op",
        "READs",
        "the same with two threads, one task each, a tenth each of `insert` and `remove`",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.10/10.threads2.tasks16.raw_reads_per_op",
        "READs",
        "the same with two threads, 16 tasks each, a tenth each of `insert` and `remove`",
        RDMA,
    ),
    Figure::printed(
        "rdma.tests_passed",
        "tests",
        "tests of the RDMA test bed that pass, on one machine and on two",
        RDMA,
    ),
];
