//! Backoff: what a retry loop does between attempts.

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
/// On a network the first wait is up to a quarter of a round trip, and the longest `1 << MAX_NETWORK_SHIFT` times that,
/// 4 ms for a round trip of 2 us: ten thousand threads that wait must not take the memory node's time from the one that
/// they wait for.
const MAX_NETWORK_SHIFT: u32 = 13;
/// The longest wait on a real network.
const LONGEST_NS: u64 = 10_000_000;

/// Waits a little longer each time, by a random amount, and always gives way to the thread's other tasks: whichever holds
/// what one waits for may be one of them. Programs have it as [`Backoff`](crate::Backoff).
pub(crate) struct Retry<'a, T: Thread> {
    ct: &'a T,
    shift: u32,
    /// The largest shift on a network.
    most: u32,
    /// When the attempt began that the next wait follows, if how long that took counts.
    began: Option<Duration>,
    /// The wait that all its waits are part of, and when the last of them was over; where stalls are reported.
    waiting: Option<Waiting>,
    waited: Duration,
    /// What the loop is to the simulator, and its entry there: a loop that waits often and does not end is no progress.
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

    /// For waiting until somebody else is done, who needs nothing of those who wait: the longest wait is half a round trip
    /// for each thread of the run, and where round trips take longer, because the memory node is busy, half of what the last
    /// attempt took. So all who may wait ask about as often, together, as one that waits alone, and who has
    /// waited for long asks about as often as who has just come. (Where attempts hinder each other, as those that take two
    /// locks do, waits must grow until they no longer meet.)
    pub(crate) fn for_holder(ct: &'a T) -> Self {
        let contenders = ct.contenders().next_power_of_two().trailing_zeros();
        let most = (contenders + 1).min(MAX_NETWORK_SHIFT);
        let mut backoff = Self::new(ct);
        (backoff.most, backoff.began) = (most, Some(Duration::MAX));
        backoff
    }

    /// For waiting until others have come: up to 64 round trips, or more where so many may wait that they would take all of the
    /// memory node's time.
    pub(crate) fn for_peers(ct: &'a T) -> Self {
        let contenders = ct.contenders().next_power_of_two().trailing_zeros();
        let mut backoff = Self::new(ct);
        backoff.most = (contenders + 1).clamp(8, MAX_NETWORK_SHIFT);
        backoff
    }

    /// The loop ends by itself, after so many attempts or so long.
    pub(crate) fn bounded(mut self) -> Self {
        self.kind = LoopKind::Bounded;
        self
    }

    /// The next attempt waits for a word that a thread owns.
    pub(crate) fn waits_for(&mut self, at: Address) {
        self.kind = LoopKind::Ownership(at);
    }

    /// Waits.
    pub(crate) async fn wait(&mut self) {
        self.wait_for(Purpose::Retry).await;
    }

    /// As [`wait`](Self::wait), saying what for.
    pub(crate) async fn wait_for(&mut self, purpose: Purpose<'_>) {
        match purpose {
            Purpose::Lock(at, _) | Purpose::Right(at, _) | Purpose::WholeValue(at, _) => self.waits_for(at),
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

    /// As [`wait_for`](Self::wait_for), in a loop that ends by itself after so many attempts: in the simulator each wait takes a round trip, so
    /// that all of them end in a short time.
    pub(crate) async fn wait_a_round_trip_for(&mut self, purpose: Purpose<'_>) {
        let Some(rtt) = self.ct.io().endpoint.virtual_time().map(Sim::rtt) else {
            return self.wait_for(purpose).await;
        };
        self.note(purpose);
        self.ct.sleep_for(rtt).await;
        self.note_end();
    }

    /// A wait begins: says what for, where stalls are reported.
    fn note(&mut self, purpose: Purpose<'_>) {
        let Some(waits) = &self.ct.io().stalls else { return };
        // A program may use one for several loops: what comes long after the last wait follows a success.
        let is_late = waits.now().saturating_sub(self.waited) > waits.limit() / 2;
        if is_late && matches!(purpose, Purpose::Retry) {
            self.waiting = None;
        }
        self.ct.note_wait(waits, &mut self.waiting, purpose);
    }

    /// It is over.
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
        // Only the simulator keeps a table of them.
        if let Some(entry) = self.entry
            && let Some(sim) = self.ct.io().endpoint.virtual_time()
        {
            sim.loop_ends(entry);
        }
    }
}
