//! Runs of simulated threads: their life, their death, their keepers, and what is left.

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
        self.run.died(thread);
        self.run.depart();
        self.run.account(thread, Metrics::default());
    }
}

/// How long a simulated keeper sleeps, in round trips. A real one sleeps for thousands of them; but runs are short here.
const TICK_RTTS: u32 = 4;
/// For how long a keeper goes on with a sweep at a time when its process has nothing else to do, in round trips.
const BREATH_RTTS: u32 = 64;
/// For how many ticks nobody must have died before a sweep is begun.
const QUIET_TICKS: u32 = 2;
/// For how many ticks the keeper of a process whose threads have ended waits for lost memory to be swept.
const PATIENCE: u32 = 2000;
/// How many ticks of its patience a keeper loses by one that failed: where links are cut again and again, sweeps fail.
const FAILED_TICKS: u32 = 50;
/// Another sweep may begin at once, for runs are short.
const SWEEPS_REST: u32 = 0;

/// What a thread of a run does, and beside it what its process's keeper does, if there are keepers and it is its process's first thread. A
/// real keeper has a thread of its own; this one shares its thread's processor, and dies with it.
pub(super) async fn keep_beside<R>(ct: &ComputeThread, body: impl Future<Output = R>) -> R {
    let keeps = ct.cluster().shared.world().and_then(|world| {
        let config = world.lock().config().clone();
        (config.has_keepers() && ct.index().is_multiple_of(config.threads_per_node as usize))
            .then_some(config.sweeps)
    });
    let Some(sweeps) = keeps.filter(|_| ct.process.member().is_some()) else { return body.await };
    let (is_done, mut output) = (Cell::new(false), None);
    let (mut body, mut keeper) = (pin!(body), pin!(keep(ct, sweeps, &is_done)));
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

/// What the run's last keeper does, once all threads have ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// It waits until all other processes have left.
    Waits,
    /// It has asked for a sweep.
    Sweeps,
}

/// Keeps a process, until its threads have ended and what was lost has come back.
///
/// One of the keepers is the last: it waits until its process is alone, sweeps once more if any process has died, and looks for losses. While
/// others are at work a sweep may keep lost memory: an old word points to it, or its writer lives and might still link it. Once
/// no thread is left, garbage is gone, and an object that no root points to is a leak, whichever process wrote it. What remains possible is that a
/// word in an object in use looks like a link to lost memory, which is counted as no loss.
async fn keep(ct: &ComputeThread, sweeps: bool, is_done: &Cell<bool>) {
    let rtt = ct.cluster().simulation().map_or(Duration::ZERO, |simulation| simulation.rtt());
    let (tick, breath) = (rtt * TICK_RTTS, rtt * BREATH_RTTS);
    let judges = sweeps && ct.cluster().shared.world().is_some_and(|world| world.lock().config().leaks_fail);
    let mut sweeper = Sweeper::new(ct, QUIET_TICKS * tick, SWEEPS_REST);
    let (mut patience, mut last) = (PATIENCE, None);
    while patience > 0 {
        let evicted = ct.evict_gone(|_| false).await;
        let is_anyone_gone = matches!(evicted, Ok(1..));
        if is_anyone_gone && last.is_none() {
            ct.run.needs_last_keeper();
        }
        let attended = if sweeps { ct.attend_sweep().await } else { Ok(None) };
        // A link may be cut: the next tick tries again.
        let has_failed = evicted.is_err() || attended.is_err();
        let owed = attended.unwrap_or_default();
        if let Err(error) = sweeper.go_on(owed, if is_done.get() { breath } else { tick }).await {
            tracing::warn!(%error, "could not sweep memory");
        }
        if ct.has_garbage() {
            ct.try_reclaim().await;
        } else {
            ct.follow_epoch().await;
        }
        if is_done.get() && ct.process.has_one_thread() {
            patience = patience.saturating_sub(if has_failed { FAILED_TICKS } else { 1 });
            let is_busy = owed.is_some() || sweeper.is_busy() || ct.process.sweep_barrier.is_called();
            let is_settled = !is_busy && !is_anyone_gone && !has_failed;
            match last {
                _ if !is_settled => {}
                None if judges && ct.run.is_over() && ct.run.becomes_last_keeper() => {
                    (last, patience) = (Some(Last::Waits), PATIENCE);
                }
                None => break,
                Some(Last::Waits) if is_alone(ct).await => match ask_for_last_sweep(ct).await {
                    Ok(true) => (last, patience) = (Some(Last::Sweeps), PATIENCE),
                    Ok(false) | Err(_) => break,
                },
                Some(Last::Waits) => {}
                Some(Last::Sweeps) => {
                    look_for_losses(ct).await;
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

/// Asks for a sweep if any process has died since the cluster was made; returns whether one has.
async fn ask_for_last_sweep(ct: &ComputeThread) -> Result<bool> {
    if ct.read_word(control::evictions()).await? == 0 {
        return Ok(false);
    }
    ct.forget_written();
    ct.fetch_add_word(control::debts(), 1).await.map(|_| true)
}

/// Reports memory that is lost although it was swept while this process was alone.
async fn look_for_losses(ct: &ComputeThread) {
    // Blocks on their way to the pool are in no list.
    ct.give_everything();
    ct.wait_for_detached().await;
    if let (Ok(lost), Some(world)) = (ct.lost_blocks().await, ct.cluster().shared.world()) {
        world.lock().lost(&lost);
    }
}

/// Looks for objects that are neither freed nor reachable, at the end of a run. After deaths in a cluster that is swept the last keeper has judged: what it
/// had to keep because some word looks like a link to it is no leak of a later run, and if its own process has died, after all others had
/// left, no process was there to judge.
pub(super) fn look_for_leaks(world: &sim::SharedWorld) -> Result<()> {
    let mut world = world.lock();
    let is_judged = world.config().sweeps && world.has_deaths();
    if !world.config().leaks_fail || is_judged {
        return Ok(());
    }
    let words = |segment, offsets: std::ops::Range<u64>| {
        offsets.step_by(WORD_BYTES).map(move |offset| Address::new(segment, offset))
    };
    let roots = words(0, HEADER_BYTES..CONTROL_BYTES).map(|at| world.peek(at)).collect();
    world.look_for_leaks(roots);
    world.finding().map_or(Ok(()), |finding| Err(finding.into()))
}
