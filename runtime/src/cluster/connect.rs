//! Connecting to a cluster, and running threads on it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use crossbeam_utils::atomic::AtomicCell;
use farfield_fabric::host::run_threads;
use farfield_fabric::stall;
use farfield_sim::{self as sim, ThreadOutcome};

use super::keeper::{self, AtFirst};
use super::simulated::{Simulated, keep_beside, look_for_leaks};
use crate::epoch::Collector;
use crate::error::{self, Error, Result};
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
    /// | `local:` | memory of this process, gone when the cluster is dropped |
    /// | `sim:` | the same, behind a simulated network, in virtual time: see [`sim`](crate::sim) |
    /// | `shm:NAME` | memory that processes of this machine share; `farfield memnode --cluster shm:NAME` has made it |
    /// | `rdma://HOST:PORT,HOST:PORT` | memory of these memory nodes, reached by RDMA; in a build with the feature `verbs` |
    ///
    /// Options follow the colon, separated by commas; for `shm:` and `rdma:` a question mark that follows the rest:
    ///
    /// | option | meaning | default | bounds |
    /// |---|---|---|---|
    /// | `nodes` | memory nodes | 1 | 1 to 65535, `nodes * segments` to 65536 |
    /// | `segments` | segments on each | 1 | likewise |
    /// | `size` | of each segment: `64KiB`, `16MiB`, `2GiB`, … | `256MiB` | over 27328 bytes (its control block) |
    /// | `seed` | what the threads' random generators start from, and everything in a simulation | 0 | 64 bits |
    /// | `placement` | where objects go if nobody says: a [`Policy`](crate::Policy) | `global-rr` | `rand`, `global-rr`, `global-mod`, `local-rr`, `local-mod` |
    /// | `max-retired` | bytes that a thread may have retired that a guard keeps from being freed; beyond, [`Error::ReclamationHeldBack`] | half of all far memory | |
    /// | `delay` | `local:` only: operations complete at a random poll up to this one, so that tasks interleave; for tests | 0 | to 65536 |
    ///
    /// `sim:` has these besides. Durations are written like `500ns`, `2us`, `1.5ms`, `3s`, up to an hour.
    ///
    /// | option | meaning | default | bounds, source |
    /// |---|---|---|---|
    /// | `rtt` | how long a chain takes where nothing is in the way | `2us` | from 1 ns; the order that the field reports for a small READ (HERD, SIGCOMM 2014), not measured by us |
    /// | `bandwidth` | of a link | `100Gbps` | `inf` for no limit; one port of a common NIC |
    /// | `rate` | operations a second that a memory node serves | `20M` | `inf` for no limit; SMART (ASPLOS 2024) measured 19 M READs a second with a queue pair for each thread |
    /// | `jitter` | by how much each way of a trip may be shorter or longer | `10%` | 0% to 100%; assumed |
    /// | `doorbell` | how long a compute node's NIC is busy with what a thread posts to a memory node at one time | `100ns` | assumed: the order of an uncached write to a device |
    /// | `compute` | what a thread's own work takes: `0` for nothing, or a list such as `posted:60ns+cached:5ns`, where what is not named keeps its default. See below | as below | `0`, or from 0 ns each |
    /// | `timeout` | when an operation that is not answered fails | `100us` | from 1 ns |
    /// | `limit` | virtual time after which a run is given up | `60s` | from 1 us |
    /// | `threads-per-node` | compute threads that share a compute node: its NIC, its fate, its epoch slot | 1 | from 1; a run has at most 16510 compute nodes and 262144 threads |
    /// | `crash` | chance, for each chain posted, that its compute node dies (one survives) | `0%` | |
    /// | `stall` | that its compute node does nothing for up to 100 round trips | `0%` | |
    /// | `cut` | that the link to its memory node is cut for up to 100 round trips | `0%` | |
    /// | `memory-crash` | that its memory node dies | `0%` | |
    /// | `slow` | chance, for each memory node, that it is ten times slower all along | `0%` | |
    /// | `leaks` | what an object is that no root leads to when a run ends: `fail` or `ignore` | `fail` | looked at if all threads succeeded; threads that die leave what they had not linked, so that later runs fail; `ignore` gives up finding leaks of living threads too |
    /// | `reclaim` | when epochs advance: `eager`, as soon as no guard forbids it, without operations; `lazy`, by steps that take round trips, now and then, as on real fabrics | `eager` | `lazy` is for counting what those do |
    /// | `reuse` | what becomes of freed blocks: `at-once`, the block that a thread freed last is the next of its size that it hands out; `never`, they are kept out of use until memory is short; `seed`, one of both | `seed`; with `reclaim=lazy` `at-once` | |
    /// | `dead` | what becomes of a compute node that dies: `cleared`, it is out of the way at once and leaves its memory to the others; `marked`, as on a real cluster, where a memory node marks it, the keeper of another process evicts it, and what it had is lost | `cleared` | |
    /// | `sweep` | `yes`: keepers sweep up what is lost, as with `farfield memnode --sweep`; then the dead are marked, too | `no` | |
    /// | `plant` | a bug of ours, for a checker to find, such as `early-reclamation`, `same-version` or `sweep-without-guards`; an unknown name is answered with the list of all | `none` | |
    ///
    /// A simulated thread is one processor: its tasks compute one after the other, a chain leaves when its thread has posted it, and a completion
    /// is handled when the thread is free. What that costs:
    ///
    /// | `compute=` | is charged for | default | source |
    /// |---|---|---|---|
    /// | `posted` | each operation that is posted | `60ns` | ours are 275 instructions (callgrind, release build, x86-64), 40 ns at 3.5 GHz and 2 instructions a cycle; the device's work request on top: assumed |
    /// | `completed` | each operation that completes | `60ns` | ours are 390 instructions, 55 ns likewise; the look into the completion queue on top: assumed |
    /// | `cached` | each use of a handle that [`Cached`](crate::Cached) has, and [`Work::CachedAccess`](crate::sim::Work) | `10ns` | a look-up in a hash table that is in the processor's cache: assumed |
    /// | `served` | [`Work::RequestServed`](crate::sim::Work): nothing in the runtime serves requests yet | `100ns` | eRPC (NSDI 2019) reports 10 million small requests a second on one core |
    ///
    /// What a program computes itself it says with [`ct.compute`](ComputeThread::compute).
    ///
    /// A simulated process has a keeper if `dead=marked` or `sweep=yes`: a task of its first thread that runs every four round trips and dies with
    /// the thread. It costs READs, so tests of exact counts do without keepers. A foreign future that never ends is then reported as
    /// [`OutOfTime`](crate::sim::Finding::OutOfTime) instead of a deadlock. A run ends when the memory that was lost in it has been swept.
    /// With `sweep=yes` and `leaks=fail` the last keeper then sweeps once more while its process is alone, and reports every block that is still lost.
    ///
    /// `shm:` takes `seed`, `placement`, `max-retired` and `secret-file`; `rdma:` takes these besides (memory nodes say how much memory they have):
    ///
    /// | option | meaning | default | bounds |
    /// |---|---|---|---|
    /// | `timeout` | when an operation that is not answered fails, and an attempt to connect | `2s` | from 1 ms |
    /// | `qp-policy` | how threads share queue pairs to a memory node: `one-to-one`, each has its own; `mod`, by its index; `rr`, in turn; `rand`, at random | `one-to-one` | |
    /// | `qp-lanes` | how many there are to share; makes the policy `mod` | 4 if shared | from 1 |
    /// | `secret-file` | the file with the cluster's secret, readable by its owner only | what `FARFIELD_SECRET_FILE` names, else no secret | |
    /// | `ack-timeout` | how long the device waits before it sends a packet again: 4.096 us times two to this power | hardware: eight times within the timeout; in software: 24 | 1 to 31 |
    ///
    /// If the variable `FARFIELD_STALL` is a duration such as `5s`, from 1 ms to an hour, whatever waits longer is reported, once, by a line on
    /// stderr: which thread and task waits for what, and who keeps it. Off if it is `0` or not set. In a simulation virtual time counts. This is the
    /// only thing that the library prints. It costs nothing where it is off, and where it is on only what waits anyway.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `FARFIELD_STALL` is no such duration; [`Error::InvalidUrl`] naming the option at fault; [`Error::System`] if the memory can not be mapped or there is no RDMA
    /// device; [`Error::CannotConnect`] naming the first memory node that can not be reached, or why it refuses.
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_and(url, AtFirst::CollectsIfAlone).map(|(cluster, _)| cluster)
    }

    /// Takes back all memory of a cluster that no root leads to, and returns how many bytes that were. For a cluster that no process uses:
    /// one that joins meanwhile waits.
    ///
    /// [`connect`](Self::connect) does so too if processes have died since the last time and none is there. What each of them has left,
    /// until then or until it is swept, is told in the book's chapter "When a client dies".
    ///
    /// Costs a round trip for up to 32 objects, and some for each segment and each chunk in use.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] naming the other processes if there are some, or if the cluster is one process's own; those of
    /// [`connect`](Self::connect).
    pub fn collect(url: &str) -> Result<u64> {
        let (cluster, bytes) = Self::connect_and(url, AtFirst::Collects)?;
        if cluster.is_private() {
            let (value, reason) =
                (format!("of {url}").into(), "it is for clusters that several processes can share");
            return Err(Error::from(error::InvalidArgument { argument: "collect", value, reason }));
        }
        Ok(bytes)
    }

    fn connect_and(url: &str, at_first: AtFirst) -> Result<(Self, u64)> {
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
            let (keeper, bytes) = keeper::start(&cluster, at_first)?;
            cluster.keeper = Some(Arc::new(keeper));
            collected = bytes;
        }
        tracing::debug!(url, "connected");
        Ok((cluster, collected))
    }

    /// Starts `threads` compute threads, runs `body` on each, and waits for all; gives what they return, by index.
    ///
    /// `body` is an `async |ct| { … }` closure or the name of an `async fn`. A closure that returns an `async` block,
    /// `|ct| async move { … }`, is refused: its future would borrow `ct` for longer than the closure has it. The compiler does not say
    /// so, but that a type annotation is needed for `ct` (E0282). Write `async |ct|` instead.
    ///
    /// ```
    /// # let cluster = farfield::Cluster::connect("local:size=64KiB")?;
    /// cluster.run(4, async |ct| ct.barrier("here").await)?; // not: |ct| async move { ct.barrier("here").await }
    /// # Ok::<(), farfield::Error>(())
    /// ```
    ///
    /// Afterwards no thread is left that could hold a pointer, so everything they had retired is freed (unless another
    /// run of the same cluster is under way).
    ///
    /// Several threads of a program may each start a run, and these are under way at the same time. Indices and
    /// [barriers](ComputeThread::barrier) are each run's own; roots and memory are the cluster's.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for 0 threads; for more than 262,144 simulated ones (they take some 15 KiB of memory each), or so
    /// many that their compute nodes are more than 16,510 or have no room for their epoch slots in segment 0; if the
    /// process would have more than 8,192 others at a time, those of its other runs included, inside another run of the cluster, and
    /// for a second run at a time of a simulated cluster or of a [group](Self::in_group); [`Error::System`] if the system starts no
    /// more; else the error of the
    /// thread with the lowest index that failed, one that merely found a [barrier broken](Error::BarrierBroken) by
    /// another's failure coming last.
    ///
    /// # Panics
    /// With a thread's panic, once all threads have ended.
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

    /// As [`run`](Self::run), where compute threads may die: gives what each returned, or `None` for one that a fault
    /// has killed.
    ///
    /// Only the simulator kills threads.
    ///
    /// # Errors
    /// As [`run`](Self::run), for the threads that survive.
    ///
    /// # Panics
    /// As [`run`](Self::run).
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

    /// Runs `body` on each thread; gives what each returned, unless a fault killed it.
    fn run_all<R: Send>(
        &self,
        threads: usize,
        body: impl AsyncFn(&ComputeThread) -> Result<R> + Sync,
    ) -> Result<Vec<Option<Result<R>>>> {
        let shared = &self.shared;
        let reserved = run::reserve(shared, threads)?;
        shared.check_memory_node()?;
        let under_way = self.begin_run()?;
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
            drop(under_way);
            return Ok(results?.into_iter().map(Some).collect());
        };
        let computing = Computing::begin(shared);
        let ran =
            sim::simulate(world, threads, run.id_of(0).number().get(), &Simulated::new(self, run, body));
        drop((computing, under_way));
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

/// The life of a compute thread.
pub(crate) async fn live<R>(
    ct: &ComputeThread,
    body: &impl AsyncFn(&ComputeThread) -> Result<R>,
) -> Result<R> {
    if let Err(error) = ct.join_members().await {
        ct.depart(); // before its process leaves: the record that says so may be another's afterwards
        ct.settle().await;
        ct.leave_members().await;
        return Err(error);
    }
    let output = keep_beside(ct, body(ct)).await;
    // Settled with everything else: the process's next run counts from 0.
    ct.depart();
    ct.leave_garbage().await;
    ct.leave_heap().await;
    ct.settle().await;
    ct.leave_members().await;
    output
}
