//! Backoff: the waits of a retry loop between attempts.

use std::hint::spin_loop;
use std::time::Duration;

use rand::RngExt;

use super::posting::{Operations, Thread};
use super::tasks::{Tasks, pend_once};
use super::waits::{Purpose, Waits as _};
use farfield_fabric::Endpoint as _;
use farfield_fabric::stall::Waiting;
use farfield_sim::{LoopId, LoopKind, Sim};
use farfield_words::Address;

/// The longest spin is `1 << MAX_SHIFT` pauses.
const MAX_SHIFT: u32 = 6;
/// On a network the first wait is up to a quarter of a round trip. The longest is `1 << MAX_NETWORK_SHIFT` times that: 4 ms for a round trip of 2 us.
/// So ten thousand waiting threads leave the memory node time for the thread that they wait for.
const MAX_NETWORK_SHIFT: u32 = 13;
/// The longest wait on a real network.
const LONGEST_NS: u64 = 10_000_000;

/// Exponential backoff with random waits. Each wait yields to the thread's other tasks, since one of them may hold the resource. Programs use it as
/// [`Backoff`](crate::Backoff).
pub(crate) struct Retry<'a, T: Thread> {
    ct: &'a T,
    shift: u32,
    /// The largest shift on a network.
    most: u32,
    /// The time at which the last wait ended, if the next wait depends on the duration of the attempt.
    began: Option<Duration>,
    /// The entry of the loop in stall reports, and the time at which its last wait ended.
    waiting: Option<Waiting>,
    waited: Duration,
    /// The kind of the loop, and its entry in the simulator, which detects loops without progress.
    kind: LoopKind,
    entry: Option<LoopId>,
}

impl<'a, T: Thread> Retry<'a, T> {
    pub(crate) fn new(ct: &'a T) -> Self {
        Self {
            ct,
            shift: 0,
            most: MAX_NETWORK_SHIFT,
            began: None,
            waiting: None,
            waited: Duration::ZERO,
            kind: LoopKind::Attempt,
            entry: None,
        }
    }

    /// For a wait until a holder releases something, where attempts do not hinder the holder. The longest wait is half a round trip for each thread of
    /// the run; if the memory node is so busy that round trips take longer, half the duration of the last attempt. So all waiting threads together
    /// send about as many requests as one alone, and a thread that has waited for long sends about as many as a new one. (Where attempts hinder each
    /// other, as those that take two locks do, waits must grow until the attempts no longer overlap.)
    pub(crate) fn for_holder(ct: &'a T) -> Self {
        let contenders = ct.contenders().next_power_of_two().trailing_zeros();
        let most = (contenders + 1).min(MAX_NETWORK_SHIFT);
        let mut backoff = Self::new(ct);
        (backoff.most, backoff.began) = (most, Some(Duration::MAX));
        backoff
    }

    /// For a wait until other threads arrive: up to 64 round trips, or more if so many threads may wait that they would saturate the memory node.
    pub(crate) fn for_peers(ct: &'a T) -> Self {
        let contenders = ct.contenders().next_power_of_two().trailing_zeros();
        let mut backoff = Self::new(ct);
        backoff.most = (contenders + 1).clamp(8, MAX_NETWORK_SHIFT);
        backoff
    }

    /// Declares that the number of attempts, or their duration, is bounded.
    pub(crate) fn bounded(mut self) -> Self {
        self.kind = LoopKind::Bounded;
        self
    }

    /// Declares that the loop waits for the owner of a word.
    pub(crate) fn waits_for(&mut self, at: Address) {
        self.kind = LoopKind::Ownership(at);
    }

    /// Waits.
    pub(crate) async fn wait(&mut self) {
        self.wait_for(Purpose::Retry).await;
    }

    /// Like [`wait`](Self::wait), with the purpose of the wait for stall reports.
    pub(crate) async fn wait_for(&mut self, purpose: Purpose<'_>) {
        match purpose {
            Purpose::Lock(at, _) | Purpose::WriteLock(at, _) | Purpose::WholeValue(at, _) => {
                self.waits_for(at);
            }
            Purpose::Barrier { .. } => self.kind = LoopKind::Rendezvous,
            Purpose::Memory | Purpose::Epoch | Purpose::Collector(_) | Purpose::Sweep | Purpose::Pool => {
                self.kind = LoopKind::Bounded;
            }
            Purpose::Retry | Purpose::Name(..) => {}
        }
        self.note(purpose);
        self.wait_once().await;
        self.note_end();
    }

    /// Like [`wait_for`](Self::wait_for), in a loop with a bounded number of attempts. In the simulator each wait takes one round trip, so that all
    /// attempts are made within a short time.
    pub(crate) async fn wait_a_round_trip_for(&mut self, purpose: Purpose<'_>) {
        let Some(rtt) = self.ct.io().endpoint.virtual_time().map(Sim::rtt) else {
            return self.wait_for(purpose).await;
        };
        self.note(purpose);
        self.ct.sleep_for(rtt).await;
        self.note_end();
    }

    /// Enters the wait in stall reports, if stalls are reported.
    fn note(&mut self, purpose: Purpose<'_>) {
        let Some(waits) = &self.ct.io().stalls else { return };
        // A program may use one backoff for several loops: a wait long after the last one belongs to a new loop.
        let is_late = waits.now().saturating_sub(self.waited) > waits.limit() / 2;
        if is_late && matches!(purpose, Purpose::Retry) {
            self.waiting = None;
        }
        self.ct.note_wait(waits, &mut self.waiting, purpose);
    }

    /// The wait has ended.
    fn note_end(&mut self) {
        if let Some(waits) = &self.ct.io().stalls {
            self.waited = waits.now();
        }
    }

    async fn wait_once(&mut self) {
        let (ct, shift) = (self.ct, self.shift);
        ct.serves_requests();
        let timer = ct.timer(|sim, task| {
            let took = self.began.map_or(0, |began| Sim::pauses_in(sim.now().saturating_sub(began)));
            let most = u64::from((sim.pauses_per_rtt().max(took) / 4).max(1)) << shift;
            let pauses = ct.rng().random_range(0..=most);
            ct.waits_for_round_trips(pauses / u64::from(sim.pauses_per_rtt()));
            let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
            sim.retry(pauses, task, self.kind, &mut self.entry)
        });
        if let Some(timer) = timer {
            drop(timer.await);
            self.shift = (shift + 1).min(self.most);
            self.began = self.began.map(|_| ct.io().endpoint.now());
            return;
        }
        if let Some(round_trip) = ct.round_trip() {
            let most = ((round_trip / 4) << shift).min(LONGEST_NS);
            let wait = ct.rng().random_range(0..=most);
            ct.waits_for_round_trips(wait / round_trip);
            ct.sleep_for(Duration::from_nanos(wait)).await;
            pend_once(ct).await;
            self.shift = (shift + 1).min(self.most);
            return;
        }
        let pauses = ct.rng().random_range(0..=1_u32 << shift);
        for _ in 0..pauses {
            spin_loop();
        }
        self.shift = (shift + 1).min(MAX_SHIFT);
        pend_once(ct).await;
    }
}

impl<T: Thread> Drop for Retry<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Only the simulator keeps a table of loops.
        if let Some(entry) = self.entry
            && let Some(sim) = self.ct.io().endpoint.virtual_time()
        {
            sim.loop_ends(entry);
        }
    }
}
