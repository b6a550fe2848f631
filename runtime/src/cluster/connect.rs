//! Connecting to a cluster, and running compute threads.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crossbeam_utils::atomic::AtomicCell;
use farfield_fabric::host::run_threads;
use farfield_fabric::stall;
use farfield_sim::{self as sim, ThreadOutcome};

use super::keeper::{self, StartupCollection};
use super::simulated::{Simulated, look_for_leaks, run_beside_keeper};
use crate::delegation::attend;
use crate::epoch::Collector;
use crate::error::{self, Error, Result};
use crate::io::operations::*;
use crate::io::{Identities, Metrics, block_on};
use crate::memory::process::Process;
use crate::memory::registry::Registry;
use crate::session::backing::Backing;
use crate::session::run::{self, Run};
use crate::session::runs::{Computing, Runs};
use crate::session::url::Config;
use crate::session::{Cluster, ComputeThread, Shared, stalls};

impl Cluster {
    /// Connects to the cluster that `url` names.
    ///
    /// | URL | far memory is |
    /// |---|---|
    /// | `local:` | memory of this process, freed when the cluster is dropped |
    /// | `sim:` | the same, behind a simulated network, in virtual time: see [`sim`](crate::sim) |
    /// | `shm:NAME` | memory that processes of this machine share; its memory node is `farfield memnode --cluster shm:NAME` |
    /// | `tcp://HOST:PORT,HOST:PORT` | memory of these memory nodes, accessed by TCP, encrypted: `farfield memnode --listen tcp://ADDR:PORT` |
    /// | `rdma://HOST:PORT,HOST:PORT` | memory of these memory nodes, accessed by RDMA; in a build with the feature `verbs` |
    ///
    /// Options follow the colon, separated by commas. For `shm:`, `tcp:` and `rdma:` they follow a question mark at the end:
    /// `local:nodes=2,size=16MiB`, `shm:NAME?seed=7`.
    ///
    /// | option | meaning | default | bounds |
    /// |---|---|---|---|
    /// | `nodes` | memory nodes | 1 | 1 to 65535, `nodes * segments` to 65536 |
    /// | `segments` | segments on each memory node | 1 | likewise |
    /// | `size` | bytes of each segment: `64KiB`, `16MiB`, `2GiB`, … | `256MiB` | over 27328 bytes (its control block) |
    /// | `seed` | seed of the threads' random generators; in a simulation, of everything random | 0 | 64 bits |
    /// | `placement` | placement of objects without a [`Site`](crate::Site) of their own: a [`Policy`](crate::Policy) | `global-rr` | `rand`, `global-rr`, `global-mod`, `local-rr`, `local-mod` |
    /// | `max-retired` | bytes that a thread may have retired while a guard keeps them from being freed; beyond, [`Error::ReclamationHeldBack`] | half of all far memory | |
    /// | `delay` | `local:` only: operations complete at a random poll up to this one, so that tasks interleave; for tests | 0 | to 65536 |
    ///
    /// `sim:` has these in addition. Durations are written like `500ns`, `2us`, `1.5ms`, `3s`, up to an hour.
    ///
    /// | option | meaning | default | bounds, source |
    /// |---|---|---|---|
    /// | `rtt` | round-trip time of a chain in an idle network | `2us` | from 1 ns; the order of magnitude that the literature reports for a small READ (HERD, SIGCOMM 2014), not measured by this project |
    /// | `bandwidth` | bandwidth of a link | `100Gbps` | `inf` for no limit; one port of a common NIC |
    /// | `rate` | operations a second that a memory node serves | `20M` | `inf` for no limit; SMART (ASPLOS 2024) measured 19 M READs a second with a queue pair for each thread |
    /// | `jitter` | variation of each one-way delay, up or down | `10%` | 0% to 100%; assumed |
    /// | `doorbell` | time of a compute node's NIC for one doorbell: the chains that a thread posts together to a memory node | `100ns` | assumed: the order of an uncached write to a device |
    /// | `compute` | processor time of a thread's own work: `0` for none, or a list such as `posted:60ns+cached:5ns`, in which missing entries keep their defaults. See below | as below | `0`, or from 0 ns each |
    /// | `timeout` | time after which an unanswered operation fails | `100us` | from 1 ns |
    /// | `limit` | virtual time after which a run is aborted | `60s` | from 1 us |
    /// | `threads-per-node` | compute threads of a compute node, which share its NIC, its process and its epoch slot, and die with it | 1 | from 1; a run has at most 16510 compute nodes and 262144 threads |
    /// | `crash` | probability, for each posted chain, that its compute node dies (one survives) | `0%` | |
    /// | `stall` | likewise, that its compute node stalls for up to 100 round trips | `0%` | |
    /// | `cut` | likewise, that the link to its memory node is cut for up to 100 round trips | `0%` | |
    /// | `memory-crash` | likewise, that its memory node dies | `0%` | |
    /// | `slow` | probability, for each memory node, that it is ten times slower during the whole run | `0%` | |
    /// | `leaks` | treatment of objects that are unreachable from the roots at the end of a run: `fail` or `ignore` | `fail` | checked if all threads succeeded. Threads that die leave objects that they had not linked, so later runs would fail; `ignore` does not find leaks of living threads either |
    /// | `reclaim` | advance of epochs: `eager`, as soon as no guard forbids it, without operations; `lazy`, by occasional steps that take round trips, as on real fabrics | `eager` | `lazy` is for counting the operations of those steps |
    /// | `reuse` | reuse of freed blocks: `at-once`, the block that a thread freed last is the next of its size that it allocates; `never`, they are not reused until memory is short; `seed`, one of both | `seed`; with `reclaim=lazy` `at-once` | |
    /// | `dead` | treatment of a compute node that dies: `cleared`, it is evicted immediately, and the others get its memory; `marked`, as on a real cluster: a memory node marks it, the keeper of another process evicts it, and its memory is lost | `cleared` | |
    /// | `sweep` | `yes`: keepers sweep lost memory, as with `farfield memnode --sweep`; implies `dead=marked` | `no` | |
    /// | `delegation` | where requests to trustees lie: `hosted`, in the memory of their compute nodes, which chains can reach; `mailboxes`, on memory nodes, where they are read again and again, as on `rdma:` | `hosted` | |
    /// | `words` | order in which the words of a READ or WRITE are accessed: `ascending`, by their addresses; `any`, from a random word on, and after the last the first: real devices promise no order | `ascending` | `any` is for structures that read a header and its body by one READ |
    /// | `plant` | a planted bug of the runtime, which a checker should find, such as `early-reclamation`, `same-version` or `sweep-without-guards`. The error for an unknown name lists all | `none` | |
    ///
    /// A simulated thread is one processor: its tasks compute one after the other, a chain leaves when its thread has posted it, and a completion
    /// is handled when the thread is free. The costs:
    ///
    /// | `compute=` | is charged for | default | source |
    /// |---|---|---|---|
    /// | `posted` | each posted operation | `60ns` | the runtime takes 275 instructions (callgrind, release build, x86-64), 40 ns at 3.5 GHz and 2 instructions a cycle; the device's work request is added: assumed |
    /// | `completed` | each completed operation | `60ns` | the runtime takes 390 instructions, 55 ns likewise; polling the completion queue is added: assumed |
    /// | `cached` | each hit of [`Cached`](crate::Cached), and [`Work::CachedAccess`](crate::sim::Work) | `10ns` | a look-up in a hash table in the processor's cache: assumed |
    /// | `served` | [`Work::RequestServed`](crate::sim::Work), by programs, and each request that a trustee executes for another thread | `20ns` | 19 ns measured with full batches on `shm:` (Zen 5; `shm.trust.served.ratio_to_simulated` of the figures) |
    ///
    /// Programs charge their own work with [`ct.compute`](ComputeThread::compute).
    ///
    /// A simulated process has a keeper if `dead=marked` or `sweep=yes`: a task of its first thread that runs every four round trips and dies with
    /// the thread. It costs READs, so tests of exact counts do without keepers. A foreign future that never completes is then reported as
    /// [`OutOfTime`](crate::sim::Finding::OutOfTime) instead of a deadlock. A run ends when the memory that was lost in it has been swept. With
    /// `sweep=yes` and `leaks=fail` the last keeper then sweeps once more as the only member, and reports every block that is still lost.
    ///
    /// `shm:` takes `seed`, `placement`, `max-retired` and `secret-file`. `tcp:` and `rdma:` take these and the following (memory nodes announce the size
    /// of their memory):
    ///
    /// | option | meaning | default | bounds |
    /// |---|---|---|---|
    /// | `timeout` | time after which an unanswered operation, or an attempt to connect, fails | `2s` | from 1 ms |
    /// | `lane-policy` | assignment of threads to connections to a memory node: `one-to-one`, each has its own; `mod`, by its index; `rr`, in turn; `rand`, at random | `one-to-one` | |
    /// | `lanes` | number of shared connections to each memory node; implies the policy `mod` | 4 if shared | from 1 |
    /// | `secret-file` | file with the cluster's secret, readable by its owner only | the variable `FARFIELD_SECRET_FILE`, else no secret | |
    /// | `encrypt` | `tcp:` only: `no` to send all but the proofs of the secret in the clear, to memory nodes that allow it | `yes` | `yes`, `no` |
    /// | `direct` | `tcp:` only: `no` to keep compute threads from connecting to each other for delegation, which goes over memory nodes then | `yes` | `yes`, `no` |
    /// | `ack-timeout` | `rdma:` only: exponent of the device's retransmission timeout: 4.096 us times two to this power | hardware: eight retransmissions within the timeout; software: 24 | 1 to 31 |
    ///
    /// If the variable `FARFIELD_STALL` is a duration such as `5s`, from 1 ms to an hour, each longer wait is reported once, by a line on stderr: the
    /// thread and task, the awaited event, and the thread or process that delays it. If it is `0` or not set, no wait is reported. In a simulation
    /// virtual time counts. The library prints no other output. Reports cost nothing while they are off, and only waiting threads if they are on.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] naming the invalid option; [`Error::System`] if the memory can not be mapped or there is no RDMA device;
    /// [`Error::CannotConnect`] naming the first memory node that is unreachable, or its reason for refusing; [`Error::InvalidArgument`] if
    /// `FARFIELD_STALL` is not such a duration.
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_and(url, StartupCollection::IfAlone).map(|(cluster, _)| cluster)
    }

    /// Frees all memory of a cluster that is not reachable from its roots, and returns how many bytes that were. The cluster must have no members; a
    /// process that joins meanwhile waits.
    ///
    /// [`connect`](Self::connect) does the same if processes have died since the last collection and the cluster has no members. The book's chapter
    /// "When a client dies" lists what a dead process leaves until then, or until it is swept.
    ///
    /// Costs a round trip for up to 32 objects, and some for each segment and each chunk in use.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the cluster has members, naming them, or is private to one process; those of [`connect`](Self::connect).
    pub fn collect(url: &str) -> Result<u64> {
        let (cluster, bytes) = Self::connect_and(url, StartupCollection::Required)?;
        if cluster.is_private() {
            let (value, reason) =
                (format!("of {url}").into(), "it is for clusters that several processes can share");
            return Err(Error::from(error::InvalidArgument { argument: "collect", value, reason }));
        }
        Ok(bytes)
    }

    fn connect_and(url: &str, collection: StartupCollection) -> Result<(Self, u64)> {
        let mut config = Config::parse(url)?;
        let stall_limit = stall::limit()?;
        let backing = Backing::connect(&mut config)?;
        let collector = crate::epoch::primitive::Arc::new(Collector::new());
        let segments = config.geometry.segments();
        let is_alone = backing.identity().is_none();
        let process = match backing.identity() {
            Some(identity) => Some(Process::one_of_several(identity, 0, 1, segments)),
            None if backing.world().is_some() => None,
            None => Some(Process::solo(crate::epoch::primitive::Arc::clone(&collector), 0, segments)),
        };
        let mut cluster = Self {
            keeper: None,
            group: None,
            shared: Arc::new(Shared {
                url: url.into(),
                config,
                identities: Arc::new(Identities::new(backing.identity())),
                failures: Arc::default(),
                orphans: Arc::default(),
                backing,
                process: process.map(Arc::new),
                member_state: AtomicCell::default(),
                collector,
                registry: Arc::new(Registry::new(is_alone)),
                runs: Runs::default(),
                spare: Mutex::default(),
                quarantined: Mutex::default(),
                next_run: AtomicU64::new(1),
                totals: Mutex::default(),
                stall_limit,
                others: stalls::Others::default(),
            }),
        };
        if let (Some(limit), Some(world)) = (stall_limit, cluster.shared.world()) {
            world.lock().report_stalls(limit)?;
        }
        let mut collected = 0;
        if !is_alone {
            cluster.shared.backing.prepare_background()?;
            let (keeper, bytes) = keeper::start(&cluster, collection)?;
            cluster.keeper = Some(Arc::new(keeper));
            collected = bytes;
        }
        tracing::debug!(url, "connected");
        Ok((cluster, collected))
    }

    /// Starts `threads` compute threads, runs `body` on each, and waits for all. Returns their results, by index.
    ///
    /// `body` is an `async |ct| { … }` closure or the name of an `async fn`. A closure that returns an `async` block, `|ct| async move { … }`, does
    /// not compile: its future would borrow `ct` for longer than the closure. The compiler reports that as a missing type annotation for `ct`
    /// (E0282). Write `async |ct|` instead.
    ///
    /// ```
    /// # let cluster = farfield::Cluster::connect("local:size=64KiB")?;
    /// cluster.run(4, async |ct| ct.barrier("here").await)?; // not: |ct| async move { ct.barrier("here").await }
    /// # Ok::<(), farfield::Error>(())
    /// ```
    ///
    /// Afterwards no thread can hold a pointer, so all retired objects are freed, unless another run of the same cluster is under way.
    ///
    /// Several threads of a program may each start a run, concurrently. Each run has its own indices and [barriers](ComputeThread::barrier); roots
    /// and memory belong to the cluster.
    ///
    /// # Errors
    /// The error of the failed thread with the lowest index; [`Error::BarrierBroken`], the consequence of another thread's failure, only if no thread
    /// has another error. An operation that a thread has [posted](crate::Chain::post) and that fails after its last other operation is a failure of the
    /// thread. Before any thread starts:
    /// - [`Error::InvalidArgument`] for 0 threads; for more than 262,144 simulated ones (each takes some 15 KiB of memory), more than 16,510 compute
    ///   nodes, or more than segment 0 has epoch slots for; for more than 8,192 threads of a process at a time, all its runs included; inside another
    ///   run of the cluster; for a second concurrent run of a simulated cluster or of a [group](Self::in_group).
    /// - [`Error::System`] if the system can not start the threads.
    ///
    /// # Panics
    /// Propagates a thread's panic, once all threads have ended.
    pub fn run<R: Send>(
        &self,
        threads: usize,
        body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let (mut values, mut died, mut broken) = (Vec::new(), None, None);
        for (thread, result) in self.run_all(threads, body)?.into_iter().enumerate() {
            match result {
                Some(Ok(value)) => values.push(value),
                Some(Err(error @ Error::BarrierBroken { .. })) => broken = broken.or(Some(error)),
                Some(Err(error)) => return Err(error),
                None => died = died.or(Some(Error::from(error::ComputeNodeDied { thread }))),
            }
        }
        died.or(broken).map_or(Ok(values), Err)
    }

    /// Like [`run`](Self::run), for runs in which compute threads may die. Returns each thread's result, or `None` for a thread that a fault has
    /// killed.
    ///
    /// Only the simulator kills threads.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), of the threads that survive.
    ///
    /// # Panics
    /// Like [`run`](Self::run).
    pub fn run_surviving<R: Send>(
        &self,
        threads: usize,
        body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync,
    ) -> Result<Vec<Option<R>>> {
        let (mut values, mut broken) = (Vec::new(), None);
        for result in self.run_all(threads, body)? {
            match result.transpose() {
                Ok(value) => values.push(value),
                Err(error @ Error::BarrierBroken { .. }) => broken = broken.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        broken.map_or(Ok(values), Err)
    }

    /// Runs `body` on each thread. Returns each thread's result, or `None` if a fault has killed it.
    fn run_all<R: Send>(
        &self,
        threads: usize,
        body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync,
    ) -> Result<Vec<Option<Result<R>>>> {
        let shared = &self.shared;
        let reserved = run::reserve(shared, threads)?;
        shared.check_memory_node()?;
        let active = self.begin_run()?;
        let _joint = self.group.as_ref().map(|_| self.begin_joint_run()).transpose()?;
        shared.backing.prepare(threads)?;
        let _span = tracing::debug_span!("run", threads).entered();
        let joint = self.meet(threads)?;
        let run = Arc::new(Run::new(self, threads, joint)?);
        let Some(world) = shared.world() else {
            let results = run_threads(
                &reserved,
                |index| {
                    let _computing = Computing::begin(shared);
                    let ct = ComputeThread::new(self, &run, index);
                    block_on(ct.worker(), live(&ct, &body))
                },
                |missing| {
                    for index in missing {
                        run.depart();
                        run.account(index, Metrics::default());
                    }
                },
            );
            drop(active);
            return Ok(results?.into_iter().map(Some).collect());
        };
        let computing = Computing::begin(shared);
        let ran =
            sim::simulate(world, threads, run.id_of(0).number().get(), &Simulated::new(self, run, body));
        drop((computing, active));
        let ran = ran?;
        let sound = |ran: &ThreadOutcome<Result<R>>| matches!(ran, ThreadOutcome::Returned(Ok(_)));
        if ran.iter().all(sound) {
            look_for_leaks(world)?;
        }
        let result = |ran| match ran {
            ThreadOutcome::Returned(result) => Some(result),
            ThreadOutcome::Died => None,
        };
        Ok(ran.into_iter().map(result).collect())
    }
}

/// Runs a compute thread, from joining the cluster's members to leaving them.
pub(crate) async fn live<R>(
    ct: &ComputeThread,
    body: &impl AsyncFn(&ComputeThread) -> Result<R>,
) -> Result<R> {
    if let Err(error) = ct.join_members().await {
        ct.depart(); // before its process leaves: later, another process may have its record
        ct.settle().await;
        ct.leave_members().await;
        return Err(error);
    }
    let output = run_beside_keeper(ct, attend(ct, body(ct))).await;
    // This precedes the process's departure: its next run counts departures from 0.
    ct.depart();
    let leaves = ct.in_service(async {
        ct.drain_limbo().await;
        ct.release_heap().await;
        ct.settle().await;
        ct.leave_members().await;
    });
    leaves.await;
    match ct.take_deferred_error() {
        Some(error) if output.is_ok() => Err(error),
        _ => output,
    }
}
