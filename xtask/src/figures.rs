//! Every figure that the project claims: its name, its unit, its meaning, and the command that measures it.

/// A figure.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    pub(crate) unit: &'static str,
    pub(crate) meaning: &'static str,
    /// Words that are separated by blanks.
    pub(crate) command: &'static str,
}

/// How a figure is obtained from its command.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// From a line `name value` of its output.
    Printed,
    /// Its time, in seconds.
    Seconds,
    /// Its peak memory, in MiB.
    PeakMib,
}

/// The prefix of the figures that count instructions.
pub(crate) const INSTRUCTIONS: &str = "instructions.";

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

/// Rows of figures by command: name, source, unit and meaning.
macro_rules! figures {
    ($($command:literal { $($name:literal $source:ident $unit:literal $meaning:literal)* })*) => {
        /// All figures, in the order of the book's tables.
        pub(crate) const FIGURES: &[Figure] = &[$($(
            Figure { name: $name, source: Source::$source, unit: $unit, meaning: $meaning, command: $command },
        )*)*];
    };
}

figures! {
    "cargo bench --quiet -p farfield-benches --bench abstraction -- --ratio" {
        "abstraction.get.ratio" Printed "times" "time of a lazy list's `get` of 256 keys on the embedded fabric, over that of the same list by hand on `crossbeam-epoch`"
        "abstraction.get.segments_4.ratio" Printed "times" "the same in a cluster of four segments"
        "abstraction.chase.nodes_4.ratio" Printed "times" "time of dependent READs of 256 objects that are at random on four memory nodes, over that of 256 on one"
        "abstraction.update.ratio" Printed "times" "time of a lazy list's `insert` and `remove` in turn, with half of 512 keys present, over that of the same list by hand"
    }
    "cargo test -p farfield-examples --test allocations -- --nocapture" {
        "abstraction.heap_allocations_per_op" Printed "allocations" "heap allocations of an operation of six structures on the embedded fabric, once warm"
    }
    "target/release/shared_memory" {
        "shm.throughput.ratio" Printed "times" "operations a second of three processes on `shm:`, over those of one process with as many threads"
        "shm.fetch_add.ratio_to_raw" Printed "times" "time of a `fetch_add` by a process that mapped another's memory, over that of an `AtomicU64` in the same mapping"
    }
    "target/release/hash_map ordered" {
        "native.ordered-map.get.ratio" Printed "times" "time of an ordered map's `get` of a random key among a million on `local:`, over that of `scc::TreeIndex`"
        "native.ordered-map.insert.ratio" Printed "times" "time of its `insert`, from empty to a million records, over that of `scc::TreeIndex`"
        "native.ordered-map.scan100.ratio" Printed "times" "time of its scan of 100 pairs, over that of `scc::TreeIndex`"
    }
    "cargo test -p farfield-collections --test all ordered_map:: -- --nocapture" {
        "rtts.ordered-map.get.cold" Printed "round trips" "round trips of an ordered map's `get` in a tree of three levels by a handle that was just attached"
        "rtts.ordered-map.get.warm" Printed "round trips" "the same, if the handle remembers the nodes above the leaves"
        "rtts.ordered-map.insert.cold" Printed "round trips" "round trips of an `insert` into such a map by a handle that was just attached"
        "rtts.ordered-map.insert.warm" Printed "round trips" "the same, if the handle remembers the nodes above the leaves"
        "rtts.ordered-map.update.cold" Printed "round trips" "round trips of an `update` of a key of such a map by a handle that was just attached"
        "rtts.ordered-map.update.warm" Printed "round trips" "the same, if the handle remembers the nodes above the leaves"
        "rtts.ordered-map.remove.cold" Printed "round trips" "round trips of a `remove` of a key of such a map by a handle that was just attached"
        "rtts.ordered-map.remove.warm" Printed "round trips" "the same, if the handle remembers the nodes above the leaves"
        "rtts.ordered-map.scan.cold" Printed "round trips" "round trips of a scan of 100 pairs of such a map by a handle that was just attached"
        "rtts.ordered-map.scan.warm" Printed "round trips" "the same, if the handle remembers the nodes above the leaves"
        "rtts.ordered-map.split" Printed "round trips" "round trips of an `insert` that splits a leaf"
    }
    "target/release/skip_list" {
        "native.skip-list.get.ratio" Printed "times" "time of a skip list's `get` of a random key among a million on `local:`, over that of `crossbeam-skiplist`"
        "native.skip-list.insert.ratio" Printed "times" "time of its `insert`, from empty to a million records, over that of `crossbeam-skiplist`"
    }
    "target/release/ring" {
        "native.ring.ratio" Printed "times" "time of a ring's `try_push` and `try_pop` by one thread on `local:`, over that of the `ArrayQueue` of `crossbeam-queue`; items of 64 bits"
        "native.ring.short.ratio" Printed "times" "the same of items below 2^32, for which a push takes one CAS less"
    }
    "target/release/contest --engine far,redis,memcached --rounds 3" {
        "contest.write.ratio_to_redis" Printed "times" "time of the phase `write` of the contest on the key-value engine with a quarter of the data in local memory, on `local:` with two threads, over that on Redis"
        "contest.write.ratio_to_memcached" Printed "times" "the same, over that on memcached"
        "contest.amplification.write" Printed "times" "far memory of the engine at the end of the phase, over the bytes of keys and values"
        "contest.delete.ratio_to_redis" Printed "times" "the same of the phase `delete`"
        "contest.delete.ratio_to_memcached" Printed "times" "the same, over that on memcached"
        "contest.amplification.delete" Printed "times" "far memory of the engine at the end of the phase, over the bytes of keys and values"
        "contest.rewrite.ratio_to_redis" Printed "times" "the same of the phase `rewrite`"
        "contest.rewrite.ratio_to_memcached" Printed "times" "the same, over that on memcached"
        "contest.amplification.rewrite" Printed "times" "far memory of the engine at the end of the phase, over the bytes of keys and values"
        "contest.hot.ratio_to_redis" Printed "times" "the same of the phase `hot`"
        "contest.hot.ratio_to_memcached" Printed "times" "the same, over that on memcached"
        "contest.amplification.hot" Printed "times" "far memory of the engine at the end of the phase, over the bytes of keys and values"
        "contest.budget.over_bytes" Printed "bytes" "local memory that the engine has counted beyond its budget"
    }
    "target/release/contest --engine far,redis --encrypt --rounds 3" {
        "contest.encrypted.write.ratio_to_redis" Printed "times" "time of the phase `write` with encrypted records, over that on Redis"
        "contest.encrypted.delete.ratio_to_redis" Printed "times" "time of the phase `delete` with encrypted records, over that on Redis"
        "contest.encrypted.rewrite.ratio_to_redis" Printed "times" "time of the phase `rewrite` with encrypted records, over that on Redis"
        "contest.encrypted.hot.ratio_to_redis" Printed "times" "time of the phase `hot` with encrypted records, over that on Redis"
    }
    "cargo test -p farfield-kv --test store a_miss -- --nocapture" {
        "rtts.kv.read.miss" Printed "round trips" "round trips of a `read` of a record that is not in the key-value engine's local memory"
        "rtts.kv.write.slow" Printed "of writes" "the share of the writes of new keys that wait: those that open a page"
    }
    "target/release/hash_map native" {
        "native.hash-map.insert.ratio" Printed "times" "time of a hash map's `insert` on `local:`, from empty to a million `u64` records, over that of `papaya`"
        "native.hash-map.insert.ratio_to_dashmap" Printed "times" "the same, over that of `dashmap`"
        "native.hash-map.insert.ratio_to_scc" Printed "times" "the same, over that of `scc`"
        "native.hash-map.get.ratio" Printed "times" "time of a hash map's `get` of a random key among a million on `local:`, over that of `papaya`"
        "native.hash-map.get.ratio_to_dashmap" Printed "times" "the same, over that of `dashmap`"
        "native.hash-map.get.ratio_to_scc" Printed "times" "the same, over that of `scc`"
        "native.hash-map.update.ratio" Printed "times" "time of a hash map's `update` of a random key among a million on `local:`, over that of `papaya`"
        "native.hash-map.update.ratio_to_dashmap" Printed "times" "the same, over that of `dashmap`"
        "native.hash-map.update.ratio_to_scc" Printed "times" "the same, over that of `scc`"
    }
    "target/release/hash_map shared" {
        "shm.hash-map.get.ratio_to_lmdb" Printed "times" "time of a hash map's `get` by a process on `shm:`, of a million records with keys of 16 bytes and values of 128, over that of a read transaction of LMDB"
        "shm.hash-map.get.ratio_to_redis" Printed "times" "the same, over that of a `GET` from Redis on a Unix socket, of 32 connections with 16 pipelined each"
        "shm.hash-map.put.ratio_to_lmdb" Printed "times" "time of a hash map's `upsert` there, over that of a write transaction of LMDB that syncs nothing"
        "shm.hash-map.put.ratio_to_lmdb_map" Printed "times" "the same, over that of LMDB that also writes through its memory map"
        "shm.hash-map.put_2.ratio_to_lmdb" Printed "times" "time of an `upsert` there while a second process does the same, over that of such a write transaction of LMDB"
        "shm.hash-map.put_2.ratio_to_lmdb_map" Printed "times" "the same, over that of LMDB that also writes through its memory map"
    }
    "target/release/hash_map memory" {
        "hash-map.bytes_per_record.ratio" Printed "times" "far memory of a hash map, in blocks of the allocator, over the bytes of its keys (16 each) and values (128): the most from one million records to two"
    }
    "cargo test -p farfield-collections --test all hash_map:: -- --nocapture" {
        "rtts.hash-map.get.cold" Printed "round trips" "round trips of a hash map's `get` by a handle that was just attached"
        "rtts.hash-map.get.warm" Printed "round trips" "the same, if the handle knows the key's table"
        "rtts.hash-map.get.hot" Printed "round trips" "the same, if the handle knows the key's slot"
        "rtts.hash-map.insert.cold" Printed "round trips" "round trips of a hash map's `insert` by a handle that was just attached"
        "rtts.hash-map.insert.warm" Printed "round trips" "the same, if the handle knows the key's table"
        "rtts.hash-map.insert.hot" Printed "round trips" "the same, if the handle knows the key's slot"
        "rtts.hash-map.update.cold" Printed "round trips" "round trips of a hash map's `update` by a handle that was just attached"
        "rtts.hash-map.update.warm" Printed "round trips" "the same, if the handle knows the key's table"
        "rtts.hash-map.update.hot" Printed "round trips" "the same, if the handle knows the key's slot"
        "rtts.hash-map.remove.cold" Printed "round trips" "round trips of a hash map's `remove` by a handle that was just attached"
        "rtts.hash-map.remove.warm" Printed "round trips" "the same, if the handle knows the key's table"
        "rtts.hash-map.remove.hot" Printed "round trips" "the same, if the handle knows the key's slot"
    }
    "cargo test -p farfield-collections --test all inline_hash_map:: -- --nocapture" {
        "rtts.hash-map-inline.get.cold" Printed "round trips" "round trips of a `get` of a hash map with its values inline, by a handle that was just attached"
        "rtts.hash-map-inline.get.warm" Printed "round trips" "the same, if the handle knows the key's table"
        "rtts.hash-map-inline.get.hot" Printed "round trips" "the same, if the handle has just read the key, which it does not remember"
        "rtts.hash-map-inline.insert.cold" Printed "round trips" "round trips of an `insert` of such a map by a handle that was just attached"
        "rtts.hash-map-inline.insert.warm" Printed "round trips" "the same, if the handle knows the key's table"
        "rtts.hash-map-inline.insert.hot" Printed "round trips" "the same, if the handle has just read the key, which it does not remember"
        "rtts.hash-map-inline.update.cold" Printed "round trips" "round trips of an `update` of such a map by a handle that was just attached"
        "rtts.hash-map-inline.update.warm" Printed "round trips" "the same, if the handle knows the key's table"
        "rtts.hash-map-inline.update.hot" Printed "round trips" "the same, if the handle has just read the key, which it does not remember"
        "rtts.hash-map-inline.remove.cold" Printed "round trips" "round trips of a `remove` of such a map by a handle that was just attached"
        "rtts.hash-map-inline.remove.warm" Printed "round trips" "the same, if the handle knows the key's table"
        "rtts.hash-map-inline.remove.hot" Printed "round trips" "the same, if the handle has just read the key, which it does not remember"
    }
    "cargo test -p farfield-collections --test all ring:: -- --nocapture" {
        "rtts.ring.push.cold" Printed "round trips" "round trips of a ring's `try_push` by a handle that was attached before others have pushed and popped"
        "rtts.ring.push.warm" Printed "round trips" "the same, if nobody else has pushed since the handle did"
        "rtts.ring.pop.cold" Printed "round trips" "round trips of a ring's `try_pop` by a handle that was attached before others have pushed and popped"
        "rtts.ring.pop.warm" Printed "round trips" "the same, if nobody else has popped since the handle did"
    }
    "cargo test -p farfield-collections --test all skip_list:: -- --nocapture" {
        "rtts.skip-list.get.cold" Printed "round trips" "mean round trips of a skip list's `get` of one of 5,000 keys by a handle that was just attached"
        "rtts.skip-list.get.warm" Printed "round trips" "the same, if the handle remembers the towers"
        "rtts.skip-list.insert.cold" Printed "round trips" "mean round trips of an `insert` into such a list by a handle that was just attached"
        "rtts.skip-list.insert.warm" Printed "round trips" "the same, if the handle remembers the towers"
        "rtts.skip-list.update.cold" Printed "round trips" "mean round trips of an `update` of a key of such a list by a handle that was just attached"
        "rtts.skip-list.update.warm" Printed "round trips" "the same, if the handle remembers the towers"
        "rtts.skip-list.remove.cold" Printed "round trips" "mean round trips of a `remove` of a key of such a list by a handle that was just attached"
        "rtts.skip-list.remove.warm" Printed "round trips" "the same, if the handle remembers the towers"
        "rtts.skip-list.scan.cold" Printed "round trips" "round trips for each key of a scan of such a list by a handle that was just attached"
        "rtts.skip-list.scan.warm" Printed "round trips" "the same, if the handle remembers the towers"
    }
    "cargo test -p farfield-collections --test all interlocked:: -- --nocapture" {
        "rtts.interlocked.get.cold" Printed "round trips" "round trips of a `get` from an Interlocked Hash Table whose pointer lists have two levels, by a handle that was just attached"
        "rtts.interlocked.get.warm" Printed "round trips" "the same, if the handle knows the key's lists"
        "rtts.interlocked.insert.cold" Printed "round trips" "round trips of an `insert` into such a table, by a handle that was just attached"
        "rtts.interlocked.insert.warm" Printed "round trips" "the same, if the handle knows the key's lists"
        "rtts.interlocked.update.cold" Printed "round trips" "round trips of an `update` of such a table, by a handle that was just attached"
        "rtts.interlocked.update.warm" Printed "round trips" "the same, if the handle knows the key's lists"
        "rtts.interlocked.remove.cold" Printed "round trips" "round trips of a `remove` from such a table, by a handle that was just attached"
        "rtts.interlocked.remove.warm" Printed "round trips" "the same, if the handle knows the key's lists"
        "rtts.interlocked.scan.cold" Printed "round trips" "round trips of an iteration over a table of one level, with 1,000 keys, by a handle that was just attached"
        "rtts.interlocked.scan.warm" Printed "round trips" "the same, if the handle has iterated before"
    }
    "cargo test -p farfield --test delegation_costs -- --nocapture" {
        "rtts.trust.apply" Printed "times" "time of an awaited request to another thread's value in the simulator, over that of an awaited READ of 8 bytes"
        "rtts.trust.apply_by_mailbox" Printed "times" "the same where the request lies in a mailbox on the memory node, which is read again and again, as on `rdma:`"
        "rtts.trust.apply.here" Printed "round trips" "of a request to a value of the thread itself"
        "rtts.trust.batch4" Printed "times" "time of a request in the simulator, if 4 tasks of a thread make one each, over that of a request alone"
        "rtts.trust.batch16" Printed "times" "the same with 16 tasks"
    }
    "cargo test -p farfield-examples --test all contended:: -- --nocapture" {
        "trust.counter.ratio_to_lock" Printed "times" "rate of a delegated counter to which 64 simulated threads of one task add, over that of a counter under a far-memory lock"
        "trust.counter.ratio_to_faa" Printed "times" "the same, over that of a word to which the memory node adds"
        "trust.counter_16.ratio_to_faa" Printed "times" "the same with 16 tasks on each thread"
        "trust.counter_16.by_nic.ratio_to_faa" Printed "times" "the same if the trustee's execution of requests took no time"
    }
    "cargo run --quiet --release -p farfield-benches --features iceoryx2 --bin delegation" {
        "shm.trust.apply.ratio_to_raw" Printed "times" "time of an awaited request to another process's value on `shm:`, over that of a message there and back through two cache lines"
        "shm.trust.apply_32.ratio_to_raw" Printed "times" "the same while the trustee has 31 more clients, which are idle"
        "shm.trust.batch16.ratio" Printed "times" "time of a request there by a thread with 16 tasks that await one each, over that with one task"
        "shm.trust.batch16_32.ratio" Printed "times" "the same while the trustee has 31 more clients, which are idle"
        "shm.trust.served.ratio_to_simulated" Printed "times" "time that a trustee takes for a request in a full batch, over the 20 ns that the simulator charges for it"
        "shm.trust.apply.ratio_to_channel" Printed "times" "time of an awaited request there, over that of a request and its answer through two bounded channels of `crossbeam-channel`"
        "shm.trust.apply.ratio_to_iceoryx2" Printed "times" "the same, over that of a request and its response through `iceoryx2` between two processes"
    }
    "target/release/tcp" {
        "tcp.roundtrip.ratio_to_raw" Printed "times" "time of an awaited READ of 8 bytes over TCP on loopback without encryption, over that of a message there and back between two processes that wait in the same way"
        "tcp.encrypted.ratio_to_raw" Printed "times" "the same with encryption"
        "tcp.trust.apply.ratio_to_raw" Printed "times" "time of an awaited request to another process's value over TCP on loopback without encryption, over the same message"
        "tcp.pipelining.speedup" Printed "times" "READs a second of a thread with 16 tasks over TCP on loopback, over those with one task"
        "tcp.clients_64.ratio" Printed "times" "encrypted READs of a word a second of 64 threads of 8 processes with 8 tasks each over TCP on loopback, over the best of 1 to 32 threads"
        "tcp.throughput.ratio_to_redis" Printed "times" "READs of a word a second of a thread with 64 tasks over TCP on loopback without encryption, over `GET`s of 8 bytes from Redis with 64 pipelined"
    }
    "target/release/client_calls" {
        "client.call.ratio_to_mpsc" Printed "times" "time of a `client.call` that does one load, over that of a request by `tokio::sync::mpsc` and its answer"
        "client.idle.core_percent" Printed "% of a core" "processor time of a process with an idle cluster and client, the larger of `local:` and `shm:`"
    }
    "cargo bench --quiet -p farfield-benches --bench operations -- --ratio" {
        "ops.load.ratio" Printed "times" "time of an `Atomic`'s load, over that of an `AtomicU64`"
        "ops.store.ratio" Printed "times" "time of its store, likewise"
        "ops.compare_exchange.ratio" Printed "times" "time of its compare-and-exchange, likewise"
        "ops.snapshot_3.ratio" Printed "times" "time of a READ of an object of 3 words, over that of 3 atomic loads"
        "ops.snapshot_64.ratio" Printed "times" "time of a READ of 64 words, over that of 64 atomic loads"
        "ops.read_64_random.ratio" Printed "times" "time of independent READs of 64-byte objects among a million, over that of the same through `Box`"
        "ops.chain_4.ratio" Printed "times" "time of a chain of load, store, exchange and addition, over that of the four by hand"
    }
    "cargo xtask instructions" {
        "instructions.lazy-list.update" Printed "instructions" "instructions to insert and remove a key of a lazy list with one other key on `local:`, alone, counted by callgrind"
        "instructions.lazy-list.update.native" Printed "instructions" "of the same list by hand on `crossbeam-epoch`"
        "instructions.trust.request" Printed "instructions" "a client's share of a delegated request that it awaits, one of eight that are made at one time"
        "instructions.trust.request.served" Printed "instructions" "the share of its trustee, which gets them in batches of eight"
        "instructions.lazy-list.update.ratio" Printed "times" "instructions of a lazy list's insertion and removal on `local:`, over those of the same list by hand"
        "instructions.load" Printed "instructions" "of an `Atomic`'s load"
        "instructions.store" Printed "instructions" "of its store"
        "instructions.compare_exchange" Printed "instructions" "of its compare-and-exchange"
        "instructions.snapshot_3" Printed "instructions" "of a READ of an object of 3 words"
        "instructions.snapshot_64" Printed "instructions" "of a READ of 64 words"
        "instructions.chain_4" Printed "instructions" "of a chain of load, store, exchange and addition"
        "instructions.lock" Printed "instructions" "to acquire a free lock and to release it, both awaited"
        "instructions.pin" Printed "instructions" "to pin and to unpin"
        "instructions.new" Printed "instructions" "to make an object of 64 bytes and to drop it unpublished"
        "instructions.retire" Printed "instructions" "to pin, make, write and retire an object of 64 bytes, and unpin"
        "instructions.lazy-list.update.shm" Printed "instructions" "instructions of the lazy list's insertion and removal on `shm:`, beside a second process that is a member"
        "instructions.load.shm" Printed "instructions" "of an `Atomic`'s load there"
        "instructions.store.shm" Printed "instructions" "of its store there"
        "instructions.compare_exchange.shm" Printed "instructions" "of its compare-and-exchange there"
        "instructions.snapshot_3.shm" Printed "instructions" "of a READ of 3 words there"
        "instructions.snapshot_64.shm" Printed "instructions" "of a READ of 64 words there"
        "instructions.chain_4.shm" Printed "instructions" "of the chain there"
        "instructions.lock.shm" Printed "instructions" "of the lock there"
        "instructions.pin.shm" Printed "instructions" "of pin and unpin there"
        "instructions.new.shm" Printed "instructions" "of the object that is dropped there"
        "instructions.retire.shm" Printed "instructions" "of the object that is retired there"
        "instructions.shm.ratio" Printed "times" "the largest ratio of an operation's instructions on `shm:` to those on `local:`"
    }
    "cargo test -p farfield-examples --test all budgets:: -- --nocapture" {
        "rtts.lazy-list.get.excess" Printed "round trips" "round trips of a lazy list's `get` in the simulator, beyond one for each node visited"
        "rtts.lazy-list.insert.excess" Printed "round trips" "round trips of a lazy list's `insert` that succeeds, beyond one for each node visited"
        "rtts.lazy-list.remove.excess" Printed "round trips" "of its `remove` that succeeds, likewise"
        "rtts.harris-list.get.excess" Printed "round trips" "of a Harris list's `get`, likewise"
        "rtts.harris-list.insert.excess" Printed "round trips" "of its `insert` that succeeds, likewise"
        "rtts.harris-list.remove.excess" Printed "round trips" "of its `remove` that succeeds, likewise"
        "rtts.treiber-stack.push.excess" Printed "round trips" "round trips of a stack's `push` after the first, in all"
        "rtts.treiber-stack.pop.excess" Printed "round trips" "round trips of a stack's `pop`, in all"
        "rtts.ms-queue.enqueue.excess" Printed "round trips" "round trips of a queue's `enqueue`, in all"
        "rtts.ms-queue.dequeue.excess" Printed "round trips" "round trips of a queue's `dequeue` after the first, in all"
    }
    "cargo test -p farfield-examples --test all overlap:: -- --nocapture" {
        "pipelining.lazy-list.speedup" Printed "times" "throughput of one simulated thread on a lazy list with 16 tasks, over that with one task, at 2 us a round trip"
        "pipelining.harris-list.speedup" Printed "times" "the same on a Harris list"
    }
    "target/release/epoch_bench" {
        "epoch_bench.read-only.growth" Printed "times" "time of a pinned READ with 64 simulated nodes of 4 threads, over that with 1"
        "epoch_bench.never.growth" Printed "times" "the same with a retirement, without calls of `try_reclaim`"
        "epoch_bench.sparse.growth" Printed "times" "time of a pinned READ and a retirement, with `try_reclaim` after every 1,024, on 64 simulated nodes, over that on 1"
        "epoch_bench.dense.growth" Printed "times" "the same with `try_reclaim` after each"
    }
    "target/release/interlocked_bench" {
        "sim.interlocked.insert.flat" Printed "times" "time of an insertion into an Interlocked Hash Table by 1 to 64 simulated nodes of 4 threads, 2,048 by each thread: the longest over the shortest"
        "sim.interlocked.get.flat" Printed "times" "the same of a `get` of each key by a new handle, whose first look-ups follow the levels of the table"
        "sim.interlocked.share.flat" Printed "times" "the same of an iteration over a thread's share, for each key of the share"
    }
    "cargo bench --quiet -p farfield-benches --bench memory -- --ratio" {
        "alloc.single.ratio" Printed "times" "time of allocating, writing and freeing 64 bytes on the embedded fabric, over that of a `Box`"
        "alloc.cross.ratio" Printed "times" "the same of two threads, each of which frees the other's blocks"
    }
    "cargo test -p farfield-examples --test all alloc_rtts:: -- --nocapture" {
        "alloc.rtts_per_alloc" Printed "round trips" "round trips of an allocation of 64 bytes in the simulator, averaged over 10,000 that are never freed"
    }
    "target/release/long_run" {
        "long_run.leaked_bytes" Printed "bytes" "lost memory after 10 million insertions and removals in a heap of twice the live set"
        "long_run.growth_bytes" Printed "bytes" "growth of the memory of live and free objects, from the first tenth of that run to its end"
    }
    "cargo bench --quiet -p farfield-benches --bench memory -- --ratio" {
        "epoch.pin.ratio" Printed "times" "time of pin and unpin, over that of `crossbeam-epoch`"
        "epoch.retire.ratio" Printed "times" "time to pin, retire a `Box` of 64 bytes in a `LocalEpoch` and unpin, over that of `crossbeam-epoch`"
        "epoch.retire_to_seize.ratio" Printed "times" "the same, over the time of `seize`"
        "epoch.retire_far.ratio" Printed "times" "the same of an object in far memory, over the time of `crossbeam-epoch` and a `Box`"
        "atomic_object.atomic.ratio" Printed "times" "time of a quarter each of read, write, CAS and exchange, over that of an `AtomicU64`"
        "atomic_object.link.ratio" Printed "times" "the same of a `Link`"
        "atomic_object.stamped_link.ratio" Printed "times" "the same of a `StampedLink`"
    }
    "cargo test --quiet -p farfield-ui-tests --test ui -- --nocapture" {
        "ui.cases" Printed "cases" "mistakes whose compile errors are tested word by word"
    }
    "target/release/intset --cluster sim:seed=1 --threads 8 --num-ops 125000 --key-ub 63" {
        "sim.million_ops.seconds" Seconds "s" "a million simulated operations on a lazy list of up to 64 keys, by 8 threads"
    }
    "target/release/intset --cluster sim:seed=1 --threads 10000 --num-ops 10 --key-ub 63" {
        "sim.ten_thousand_threads.seconds" Seconds "s" "10 operations by each of 10,000 simulated threads, on the same list"
        "sim.ten_thousand_threads.peak_mib" PeakMib "MiB" "the most memory of that process"
    }
    "target/release/intset --cluster sim:seed=1 --threads 10000 --num-ops 1" {
        "sim.ten_thousand_threads.default_keys.seconds" Seconds "s" "one operation by each of 10,000 simulated threads on a list of up to 4,097 keys, of some thousand READs each"
    }
    "target/release/soak --planted" {
        "sim.planted_bugs" Printed "bugs" "bugs planted in the example structures and in the runtime, each against another invariant"
        "sim.planted_bugs_found" Printed "bugs" "planted bugs that the simulator finds within 1,000 seeds each"
        "sim.planted_bugs_worst_seed" Printed "(seed)" "the seed that finds the last of them"
    }
    "target/release/soak --seeds 0..1000" {
        "sim.soak_seeds_per_minute" Printed "runs" "runs a minute: one seed on one structure, checked for linearizability and memory safety"
        "sim.thousand_seeds.seconds" Printed "s" "time of a soak of 1,000 seeds on each of the ten structures"
    }
    // One boot of the test bed measures all of these.
    "cargo xtask rdma-test" {
        "rdma.read.ratio_to_raw" Printed "times" "median time of an awaited READ of 8 bytes over RDMA in an emulated machine, over that of a loop that posts and polls one work request"
        "rdma.write.ratio_to_raw" Printed "times" "of a WRITE, likewise"
        "rdma.cas.ratio_to_raw" Printed "times" "of a CAS, likewise"
        "rdma.faa.ratio_to_raw" Printed "times" "of an FAA, likewise"
        "rdma.read.instructions_over_raw" Printed "instructions" "of an awaited READ of 8 bytes over RDMA in an emulated machine, beyond those of a loop that posts and polls one work request; counted by callgrind, without the kernel's"
        "rdma.write.instructions_over_raw" Printed "instructions" "of a WRITE, likewise"
        "rdma.cas.instructions_over_raw" Printed "instructions" "of a CAS, likewise"
        "rdma.faa.instructions_over_raw" Printed "instructions" "of an FAA, likewise"
        "rdma.read.tasks16.instructions_over_raw" Printed "instructions" "of a READ by one of 16 tasks of a thread, beyond those of a loop that posts 16 work requests with one doorbell and polls for them"
        "rdma.write.tasks16.instructions_over_raw" Printed "instructions" "of a WRITE, likewise"
        "rdma.cas.tasks16.instructions_over_raw" Printed "instructions" "of a CAS, likewise"
        "rdma.faa.tasks16.instructions_over_raw" Printed "instructions" "of an FAA, likewise"
        "rdma.read.ratio_to_perftest" Printed "times" "of a READ, over that of perftest's `ib_read_lat`"
        "rdma.faa.ratio_to_perftest" Printed "times" "of an FAA, over that of perftest's `ib_atomic_lat`"
        "rdma.message_rate.ratio_to_perftest" Printed "times" "READs of 64 bytes a second by a thread of 16 tasks, over those of perftest's `ib_read_bw`"
        "rdma.lazy-list.0/0.tasks1.verbs_per_op" Printed "verbs" "of an operation on a lazy list, `get`s of 256 keys, half of them present, one thread, one task"
        "rdma.lazy-list.0/0.tasks1.raw_reads_per_op" Printed "READs" "READs that the loop above awaits one by one in the time of that operation"
        "rdma.lazy-list.0/0.tasks16.verbs_per_op" Printed "verbs" "of an operation on a lazy list, `get`s of 256 keys, half of them present, one thread, 16 tasks"
        "rdma.lazy-list.0/0.tasks16.raw_reads_per_op" Printed "READs" "READs that the loop above awaits one by one in the time of that operation"
        "rdma.lazy-list.10/10.tasks1.verbs_per_op" Printed "verbs" "of an operation on a lazy list, a tenth each of `insert` and `remove`, one thread, one task"
        "rdma.lazy-list.10/10.tasks1.raw_reads_per_op" Printed "READs" "READs that the loop above awaits one by one in the time of that operation"
        "rdma.lazy-list.10/10.tasks16.verbs_per_op" Printed "verbs" "of an operation on a lazy list, a tenth each of `insert` and `remove`, one thread, 16 tasks"
        "rdma.lazy-list.10/10.tasks16.raw_reads_per_op" Printed "READs" "READs that the loop above awaits one by one in the time of that operation"
        "rdma.lazy-list.50/50.tasks1.verbs_per_op" Printed "verbs" "of an operation on a lazy list, half each of `insert` and `remove`, one thread, one task"
        "rdma.lazy-list.50/50.tasks1.raw_reads_per_op" Printed "READs" "READs that the loop above awaits one by one in the time of that operation"
        "rdma.lazy-list.50/50.tasks16.verbs_per_op" Printed "verbs" "of an operation on a lazy list, half each of `insert` and `remove`, one thread, 16 tasks"
        "rdma.lazy-list.50/50.tasks16.raw_reads_per_op" Printed "READs" "READs that the loop above awaits one by one in the time of that operation"
        "rdma.lazy-list.10/10.threads2.tasks1.raw_reads_per_op" Printed "READs" "the same with two threads, one task each, a tenth each of `insert` and `remove`"
        "rdma.lazy-list.10/10.threads2.tasks16.raw_reads_per_op" Printed "READs" "the same with two threads, 16 tasks each, a tenth each of `insert` and `remove`"
        "rdma.hash-map.get.raw_reads_per_op" Printed "READs" "time of a `get` of a random key among 20,000 of a hash map over RDMA in an emulated machine, by one task whose handle knows the directory and not the key's slot, over that of a READ of 8 bytes that the loop above posts and awaits alone, before and after it; both are medians"
        "rdma.hash-map.get.tasks16.raw_reads_per_op" Printed "READs" "the same of 16 tasks: a sixteenth of the time in which 16 `get`s end, over that of the same READ"
        "rdma.hash-map-inline.get.raw_reads_per_op" Printed "READs" "the same of an inline hash map, one task"
        "rdma.hash-map-inline.get.tasks16.raw_reads_per_op" Printed "READs" "the same of an inline hash map, 16 tasks"
        "rdma.ordered-map.get.raw_reads_per_op" Printed "READs" "the same of an ordered map, one task, whose handle knows the nodes above the leaves"
        "rdma.ordered-map.get.tasks16.raw_reads_per_op" Printed "READs" "the same of an ordered map, 16 tasks"
        "rdma.ordered-map.get.least_raw_reads_per_op" Printed "READs" "the least that it can be with one task: the time in which the loop posts and awaits a READ of a leaf, 992 bytes, over that of a READ of 8 bytes"
        "rdma.ordered-map.get.tasks16.least_raw_reads_per_op" Printed "READs" "the least with 16 tasks: a sixteenth of the time of 16 such READs, posted by one doorbell, over that of one READ of 8 bytes"
        "rdma.tests_passed" Printed "tests" "tests of the RDMA test bed that pass, on one machine and on two"
    }
}
