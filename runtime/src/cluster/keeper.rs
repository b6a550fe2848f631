//! The keeper: a thread of each process that does what must be done whether the process computes or not.
//!
//! Where a cluster has processes that know nothing of each other, somebody has to say of each that it lives, to go along when the
//! epoch advances, and to clear up after one that has gone. The keeper does so every [`TICK`], or less often while nothing goes on:
//! - it counts in its process's record, which shows the others that the process lives;
//! - it takes a step, so that a process that does nothing holds reclamation back no longer than a tick;
//! - it reclaims what ended threads of the process had retired, and gives back memory when others ask for it;
//! - it evicts processes that are gone (see [`members`](super::members));
//! - in a cluster that was made so it sweeps up what they have left, and answers others that do (see
//!   [`sweep`](crate::memory::sweep)); in any other it leaves that to a process that is alone ([`collect`](crate::memory::collect)).
//!
//! It has a compute thread of its own, and belongs to no run. The process takes its record when it connects and gives it back
//! when it has been disconnected, both through the keeper; in between its compute threads come and go.
//!
//! A keeper that fails tries again with its next tick, and one that panics is replaced by another, with a compute thread of its own: without
//! one, the process would evict no other that has died, and would itself hold reclamation back for ever. Each failure is told to a subscriber of
//! `tracing`, the same one once in [`REPEATED`], and counted for the program ([`Cluster::keeper_failures`]).

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
use crate::segment::control::Record;
use crate::segment::record::Seen;
use crate::segment::{control, decode};
use crate::session::run::Run;
use crate::session::{Cluster, ComputeThread};
use crate::sweep::Swept;
use farfield_fabric::host::{BackgroundThread, StopSignal, first_line};
use farfield_fabric::stall::{Waiting, blocked};

/// How long the keeper sleeps: what is noticed by it is noticed so much later.
const TICK: Duration = Duration::from_millis(5);
/// How long at most, where the epoch stands still.
const LONGEST_TICK: Duration = Duration::from_millis(40);
/// For how many of the longest ticks the process that leaves waits for the others to go along with the epoch.
const PATIENCE: u32 = 4;
/// How long it sleeps in between.
const NAP: Duration = Duration::from_millis(1);
/// For how many ticks nobody must have died before a sweep is begun: another death would disturb it.
const QUIET_TICKS: u32 = 4;
/// How long a keeper that has panicked is waited with, which doubles with each that follows.
const RESTART: Duration = Duration::from_millis(10);
const LATEST_RESTART: Duration = Duration::from_secs(1);
/// After a sweep a process begins none for so many times as long as it took.
const SWEEPS_REST: u32 = 9;

/// What a keeper does before its process is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtFirst {
    /// Collects memory if processes have left some and there are no others.
    CollectsIfAlone,
    /// Collects memory, or fails if there are others.
    Collects,
}

impl Cluster {
    /// What went wrong with the thread that looks after this process's part in the cluster, as long as it is connected. Nothing does where a
    /// cluster is one process's own.
    pub fn keeper_failures(&self) -> KeeperFailures {
        self.shared.failures.counted()
    }
}

/// Starts a process's keeper, and waits until the process has joined; returns how many lost bytes it has collected.
pub(super) fn start(cluster: &Cluster, at_first: AtFirst) -> Result<(BackgroundThread, u64)> {
    let (joined, waits) = mpsc::channel();
    let kept = cluster.without_keeper();
    let keeper = BackgroundThread::start("keeper", move |stop| keep_on(&kept, at_first, stop, joined))?;
    let _waiting = blocked(|| "the keeper to join the cluster".to_owned());
    match waits.recv() {
        Ok(Ok(bytes)) => Ok((keeper, bytes)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::other("the keeper has ended")),
    }
}

/// Has one keeper after another, until one has left in order.
fn keep_on(cluster: &Cluster, at_first: AtFirst, stop: &StopSignal, joined: Sender<Result<u64>>) {
    let (joined, mut pause, mut is_told) = (Cell::new(Some((at_first, joined))), RESTART, false);
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
        // Told to stop, the next one still leaves in order; if it can not either, others evict the process.
        if std::mem::replace(&mut is_told, stop.wait(pause)) {
            return;
        }
        pause = (2 * pause).min(LATEST_RESTART);
    }
}

/// What is to be done before a process is used, and who waits for that.
type ToBegin = Cell<Option<(AtFirst, Sender<Result<u64>>)>>;

/// A keeper's life. An error is that of one who could not begin.
async fn keep(ct: &ComputeThread, stop: &StopSignal, to_begin: &ToBegin) -> Result<()> {
    ct.join_members().await?;
    let options = match ct.read_word(control::options()).await.and_then(decode::options) {
        Ok(options) => options,
        Err(error) => {
            let waits = to_begin.take();
            // Once the process is used, its record stays until another keeper gives it back.
            if waits.is_some() {
                ct.leave_for_good().await;
            }
            to_begin.set(waits);
            return Err(error);
        }
    };
    let sweeps = options & control::SWEEPS != 0;
    if !sweeps {
        ct.process.sweep_barrier.disable();
    }
    let shared = &ct.cluster().shared;
    let lease = shared.lease();
    // Where others are far away, what is done for them costs more.
    let (shortest, longest) = if shared.shuts_out() { (lease / 16, lease / 8) } else { (TICK, LONGEST_TICK) };
    let mut others = Others { lease, seen: HashMap::new(), sweeps };
    let mut goes_on = true;
    if let Some((at_first, joined)) = to_begin.take() {
        // Whoever has died before is out of the way before anything else begins, and so is what they have left. Taken out of its cell and
        // dropped by a panic, the sender tells so.
        let first = begin(ct, at_first, &mut others).await;
        goes_on = first.is_ok();
        let _ = joined.send(first);
    }
    let (mut beats, mut rest, mut epoch) = (1, shortest, 0);
    let mut sweeper = Sweeper::new(ct, QUIET_TICKS * shortest, SWEEPS_REST);
    while goes_on && !stop.wait(rest) {
        beats += 1;
        match tick(ct, beats, &mut others).await {
            Ok(owed) => {
                if let Err(error) = sweeper.go_on(owed, shortest).await {
                    shared.failures.note(ct.time(), &error, "could not sweep memory");
                }
            }
            Err(Error::Evicted(evicted)) => {
                tracing::warn!(process = evicted.process, "this process has been evicted");
                shared.note_eviction();
                goes_on = false;
            }
            Err(error) => shared.failures.note(ct.time(), &error, "the keeper could not do its work"),
        }
        // Where nothing goes on there is little to do.
        let now = ct.process.collector.epoch();
        let is_busy =
            now > epoch || ct.has_garbage() || ct.process.sweep_barrier.is_called() || sweeper.is_busy();
        rest = if is_busy { shortest } else { (2 * rest).min(longest) };
        epoch = now;
    }
    if sweeps {
        sweeper.end().await;
    }
    for _ in 0..2 {
        leave_garbage(ct, PATIENCE * longest).await;
        // For this a page may be taken from the pool, and that is garbage, too.
        ct.leave_heap().await;
    }
    if ct.has_garbage() {
        // Others kept it from being freed, and no other process knows of it.
        let _ = ct.fetch_add_word(control::debts(), 1).await;
        let _ = ct.fetch_add_word(control::left_bytes(), ct.process_holds()).await;
    }
    ct.settle().await;
    ct.leave_for_good().await;
    Ok(())
}

/// Frees what the process has retired, as long as the others go along with the epoch.
async fn leave_garbage(ct: &ComputeThread, patience: Duration) {
    let mut moved = (ct.process.collector.epoch(), ct.now());
    let _waiting = ct.has_garbage().then(|| ct.waits_as(Purpose::Epoch));
    loop {
        ct.take_orphans();
        if !ct.has_garbage() || ct.now().saturating_sub(moved.1) > patience {
            return;
        }
        ct.try_reclaim().await;
        let epoch = ct.process.collector.epoch();
        if epoch > moved.0 {
            moved = (epoch, ct.now());
        } else {
            ct.park(NAP);
        }
    }
}

/// When the other processes last gave a sign of life.
struct Others {
    lease: Duration,
    /// Whether memory is swept.
    sweeps: bool,
    seen: HashMap<u32, (u64, Duration)>,
}

impl Others {
    /// Looks at a process; gives whether it has been silent for longer than its lease.
    fn is_silent(&mut self, member: &Seen, now: Duration) -> bool {
        let seen = self.seen.entry(member.identity).or_insert((member.words.sign, now));
        if seen.0 != member.words.sign {
            *seen = (member.words.sign, now);
        }
        now.saturating_sub(seen.1) > self.lease
    }
}

async fn begin(ct: &ComputeThread, at_first: AtFirst, others: &mut Others) -> Result<u64> {
    tick(ct, 1, others).await?;
    match at_first {
        AtFirst::CollectsIfAlone => ct.collect_if_alone().await,
        AtFirst::Collects => ct.collect_alone().await?.map_err(|others| in_the_way("collect", &others)),
    }
}

/// Shows that the process lives, and says how much memory would be left if it died.
async fn show_sign(ct: &ComputeThread, beats: u32) -> Result<()> {
    let Some(member) = ct.process.member() else { return Ok(()) };
    let sign = u64::from(std::process::id()) << 32 | u64::from(beats);
    ct.report_held_bytes();
    let mut chain = ct.empty_chain();
    // A count of bytes looks like an address: what is written here leads nowhere, and a sweep must not take it for a link.
    chain.set_of_allocator();
    chain.write(Record::sign(member.record()), &[sign, ct.process_holds()]);
    ct.submit(chain).await.map(drop)
}

/// Gives what is owed if memory is to be swept.
async fn tick(ct: &ComputeThread, beats: u32, others: &mut Others) -> Result<Option<u64>> {
    let shared = &ct.cluster().shared;
    shared.look_for_memory_node();
    show_sign(ct, beats).await?;
    ct.hear_requests();
    // Whatever comes of it, the rest is done, too.
    let owed = if others.sweeps { ct.attend_sweep().await } else { Ok(None) };
    ct.take_orphans();
    if ct.has_garbage() {
        ct.try_reclaim().await;
    } else {
        ct.follow_epoch().await;
    }
    let now = ct.now();
    ct.evict_gone(|member| others.is_silent(member, now)).await?;
    #[cfg(all(test, target_os = "linux"))]
    tests::panic_if_told(ct);
    // Numbers are not used again.
    others.seen.retain(|_, (_, at)| now.saturating_sub(*at) < 10 * others.lease);
    owed
}

/// The sweep that is under way, if one is.
pub(crate) struct Sweeper<'a> {
    ct: &'a ComputeThread,
    pace: Rc<Pace>,
    sweep: Option<Sweeping<'a>>,
    began: Duration,
    /// When the next may begin.
    next: Duration,
    /// What is owed, and since when no more than that; and for how long it has to stay so before a sweep is begun.
    owed: (Option<u64>, Duration),
    quiet: Duration,
    /// Where stalls are reported: that it waits for other processes, and the list and the epoch that it does so under.
    waiting: Option<(u64, u64, Waiting)>,
    /// For how many times as long as a sweep took none is begun after it.
    rest: u32,
}

type Sweeping<'a> = Pin<Box<dyn Future<Output = Result<Swept>> + 'a>>;

impl<'a> Sweeper<'a> {
    pub(crate) fn new(ct: &'a ComputeThread, quiet: Duration, rest: u32) -> Self {
        let zero = Duration::ZERO;
        Self {
            ct,
            pace: Rc::default(),
            sweep: None,
            began: zero,
            next: zero,
            owed: (None, zero),
            quiet,
            rest,
            waiting: None,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.sweep.is_some()
    }

    /// Begins a sweep if memory is owed and no process has died for a while; goes on with the one that has begun, until `until`. An error ends
    /// the sweep; the next begins later.
    pub(crate) async fn go_on(&mut self, owed: Option<u64>, until: Duration) -> Result<()> {
        let (ct, now) = (self.ct, self.ct.now());
        if owed != self.owed.0 {
            self.owed = (owed, now);
        }
        let is_due = owed.is_some() && now.saturating_sub(self.owed.1) >= self.quiet;
        if self.sweep.is_none() && is_due && now >= self.next {
            let pace = Rc::clone(&self.pace);
            self.sweep = Some(Box::pin(async move { ct.sweep(&pace).await }));
            self.began = now;
        }
        let Some(sweep) = &mut self.sweep else { return Ok(()) };
        let was_late = Cell::new(false);
        let is_late = || {
            was_late.set(ct.now().saturating_sub(now) > until);
            was_late.get()
        };
        let Some(outcome) = self.pace.go_on(sweep.as_mut(), is_late).await else {
            self.note_wait(!was_late.get());
            return Ok(());
        };
        (self.sweep, self.waiting) = (None, None);
        let now = ct.now();
        self.next = now + self.rest * now.saturating_sub(self.began);
        outcome.map(|outcome| tracing::debug!(?outcome, "swept"))
    }

    /// The sweep goes on later: since it waits for others, or since the keeper has other work.
    fn note_wait(&mut self, waits: bool) {
        let process = &self.ct.process;
        let (list, epoch) = (process.sweep_barrier.has_said(), process.collector.epoch());
        // A new list or epoch is progress.
        let is_same = |(was, at, _): &(u64, u64, Waiting)| (*was, *at) == (list, epoch);
        if !waits || !self.waiting.as_ref().is_some_and(is_same) {
            let waiting = if waits { self.ct.waits_as(Purpose::Sweep) } else { None };
            self.waiting = waiting.map(|waiting| (list, epoch, waiting));
        }
    }

    /// The process leaves: whatever has been listed is not.
    pub(crate) async fn end(&mut self) {
        (self.sweep, self.waiting) = (None, None);
        let _ = self.ct.abandon_sweep(&self.pace).await;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
