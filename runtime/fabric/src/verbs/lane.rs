//! A lane: a connection to one memory node, on which one or several threads post chains.
//!
//! Chains are queued immediately and posted when their thread has no other work, so the chains of its tasks are posted together. A waiting thread
//! also polls for completions, its own and those of other threads of the lane.
//!
//! # Failure of the memory node
//!
//! The device reports a failed connection, after a delay of its own; the connection manager reports an ended one. Neither report is certain, so a
//! waiting thread also checks the clock. If no posted request completes within the timeout, the connection is torn down: its queue pair is stopped,
//! the completions of executed requests are taken, and the queue pair is destroyed. From then on the device touches no buffer. Every incomplete chain
//! fails. The next chain reconnects, but not sooner than a timeout after the last attempt: until then chains fail immediately.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::batch::{Refused, Target};
use super::pipeline::{Credits, Pipeline, Request, Ring};
use super::queue::{Completion, Outcome};
use crate::chain::RawChain;
use crate::error::{self, Error, Result};
use crate::handshake::Segment;
use crate::stall::lock;
use farfield_words::Address;

/// The polls without a completion before a thread checks the clock and the connection's events.
const LOOKS_PER_CLOCK: u32 = 1024;
/// The rounds of a thread without a completion before it posts the queued chains although more are under way, which may take long.
const ROUNDS_PER_POST: u32 = 4;
/// The timeout for flushing the requests of a connection that is being torn down.
const DRAIN: Duration = Duration::from_millis(100);
/// How long a report waits for the description from the thread that uses the lane, which answers when it checks the clock.
const DESCRIBE_TIMEOUT: Duration = Duration::from_millis(100);

/// A connection, as a lane uses it.
pub(super) trait Wire {
    type Ring: Ring;
    fn credits(&self) -> Credits;
    fn ring(&self) -> &Self::Ring;
    /// Posts the requests that `next` returns, given the ring, with one doorbell: until it returns `None`, or the queue is full. Returns their
    /// number; for 0 no doorbell was rung. Borrowed words are read before this returns.
    fn post<'a>(
        &mut self,
        next: impl FnMut(&Self::Ring) -> Option<(Request<'a>, Target)>,
    ) -> Result<usize, Refused>;
    /// Passes completions to `each`. Returns their number.
    fn completions(&mut self, each: impl FnMut(Completion)) -> usize;
    /// Returns whether the other side has ended the connection.
    fn has_ended(&mut self) -> bool;
    /// Describes the state of its queue pair.
    fn queue_pair_state(&mut self) -> &'static str;
    /// Moves the queue pair to the error state, so that outstanding requests are flushed. Once the wire is dropped, the device touches no buffer
    /// of it.
    fn stop(&mut self);
}

/// Makes connections for a lane.
pub(super) trait Connect {
    type Wire: Wire;
    fn connect(&self) -> Result<Self::Wire>;
    /// Returns the memory node's segments and the number of the first.
    fn segments(&self) -> (u16, &[Segment]);
    fn node(&self) -> u16;
    fn timeout(&self) -> Duration;
}

pub(super) struct Lane<C: Connect> {
    connect: C,
    state: Mutex<LaneState<C::Wire>>,
    doorbells: AtomicU64,
    /// True if a report wants a description of the requests in flight; and the answer of the thread that uses the lane.
    is_description_wanted: AtomicBool,
    answer: Mutex<Option<String>>,
}

struct LaneState<W> {
    pipeline: Pipeline,
    link: Link<W>,
    /// True if chains wait for credits, not for their thread.
    waits_for_credits: bool,
    /// The first check of the clock since the last completion, or since a chain was posted on an idle lane.
    waiting_since: Option<Instant>,
    /// The number of rounds of its threads, and of rounds without a completion since it last posted.
    round: u64,
    rounds_without_completion: u32,
    /// The number of polls without a completion since the last check of the clock.
    looks: u32,
}

/// The connection of a lane.
enum Link<W> {
    Connected(W),
    /// The connection was lost, or the last attempt to connect has failed, at this time.
    Lost(Instant),
    /// The cluster has evicted the process with this number: the lane never reconnects.
    Evicted(u32),
}

impl<W> Link<W> {
    fn wire(&mut self) -> Option<&mut W> {
        if let Self::Connected(wire) = self { Some(wire) } else { None }
    }

    /// Takes the wire of a connection that is lost now.
    fn take(&mut self) -> Option<W> {
        match std::mem::replace(self, Self::Lost(Instant::now())) {
            Self::Connected(wire) => Some(wire),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The link after a failed attempt to connect.
    fn after(error: &Error) -> Self {
        match error {
            Error::Evicted(evicted) => Self::Evicted(evicted.process),
            _ => Self::Lost(Instant::now()),
        }
    }
}

impl<C: Connect> Lane<C> {
    /// Makes a connected lane.
    pub(super) fn new(connect: C) -> Result<Self> {
        let wire = connect.connect()?;
        let state = LaneState {
            pipeline: Pipeline::new(wire.credits()),
            link: Link::Connected(wire),
            waits_for_credits: false,
            waiting_since: None,
            round: 0,
            rounds_without_completion: 0,
            looks: 0,
        };
        Ok(Self {
            connect,
            state: Mutex::new(state),
            doorbells: AtomicU64::new(0),
            is_description_wanted: AtomicBool::new(false),
            answer: Mutex::new(None),
        })
    }

    fn state(&self) -> MutexGuard<'_, LaneState<C::Wire>> {
        // A panic under the lock is a bug; the state it leaves is no worse than a lost connection.
        lock(&self.state, || "a thread that shares the lane, and posts on it or connects it anew".to_owned())
    }

    /// Queues a chain. Returns its number.
    pub(super) fn push(&self, chain: RawChain) -> usize {
        self.state().pipeline.push(chain)
    }

    /// Returns a chain if it is done. If not, polls for completions, and posts queued chains if the thread has no other work.
    pub(super) fn poll(&self, number: usize) -> Option<(RawChain, Result<()>)> {
        let mut state = self.state();
        if let Some(done) = state.pipeline.take(number) {
            return Some(done);
        }
        let round = state.round;
        if state.pipeline.is_fresh(number, round) {
            return None;
        }
        if state.pipeline.is_queued(number) {
            self.post(&mut state);
        }
        if self.poll_completions(&mut state) > 0 { state.pipeline.take(number) } else { None }
    }

    pub(super) fn forget(&self, number: usize) {
        self.state().pipeline.forget(number);
    }

    pub(super) fn detach(&self, number: usize) {
        self.state().pipeline.detach(number);
    }

    /// A round of an idle thread: posts queued chains, and polls for completions until at least as many chains are done as are under way, or
    /// until `looks` polls found none. Returns whether any chain is done.
    ///
    /// A thread polls all of its tasks in a round, so the more of them can continue, the less each costs.
    pub(super) fn poll_round(&self, looks: u32) -> bool {
        let mut state = self.state();
        state.round += 1;
        let mut done = self.poll_completions(&mut state);
        if state.pipeline.has_queued()
            && (state.pipeline.has_many_queued() || state.rounds_without_completion >= ROUNDS_PER_POST)
        {
            state.rounds_without_completion = 0;
            self.post(&mut state);
        }
        let mut remaining = looks;
        while remaining > 0
            && state.pipeline.in_flight() > 0
            && (done == 0 || done < state.pipeline.under_way())
        {
            let more = self.poll_completions(&mut state);
            done += more;
            if more == 0 {
                remaining -= 1;
                // After the poll: a software device may be done before the doorbell returns.
                std::hint::spin_loop();
            }
        }
        state.rounds_without_completion = if done > 0 { 0 } else { state.rounds_without_completion + 1 };
        done > 0
    }

    /// Posts all queued chains. Without credits this waits for completions; if the memory node does not answer, chains fail after the timeout.
    pub(super) fn post_all(&self) {
        let mut state = self.state();
        while state.pipeline.has_queued() {
            self.post(&mut state);
            if state.pipeline.has_queued() {
                self.poll_completions(&mut state);
            }
        }
    }

    pub(super) fn doorbells(&self) -> u64 {
        self.doorbells.load(Ordering::Relaxed)
    }

    /// Describes the requests in flight, for reports of stalls. A polling thread holds the lane's lock nearly all the time, so it is asked for
    /// the description, and answers when it checks the clock. Does not wait for a thread that reconnects.
    pub(super) fn describe(&self) -> String {
        let begun = Instant::now();
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.is_description_wanted.store(true, Ordering::Relaxed);
        loop {
            let state = match self.state.try_lock() {
                Ok(state) => Some(state),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut state) = state {
                self.is_description_wanted.store(false, Ordering::Relaxed);
                return self.describe_state(&mut state);
            }
            if let Some(answer) = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return answer;
            }
            if begun.elapsed() >= DESCRIBE_TIMEOUT {
                return format!("the lane to memory node {} reconnects", self.connect.node());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn describe_state(&self, state: &mut LaneState<C::Wire>) -> String {
        let node = self.connect.node();
        let since = state.waiting_since.map_or_else(
            || "its timeout does not run".to_owned(),
            |since| {
                format!(
                    "without a completion for {:.1?}, and fails after {:.1?}",
                    since.elapsed(),
                    self.connect.timeout()
                )
            },
        );
        let connection = state.link.wire().map_or("which is not connected", Wire::queue_pair_state);
        format!("the lane to memory node {node}, {connection}, {since}: {}", state.pipeline.describe_use())
    }

    /// Posts as many requests as credits allow, with one doorbell.
    fn post(&self, state: &mut LaneState<C::Wire>) {
        if !matches!(state.link, Link::Connected(_)) && !self.reconnect(state) {
            self.give_up(state, None);
            return;
        }
        let LaneState { pipeline, link: Link::Connected(wire), waiting_since, waits_for_credits, .. } = state
        else {
            return;
        };
        let was_idle = pipeline.in_flight() == 0;
        let (first, segments) = self.connect.segments();
        let mut requests = pipeline.requests();
        let posted = wire.post(|ring| {
            let request = requests.next(ring)?;
            let Segment { base, rkey } = segments[usize::from(request.at.segment() - first)];
            // If a memory node has sent a wrong base, its own device refuses the address.
            let address = base.wrapping_add(request.at.offset());
            Some((request, Target { address, key: rkey }))
        });
        *waits_for_credits = pipeline.has_queued();
        if posted == Ok(0) {
            return;
        }
        if was_idle {
            *waiting_since = None;
        }
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        if posted.is_err() {
            self.tear_down(state, None, false);
        }
    }

    /// Polls for completions. Returns how many chains are done, or have failed.
    #[inline]
    fn poll_completions(&self, state: &mut LaneState<C::Wire>) -> usize {
        let LaneState { pipeline, link: Link::Connected(wire), .. } = state else { return 0 };
        if pipeline.in_flight() == 0 {
            return 0;
        }
        let (mut chains, mut failure, mut done) = (0, None, None);
        let found = wire.completions(|completion| match completion.outcome {
            Outcome::Done => done = Some(completion.number),
            outcome => failure = failure.or(Some((completion.number, outcome))),
        });
        if found == 0 {
            return self.check_connection(state);
        }
        // Earlier requests are done, too.
        if let Some(number) = done {
            chains = pipeline.complete(number, wire.ring());
        }
        if failure.is_some() {
            return chains + self.tear_down(state, failure, false);
        }
        (state.waiting_since, state.looks) = (None, 0);
        if state.waits_for_credits {
            self.post(state);
        }
        chains
    }

    /// After polls without a completion, checks the clock and the connection's events. Returns how many chains have failed if the connection has
    /// ended.
    fn check_connection(&self, state: &mut LaneState<C::Wire>) -> usize {
        state.looks += 1;
        if state.looks < LOOKS_PER_CLOCK {
            return 0;
        }
        state.looks = 0;
        let waited = state.waiting_since.get_or_insert_with(Instant::now).elapsed();
        if self.is_description_wanted.swap(false, Ordering::Relaxed) {
            let answer = self.describe_state(state);
            *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        }
        let has_ended = state.link.wire().is_some_and(Wire::has_ended);
        let over = has_ended || waited >= self.connect.timeout();
        if over { self.tear_down(state, None, has_ended) } else { 0 }
    }

    /// Tears down a failed connection. `failure` is the request that failed first, if known; `has_ended` is true if the memory node has closed
    /// the connection. Returns how many chains have failed.
    fn tear_down(
        &self,
        state: &mut LaneState<C::Wire>,
        failure: Option<(u64, Outcome)>,
        has_ended: bool,
    ) -> usize {
        let Some(mut wire) = state.link.take() else { return 0 };
        tracing::warn!(node = self.connect.node(), ?failure, "connection lost");
        wire.stop();
        // Executed requests have results; no request behind the first unexecuted one has.
        let deadline = Instant::now() + DRAIN;
        let mut flushed = failure.is_some();
        while state.pipeline.in_flight() > 0 && !flushed && Instant::now() < deadline {
            let mut done = None;
            wire.completions(|completion| match completion.outcome {
                Outcome::Done if !flushed => done = Some(completion.number),
                _ => flushed = true,
            });
            if let Some(number) = done {
                state.pipeline.complete(number, wire.ring());
            }
        }
        let failure = failure.and_then(|(number, outcome)| Some((state.pipeline.describe(number)?, outcome)));
        let ended_meanwhile = wire.has_ended();
        // Destroys the queue pair: from here on the device touches no buffer of it.
        drop(wire);
        // The reason of the close is in the answer to a new connection request.
        let renewed = (has_ended || ended_meanwhile).then(|| self.connect.connect());
        state.link = match &renewed {
            Some(Err(error)) => Link::after(error),
            _ => Link::Lost(Instant::now()),
        };
        let failed = self.give_up(state, failure);
        if let Some(Ok(wire)) = renewed {
            state.pipeline.set_credits(wire.credits());
            state.link = Link::Connected(wire);
        }
        failed
    }

    /// Fails all incomplete chains. Returns their number.
    fn give_up(
        &self,
        state: &mut LaneState<C::Wire>,
        failure: Option<((&'static str, Address), Outcome)>,
    ) -> usize {
        let (node, timeout) = (self.connect.node(), self.connect.timeout());
        if let Link::Evicted(process) = state.link {
            return state.pipeline.fail(|_, _| Error::from(error::Evicted { process }));
        }
        state.pipeline.fail(|operation, address| match &failure {
            Some(((failed, at), Outcome::Failed(reason))) => {
                let reason = if (*failed, *at) == (operation, address) {
                    (*reason).into()
                } else {
                    format!("the connection failed with {failed} of {at}: {reason}").into()
                };
                Error::from(error::OperationFailed { node, operation, address, reason })
            }
            _ => Error::from(error::NodeUnreachable {
                node,
                timeout_us: timeout.as_micros() as u64,
                operation,
                address,
            }),
        })
    }

    /// Reconnects, unless the last attempt was less than a timeout ago.
    fn reconnect(&self, state: &mut LaneState<C::Wire>) -> bool {
        match state.link {
            Link::Lost(since) if since.elapsed() >= self.connect.timeout() => {}
            _ => return false,
        }
        match self.connect.connect() {
            Ok(wire) => {
                state.pipeline.set_credits(wire.credits());
                state.link = Link::Connected(wire);
                tracing::info!(node = self.connect.node(), "connected again");
                true
            }
            Err(error) => {
                tracing::warn!(node = self.connect.node(), %error, "not connected again");
                state.link = Link::after(&error);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
