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

/// All of them, in the order of the README.
pub(crate) const FIGURES: &[Figure] = &[
    Figure::printed(
        "abstraction.get.ratio",
        "times",
        "`get` of 256 keys on the embedded fabric, against the same list by hand on `crossbeam-epoch`",
        ABSTRACTION,
    ),
    Figure::printed(
        "abstraction.get.segments_4.ratio",
        "times",
        "the same in a cluster of four segments, where an address is looked up before each load",
        ABSTRACTION,
    ),
    Figure::printed(
        "abstraction.update.ratio",
        "times",
        "`insert` and `remove` in turn, half of 512 keys being there, against the same list by hand",
        ABSTRACTION,
    ),
    Figure::printed(
        "abstraction.heap_allocations_per_op",
        "allocations",
        "on the heap, for each operation of six structures on the embedded fabric, once warm",
        ALLOCATIONS,
    ),
    Figure::printed(
        "shm.throughput.ratio",
        "times",
        "operations a second of three processes on `shm:`, in parts of one process's with as many threads",
        SHARED_MEMORY,
    ),
    Figure::printed(
        "shm.fetch_add.ratio_to_raw",
        "times",
        "a `fetch_add` of a process that did not make the memory, against an `AtomicU64`'s on the same mapping",
        SHARED_MEMORY,
    ),
    Figure::printed(
        "client.call.ratio_to_mpsc",
        "times",
        "a `client.call` that does one load, against a request over `tokio::sync::mpsc` and its answer",
        CLIENT_CALLS,
    ),
    Figure::printed(
        "client.idle.core_percent",
        "% of a core",
        "of processor time of a process whose cluster and client are idle, the larger of `local:` and `shm:`",
        CLIENT_CALLS,
    ),
    ratio("ops.load.ratio", "an `Atomic`'s load, against an `AtomicU64`'s"),
    ratio("ops.store.ratio", "its store, likewise"),
    ratio("ops.compare_exchange.ratio", "its compare-and-exchange, likewise"),
    ratio("ops.snapshot_3.ratio", "a READ of an object of 3 words, against 3 atomic loads"),
    ratio("ops.snapshot_64.ratio", "of 64 words, against 64"),
    ratio("ops.chain_4.ratio", "a chain of load, store, exchange and addition, against the four by hand"),
    excess("rtts.lazy-list.get.excess", "of a `get` in the simulator, beyond one for each node visited"),
    excess("rtts.lazy-list.insert.excess", "of an `insert` that succeeds, likewise"),
    excess("rtts.lazy-list.remove.excess", "of a `remove` that succeeds, likewise"),
    excess("rtts.harris-list.get.excess", "of a `get`, likewise"),
    excess("rtts.harris-list.insert.excess", "of an `insert` that succeeds, likewise"),
    excess("rtts.harris-list.remove.excess", "of a `remove` that succeeds, likewise"),
    excess("rtts.treiber-stack.push.excess", "of a `push` after the first, in all"),
    excess("rtts.treiber-stack.pop.excess", "of a `pop`, in all"),
    excess("rtts.ms-queue.enqueue.excess", "of an `enqueue`, in all"),
    excess("rtts.ms-queue.dequeue.excess", "of a `dequeue` after the first, in all"),
    Figure::printed(
        "pipelining.lazy-list.speedup",
        "times",
        "what one simulated thread does with 16 tasks, against one task, at 2 us a round trip",
        OVERLAP,
    ),
    Figure::printed("pipelining.harris-list.speedup", "times", "likewise", OVERLAP),
    growth(
        "epoch_bench.read-only.growth",
        "time of a pinned READ with 64 simulated nodes of 4 threads, over that with 1",
    ),
    growth("epoch_bench.never.growth", "and a retirement, reclaimed by itself now and then"),
    growth("epoch_bench.sparse.growth", "with an attempt to reclaim after every 1,024"),
    growth("epoch_bench.dense.growth", "with one after each"),
    memory(
        "alloc.single.ratio",
        "allocating, writing and freeing 64 bytes on the embedded fabric, against `Box`",
    ),
    memory("alloc.cross.ratio", "of two threads, each freeing what the other has allocated, against `Box`"),
    Figure::printed(
        "alloc.rtts_per_alloc",
        "round trips",
        "of an allocation of 64 bytes in the simulator, over 10,000 that are never freed",
        ALLOC_RTTS,
    ),
    Figure::printed(
        "long_run.leaked_bytes",
        "bytes",
        "of objects that are nobody's, after 10 million insertions and removals in a heap of twice the live set",
        LONG_RUN,
    ),
    Figure::printed(
        "long_run.growth_bytes",
        "bytes",
        "that are used for objects, live or free, beyond what was after the first tenth",
        LONG_RUN,
    ),
    memory("epoch.pin.ratio", "pin and unpin, against `crossbeam-epoch`"),
    memory(
        "epoch.retire.ratio",
        "pin, retire a `Box` of 64 bytes in a `LocalEpoch`, unpin, against `crossbeam-epoch`",
    ),
    memory("epoch.retire_to_seize.ratio", "the same, against `seize`"),
    memory(
        "epoch.retire_far.ratio",
        "the same of an object in far memory, against `crossbeam-epoch` and a `Box`",
    ),
    memory(
        "atomic_object.atomic.ratio",
        "a quarter each of read, write, CAS and exchange, against `AtomicU64`",
    ),
    memory("atomic_object.link.ratio", "the same of a `Link`"),
    memory("atomic_object.stamped_link.ratio", "the same of a `StampedLink`"),
    Figure::printed("ui.cases", "cases", "mistakes that the compiler explains in the words we expect", UI),
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
        "memory that the 10,000 threads take at most",
        TEN_THOUSAND_THREADS,
    ),
    Figure::taken(
        "sim.ten_thousand_threads.default_keys.seconds",
        Source::Seconds,
        "one operation by each of 10,000 simulated threads on a list of up to 4,097 keys, where it takes some thousand READs",
        TEN_THOUSAND_ON_DEFAULT_KEYS,
    ),
    Figure::printed(
        "sim.planted_bugs",
        "bugs",
        "planted in the example structures and in the runtime, each against another invariant, for the simulator to find",
        PLANTED,
    ),
    Figure::printed("sim.planted_bugs_found", "bugs", "of these, found within 1,000 seeds each", PLANTED),
    Figure::printed(
        "sim.planted_bugs_worst_seed",
        "(seed)",
        "the last of these is found at this seed, the others before",
        PLANTED,
    ),
    Figure::printed(
        "sim.soak_seeds_per_minute",
        "runs",
        "a minute: one seed on one structure, checked for linearizability and memory safety",
        SOAK,
    ),
    Figure::printed(
        "sim.thousand_seeds.seconds",
        "s",
        "a soak of 1,000 seeds on each of the seven structures",
        SOAK,
    ),
    // ---- RDMA: in one boot of the test bed ----
    Figure::printed(
        "rdma.read.ratio_to_raw",
        "times",
        "median of an awaited READ of 8 bytes over RDMA in an emulated machine, against a loop that posts and polls one work request",
        RDMA,
    ),
    Figure::printed("rdma.write.ratio_to_raw", "times", "of a WRITE, likewise", RDMA),
    Figure::printed("rdma.cas.ratio_to_raw", "times", "of a CAS, likewise", RDMA),
    Figure::printed("rdma.faa.ratio_to_raw", "times", "of an FAA, likewise", RDMA),
    Figure::printed(
        "rdma.read.ratio_to_perftest",
        "times",
        "of a READ, against perftest's `ib_read_lat`",
        RDMA,
    ),
    Figure::printed(
        "rdma.faa.ratio_to_perftest",
        "times",
        "of an FAA, against perftest's `ib_atomic_lat`",
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
        "of an operation on a lazy list, `get`s of 256 keys, half of them there, one thread, one task",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.0/0.tasks1.raw_reads_per_op",
        "READs",
        "in whose time it is done, awaited one by one in that loop",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.0/0.tasks16.verbs_per_op",
        "verbs",
        "of an operation on a lazy list, `get`s of 256 keys, half of them there, one thread, 16 tasks",
        RDMA,
    ),
    Figure::printed(
        "rdma.lazy-list.0/0.tasks16.raw_reads_per_op",
        "READs",
        "in whose time it is done, awaited one by one in that loop",
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
        "in whose time it is done, awaited one by one in that loop",
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
        "in whose time it is done, awaited one by one in that loop",
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
        "in whose time it is done, awaited one by one in that loop",
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
        "in whose time it is done, awaited one by one in that loop",
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
    Figure::printed("rdma.tests_passed", "tests", "of the test bed, on one machine and on two", RDMA),
];
