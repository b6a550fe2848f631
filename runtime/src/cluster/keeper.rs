//! The keeper: a background thread of each process that keeps it a member, whether its compute threads run or not.
//!
//! A cluster of several processes needs each process to send heartbeats, to follow the epoch, and to evict dead members. The keeper does so every
//! [`TICK`], or less often while the process is idle:
//! - it increments the heartbeat in its process's record;
//! - it takes a step of the epoch scheme, so that an idle process delays reclamation for at most a tick;
//! - it reclaims objects that ended threads of the process have retired, and returns memory that other processes request;
//! - it evicts dead processes (see `membership/members.rs`);
//! - in a cluster with sweeping it sweeps their memory, and answers sweeps of other processes (see [`sweep`](crate::sweep)). In any other cluster
//!   dead processes' memory is collected by a process that is the only member (`admin/collect.rs`).
//!
//! It has a compute thread of its own, outside any run. The process takes its record when it connects, and releases it when it disconnects, both
//! through the keeper; in between its compute threads come and go.
//!
//! A keeper whose tick fails retries with the next one. A keeper that panics is replaced, with a new compute thread: without a keeper the process
//! would evict no dead member, and would itself delay reclamation for ever. Each failure is reported to a subscriber of `tracing` (a repeated one
//! at most once in 10 s) and counted for the program ([`Cluster::keeper_failures`]).

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use crate::admin::Pace;
use crate::error::{Error, Result};
use crate::io::KeeperFailures;
use crate::io::Purpose;
use crate::io::block_on;
use crate::io::operations::*;
use crate::membership::in_the_way;
use crate::memory::reclaim::EPOCHS_TO_LEAVE;
use crate::segment::control::Record;
use crate::segment::record::SeenMember;
use crate::segment::{control, decode};
use crate::session::run::Run;
use crate::session::{Cluster, ComputeThread};
use crate::sweep::SweepOutcome;
use farfield_fabric::host::{BackgroundThread, StopSignal, first_line};
use farfield_fabric::stall::{Waiting, blocked};

/// The interval of ticks: the delay with which the keeper reacts.
const TICK: Duration = Duration::from_millis(5);
/// The longest interval of ticks, while the epoch does not advance.
const MAX_TICK: Duration = Duration::from_millis(40);
/// The number of longest intervals for which a leaving process waits for the others to follow the epoch.
const PATIENCE: u32 = 4;
/// The interval of polls in that wait.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The number of ticks without a death before a sweep starts: another death would interrupt it.
const QUIET_TICKS: u32 = 4;
/// The delay before a keeper that has panicked is replaced. It doubles with each panic.
const RESTART: Duration = Duration::from_millis(10);
const MAX_RESTART: Duration = Duration::from_secs(1);
/// The pause after a sweep, in durations of that sweep's work.
const SWEEP_PAUSE: u32 = 9;

/// The collection that a keeper does before its process is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StartupCollection {
    /// Collects if dead processes have left memory, and this process is the only member.
    IfAlone,
    /// Collects, or fails if there are other members.
    Required,
}

impl Cluster {
    /// Returns the failures of this process's keeper, the background thread that keeps it a member, since it connected. A private cluster (`local:`,
    /// `sim:`) has no keeper and no failures.
    pub fn keeper_failures(&self) -> KeeperFailures {
        self.shared.failures.counted()
    }
}

/// Starts a process's keeper, and waits until the process has joined. Returns how many lost bytes were collected.
pub(super) fn start(cluster: &Cluster, collection: StartupCollection) -> Result<(BackgroundThread, u64)> {
    let (joined, waits) = mpsc::channel();
    let kept = cluster.without_keeper();
    let keeper = BackgroundThread::start("keeper", move |stop| supervise(&kept, collection, stop, joined))?;
    let _waiting = blocked(|| "the keeper to join the cluster".to_owned());
    match waits.recv() {
        Ok(Ok(bytes)) => Ok((keeper, bytes)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::other("the keeper has ended")),
    }
}

/// Runs one keeper after another, until one has left the cluster in order.
fn supervise(
    cluster: &Cluster,
    collection: StartupCollection,
    stop: &StopSignal,
    joined: Sender<Result<u64>>,
) {
    let (joined, mut pause, mut is_told) = (Cell::new(Some((collection, joined))), RESTART, false);
    loop {
        let life = AssertUnwindSafe(|| -> Result<()> {
            let run = Arc::new(Run::of_keeper(cluster)?);
            let ct = ComputeThread::new(cluster, &run, 0);
            block_on(ct.worker(), keep(&ct, stop, &joined))
        });
        let (error, panics) = match catch_unwind(life) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => (error, 0),
            Err(panic) => (Error::other(format!("the keeper has panicked: {}", first_line(panic))), 1),
        };
        tracing::error!(%error, "the keeper has ended; another takes its place");
        cluster.shared.failures.note_end(&error, panics);
        if let Some((_, joined)) = joined.take() {
            return drop(joined.send(Err(error)));
        }
        // After a stop signal the next keeper still leaves in order. If that fails, too, other processes evict this one.
        if std::mem::replace(&mut is_told, stop.wait(pause)) {
            return;
        }
        pause = (2 * pause).min(MAX_RESTART);
    }
}

/// The collection to be done before the process is used, and the channel to the caller that waits for it.
type Startup = Cell<Option<(StartupCollection, Sender<Result<u64>>)>>;

/// Runs a keeper until it is stopped. It returns an error only if it could not join.
async fn keep(ct: &ComputeThread, stop: &StopSignal, startup: &Startup) -> Result<()> {
    ct.join_members().await?;
    let options = match ct.read_word(control::options()).await.and_then(decode::options) {
        Ok(options) => options,
        Err(error) => {
            let waits = startup.take();
            // Once the process is in use, its record stays until another keeper releases it.
            if waits.is_some() {
                ct.leave_for_good().await;
            }
            startup.set(waits);
            return Err(error);
        }
    };
    let sweeps = options & control::SWEEPS != 0;
    if !sweeps {
        ct.process.sweep_barrier.disable();
    }
    let shared = &ct.cluster().shared;
    let lease = shared.lease();
    // On a network a tick costs more, so ticks are rarer.
    let (shortest, longest) = if shared.is_remote() { (lease / 16, lease / 8) } else { (TICK, MAX_TICK) };
    let mut leases = Leases { lease, seen: HashMap::new(), sweeps };
    let mut is_member = true;
    if let Some((collection, joined)) = startup.take() {
        // Dead members are evicted, and their memory is collected, before the process is used. A panic drops the sender, which notifies the caller.
        let first = begin(ct, collection, &mut leases).await;
        is_member = first.is_ok();
        let _ = joined.send(first);
    }
    let (mut heartbeats, mut rest, mut epoch) = (1, shortest, 0);
    let mut sweeper = Sweeper::new(ct, QUIET_TICKS * shortest, SWEEP_PAUSE);
    while is_member && !stop.wait(rest) {
        heartbeats += 1;
        match tick(ct, heartbeats, &mut leases).await {
            Ok(debt) => {
                if let Err(error) = sweeper.resume(debt, shortest).await {
                    shared.failures.note(ct.time(), &error, "could not sweep memory");
                }
            }
            Err(Error::Evicted(evicted)) => {
                tracing::warn!(process = evicted.process, "this process has been evicted");
                shared.note_eviction();
                is_member = false;
            }
            Err(error) => shared.failures.note(ct.time(), &error, "the keeper could not do its work"),
        }
        // An idle process ticks less often.
        let now = ct.process.collector.epoch();
        let is_busy =
            now > epoch || ct.has_garbage() || ct.process.sweep_barrier.is_active() || sweeper.is_busy();
        rest = if is_busy { shortest } else { (2 * rest).min(longest) };
        epoch = now;
    }
    if sweeps {
        sweeper.end().await;
    }
    for _ in 0..2 {
        leave_garbage(ct, PATIENCE * longest, shortest, &mut heartbeats).await;
        // Returning the heap may take a page from the pool, which is then retired.
        ct.release_heap().await;
    }
    if ct.has_garbage() {
        // Other processes kept it from being freed, and no other process knows of it.
        let _ = ct.fetch_add_word(control::unclean_exits(), 1).await;
        let _ = ct.fetch_add_word(control::left_bytes(), ct.process_held_bytes()).await;
    }
    ct.settle().await;
    ct.leave_for_good().await;
    Ok(())
}

/// Frees the process's retired objects, as long as the other processes follow the epoch, for at most [`EPOCHS_TO_LEAVE`]. Sends heartbeats meanwhile, so that the process is not evicted
/// while it leaves.
async fn leave_garbage(ct: &ComputeThread, patience: Duration, interval: Duration, heartbeats: &mut u32) {
    let (mut moved, mut epochs) = ((ct.process.collector.epoch(), ct.now()), 0);
    let mut sent = ct.now();
    let _waiting = ct.has_garbage().then(|| ct.waits_as(Purpose::Epoch));
    loop {
        ct.take_orphans();
        if !ct.has_garbage() || ct.now().saturating_sub(moved.1) > patience || epochs == EPOCHS_TO_LEAVE {
            return;
        }
        if ct.now().saturating_sub(sent) >= interval {
            *heartbeats = heartbeats.wrapping_add(1);
            // A process that is unreachable leaves nevertheless.
            let _ = send_heartbeat(ct, *heartbeats).await;
            sent = ct.now();
        }
        ct.try_reclaim().await;
        let epoch = ct.process.collector.epoch();
        if epoch > moved.0 {
            (moved, epochs) = ((epoch, ct.now()), epochs + 1);
        } else {
            ct.park(POLL_INTERVAL);
        }
    }
}

/// The last heartbeats of the other processes.
struct Leases {
    lease: Duration,
    /// True if the cluster sweeps memory.
    sweeps: bool,
    seen: HashMap<u32, (u64, Duration)>,
}

impl Leases {
    /// Records a process's heartbeat, which was read between two times. Returns whether its lease has expired.
    ///
    /// This process may have been stopped between them. So a new heartbeat is as old as the later time, and an old one is judged by the earlier time.
    fn has_expired(&mut self, member: &SeenMember, began: Duration, ended: Duration) -> bool {
        let seen = self.seen.entry(member.identity).or_insert((member.words.heartbeat, ended));
        if seen.0 != member.words.heartbeat {
            *seen = (member.words.heartbeat, ended);
        }
        began.saturating_sub(seen.1) > self.lease
    }
}

async fn begin(ct: &ComputeThread, collection: StartupCollection, leases: &mut Leases) -> Result<u64> {
    tick(ct, 1, leases).await?;
    match collection {
        StartupCollection::IfAlone => ct.collect_if_alone().await,
        StartupCollection::Required => {
            ct.collect_alone().await?.map_err(|others| in_the_way("collect", &others))
        }
    }
}

/// Writes the heartbeat, and the bytes that would be lost if the process died.
async fn send_heartbeat(ct: &ComputeThread, heartbeats: u32) -> Result<()> {
    let Some(member) = ct.process.member() else { return Ok(()) };
    let sign = u64::from(std::process::id()) << 32 | u64::from(heartbeats);
    ct.report_held_bytes();
    let mut chain = ct.empty_chain();
    // A count of bytes may look like an address: the words written here are no links, and a sweep must not take them for links.
    chain.set_of_allocator();
    chain.write(Record::heartbeat(member.record()), &[sign, ct.process_held_bytes()]);
    ct.submit(chain).await.map(drop)
}

/// Does a keeper's periodic work. Returns the debt if memory should be swept.
async fn tick(ct: &ComputeThread, heartbeats: u32, leases: &mut Leases) -> Result<Option<u64>> {
    let shared = &ct.cluster().shared;
    shared.look_for_memory_node();
    send_heartbeat(ct, heartbeats).await?;
    ct.check_requests();
    // An error is returned after the other work is done.
    let debt = if leases.sweeps { ct.answer_sweep().await } else { Ok(None) };
    ct.take_orphans();
    if ct.has_garbage() {
        ct.try_reclaim().await;
    } else {
        ct.follow_epoch().await;
    }
    let now = ct.now();
    ct.evict_gone(|member| leases.has_expired(member, now, ct.now())).await?;
    #[cfg(all(test, target_os = "linux"))]
    tests::panic_if_told(ct);
    // Numbers of processes are not reused.
    leases.seen.retain(|_, (_, at)| now.saturating_sub(*at) < 10 * leases.lease);
    debt
}

/// The sweeps of a keeper, one after the other.
pub(crate) struct Sweeper<'a> {
    ct: &'a ComputeThread,
    pace: Rc<Pace>,
    state: SweepState<'a>,
    /// The debt, and the time since which it has not changed.
    debt: (Option<u64>, Duration),
    /// The time for which the debt must not change before a sweep starts.
    quiet: Duration,
    /// The pause after a sweep, in durations of its work: how long it waited for other processes does not count.
    pause: u32,
}

enum SweepState<'a> {
    /// No sweep is in progress. The next may start at `next`.
    Idle { next: Duration },
    /// A sweep is in progress, and has worked for a time. While it waits for other processes, `waiting` is its entry in reports of stalls, with the list
    /// and the epoch.
    Sweeping { sweep: Sweeping<'a>, worked: Duration, waiting: Option<(u64, u64, Waiting)> },
}

type Sweeping<'a> = Pin<Box<dyn Future<Output = Result<SweepOutcome>> + 'a>>;

impl<'a> Sweeper<'a> {
    pub(crate) fn new(ct: &'a ComputeThread, quiet: Duration, pause: u32) -> Self {
        let state = SweepState::Idle { next: Duration::ZERO };
        Self { ct, pace: Rc::default(), state, debt: (None, Duration::ZERO), quiet, pause }
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, SweepState::Sweeping { .. })
    }

    /// Starts a sweep if memory is lost and no process has died for a while. Resumes a started sweep, until `until`. An error ends the sweep; the
    /// next one starts later.
    pub(crate) async fn resume(&mut self, debt: Option<u64>, until: Duration) -> Result<()> {
        let (ct, now) = (self.ct, self.ct.now());
        if debt != self.debt.0 {
            self.debt = (debt, now);
        }
        if let SweepState::Idle { next } = self.state
            && debt.is_some()
            && now.saturating_sub(self.debt.1) >= self.quiet
            && now >= next
        {
            let pace = Rc::clone(&self.pace);
            let sweep = Box::pin(async move { ct.sweep(&pace).await });
            self.state = SweepState::Sweeping { sweep, worked: Duration::ZERO, waiting: None };
        }
        let SweepState::Sweeping { sweep, worked, waiting } = &mut self.state else { return Ok(()) };
        let was_late = Cell::new(false);
        let is_late = || {
            was_late.set(ct.now().saturating_sub(now) > until);
            was_late.get()
        };
        let outcome = self.pace.resume(sweep.as_mut(), is_late).await;
        *worked += ct.now().saturating_sub(now);
        let Some(outcome) = outcome else {
            note_wait(ct, waiting, !was_late.get());
            return Ok(());
        };
        self.state = SweepState::Idle { next: ct.now() + self.pause * *worked };
        outcome.map(|outcome| tracing::debug!(?outcome, "swept"))
    }

    /// Ends the sweep, because the process leaves. Its list is withdrawn.
    pub(crate) async fn end(&mut self) {
        self.state = SweepState::Idle { next: Duration::ZERO };
        let _ = self.ct.abandon_sweep(&self.pace).await;
    }
}

/// Updates a paused sweep's entry in reports of stalls. It `waits` for other processes, or was interrupted.
fn note_wait(ct: &ComputeThread, waiting: &mut Option<(u64, u64, Waiting)>, waits: bool) {
    let (list, epoch) = (ct.process.sweep_barrier.answer(), ct.process.collector.epoch());
    // A new list or epoch is progress.
    let is_same = |(was, at, _): &(u64, u64, Waiting)| (*was, *at) == (list, epoch);
    if !waits || !waiting.as_ref().is_some_and(is_same) {
        let entry = if waits { ct.waits_as(Purpose::Sweep) } else { None };
        *waiting = entry.map(|entry| (list, epoch, entry));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
