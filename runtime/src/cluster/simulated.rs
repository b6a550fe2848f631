//! Runs of simulated threads: start, death, keepers, and the check for leaks.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::connect::live;
use super::keeper::Sweeper;
use crate::error::{Error, Result};
use crate::io::Metrics;
use crate::io::operations::*;
use crate::segment::control::{self, CONTROL_BYTES, HEADER_BYTES};
use crate::session::run::Run;
use crate::session::{Cluster, ComputeThread};
use farfield_sim::{self as sim, KEEPER_TASK, ThreadFuture};
use farfield_words::Address;
use farfield_words::WORD_BYTES;

/// A run of simulated threads.
pub(super) struct Simulated<'a, B> {
    cluster: &'a Cluster,
    run: Arc<Run>,
    body: B,
}

impl<'a, B> Simulated<'a, B> {
    pub(super) fn new(cluster: &'a Cluster, run: Arc<Run>, body: B) -> Self {
        Self { cluster, run, body }
    }
}

impl<R: Send, B: AsyncFn(&ComputeThread) -> Result<R> + Sync> sim::Body for Simulated<'_, B> {
    type Output = Result<R>;

    fn start(&self, thread: usize) -> ThreadFuture<'_, Result<R>> {
        Box::pin(async move {
            let ct = ComputeThread::new(self.cluster, &self.run, thread);
            live(&ct, &self.body).await
        })
    }

    fn failed(output: &Result<R>) -> bool {
        !matches!(output, Ok(_) | Err(Error::BarrierBroken { .. } | Error::NodeUnreachable { .. }))
    }

    fn died(&self, thread: usize) {
        self.run.thread_died(thread);
        self.run.depart();
        self.run.account(thread, Metrics::default());
    }
}

/// The interval of a simulated keeper's ticks, in round trips. A real one sleeps for thousands of round trips, but simulated runs are short.
const TICK_RTTS: u32 = 4;
/// The time for which a keeper resumes a sweep at a time when its process has no other work, in round trips.
const IDLE_SWEEP_RTTS: u32 = 64;
/// The number of ticks without a death before a sweep starts.
const QUIET_TICKS: u32 = 2;
/// The number of ticks for which the keeper of a process whose threads have ended waits for lost memory to be swept.
const PATIENCE: u32 = 2000;
/// The number of ticks that one failed tick counts for: sweeps fail where links are cut again and again.
const FAILED_TICKS: u32 = 50;
/// The pause after a sweep: none, since runs are short.
const SWEEP_PAUSE: u32 = 0;

/// Runs a thread's body, and beside it its process's keeper, if the run has keepers and it is its process's first thread. A real keeper has a thread
/// of its own; this one shares its thread's processor, and dies with it.
pub(super) async fn run_beside_keeper<R>(ct: &ComputeThread, body: impl Future<Output = R>) -> R {
    let keeps = ct.cluster().shared.world().and_then(|world| {
        let config = world.lock().config().clone();
        (config.has_keepers() && ct.index().is_multiple_of(config.threads_per_node as usize))
            .then_some(config.sweeps)
    });
    let Some(sweeps) = keeps.filter(|_| ct.process.member().is_some()) else { return body.await };
    let (is_done, mut output) = (Cell::new(false), None);
    let (mut body, mut keeper) = (pin!(body), pin!(ct.in_service(keep(ct, sweeps, &is_done))));
    poll_fn(|context| {
        if !is_done.get()
            && let Poll::Ready(done) = body.as_mut().poll(context)
        {
            // The other threads of the process must not wait for this one, which waits for them.
            ct.depart();
            is_done.set(true);
            output = Some(done);
        }
        let task = ct.enter_task(KEEPER_TASK);
        let kept = keeper.as_mut().poll(context);
        ct.enter_task(task);
        kept.map(|()| output.take().expect("a keeper ends last"))
    })
    .await
}

/// The phase of a keeper.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its process's threads run, or lost memory is swept.
    Keeping,
    /// All threads have ended. The run's last keeper waits until all other processes have left.
    WaitsForOthers,
    /// The last keeper has requested a sweep.
    SweepsLast,
}

/// Runs the keeper of a process, until its threads have ended and lost memory is freed.
///
/// One keeper is the last. It waits until its process is the only member, sweeps once more if any process has died, and reports losses. In a cluster
/// with other members a sweep may keep lost memory: a stale word points to it, or its writer lives and might still link it. Without other members
/// garbage is freed, and an object that no root points to is a leak, whichever process wrote it. A word in an object in use may still look like a
/// link to lost memory; such memory is not reported.
async fn keep(ct: &ComputeThread, sweeps: bool, is_done: &Cell<bool>) {
    let rtt = ct.cluster().simulation().map_or(Duration::ZERO, |simulation| simulation.rtt());
    let (tick, idle_sweep) = (rtt * TICK_RTTS, rtt * IDLE_SWEEP_RTTS);
    let checks_losses =
        sweeps && ct.cluster().shared.world().is_some_and(|world| world.lock().config().leaks_fail);
    let mut sweeper = Sweeper::new(ct, QUIET_TICKS * tick, SWEEP_PAUSE);
    let (mut patience, mut phase) = (PATIENCE, Phase::Keeping);
    while patience > 0 {
        let evicted = ct.evict_gone(|_| false).await;
        let has_evicted = matches!(evicted, Ok(1..));
        if has_evicted && phase == Phase::Keeping {
            ct.run.release_last_keeper();
        }
        let attended = if sweeps { ct.answer_sweep().await } else { Ok(None) };
        // A link may be cut: the next tick retries.
        let has_failed = evicted.is_err() || attended.is_err();
        let debt = attended.unwrap_or_default();
        if let Err(error) = sweeper.resume(debt, if is_done.get() { idle_sweep } else { tick }).await {
            tracing::warn!(%error, "could not sweep memory");
        }
        if ct.has_garbage() {
            ct.try_reclaim().await;
        } else {
            ct.follow_epoch().await;
        }
        if is_done.get() && ct.process.has_one_thread() {
            patience = patience.saturating_sub(if has_failed { FAILED_TICKS } else { 1 });
            let is_busy = debt.is_some() || sweeper.is_busy() || ct.process.sweep_barrier.is_active();
            let is_settled = !is_busy && !has_evicted && !has_failed;
            match phase {
                _ if !is_settled => {}
                Phase::Keeping if checks_losses && ct.run.is_over() && ct.run.claim_last_keeper() => {
                    (phase, patience) = (Phase::WaitsForOthers, PATIENCE);
                }
                Phase::Keeping => break,
                Phase::WaitsForOthers if is_alone(ct).await => match request_last_sweep(ct).await {
                    Ok(true) => (phase, patience) = (Phase::SweepsLast, PATIENCE),
                    Ok(false) | Err(_) => break,
                },
                Phase::WaitsForOthers => {}
                Phase::SweepsLast => {
                    report_losses(ct).await;
                    break;
                }
            }
        }
        ct.sleep(tick).await;
    }
    sweeper.end().await;
}

async fn is_alone(ct: &ComputeThread) -> bool {
    ct.members().await.is_ok_and(|members| members.len() == 1)
}

/// Requests a sweep if any process has died since the cluster was made. Returns whether one has.
async fn request_last_sweep(ct: &ComputeThread) -> Result<bool> {
    if ct.read_word(control::evictions()).await? == 0 {
        return Ok(false);
    }
    ct.forget_written();
    ct.fetch_add_word(control::unclean_exits(), 1).await.map(|_| true)
}

/// Reports memory that is still lost after a sweep by the only member.
async fn report_losses(ct: &ComputeThread) {
    // Blocks in transit to the pool are in no list.
    ct.give_everything();
    ct.wait_for_detached().await;
    if let (Ok(lost), Some(world)) = (ct.lost_blocks().await, ct.cluster().shared.world()) {
        world.lock().lost(&lost);
    }
}

/// Reports objects that are neither freed nor reachable, at the end of a run. After deaths in a cluster with sweeping the last keeper has checked
/// instead. A block that it kept because some word looks like a link is not reported by a later run. If its own process died after all others had
/// left, no process could check.
pub(super) fn look_for_leaks(world: &sim::SharedWorld) -> Result<()> {
    let mut world = world.lock();
    let is_checked = world.config().sweeps && world.has_deaths();
    if !world.config().leaks_fail || is_checked {
        return Ok(());
    }
    let words = |segment, offsets: std::ops::Range<u64>| {
        offsets.step_by(WORD_BYTES).map(move |offset| Address::new(segment, offset))
    };
    let roots = words(0, HEADER_BYTES..CONTROL_BYTES).map(|at| world.peek(at)).collect();
    world.look_for_leaks(roots);
    world.finding().map_or(Ok(()), |finding| Err(finding.into()))
}
