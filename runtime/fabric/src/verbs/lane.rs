//! A lane: a connection to one memory node, on which one thread or several post chains.
//!
//! Chains are handed over at once and posted when their thread has nothing else to do, so what its tasks have to post goes out
//! together. The thread that waits also looks for completions, its own and those of others that share the lane.
//!
//! # When the other side is gone
//!
//! The device reports a connection that has failed, in its own time; the connection manager, one that has ended. Neither need
//! happen: so whoever waits also watches the clock. If nothing that is posted completes for as long as the timeout, the
//! connection is torn down. That means: its queue pair is stopped, the completions of what was executed are taken, then it is
//! destroyed; from then on the device touches no buffer. Every chain that is not done fails. The next chain connects anew, but
//! not sooner than a timeout after the last attempt: until then chains fail at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::batch::{Refused, Target};
use super::pipeline::{Credits, Pipeline, Request, Ring};
use super::queue::{Completion, Outcome};
use crate::chain::Chain;
use crate::error::{self, Error, Result};
use crate::handshake::Segment;
use crate::stall::lock;
use farfield_words::Address;

/// How often a thread looks for completions in vain before it looks at the clock and for news of the connection.
const LOOKS_PER_CLOCK: u32 = 1024;
/// In how many rounds of its thread, without a completion, it posts what waits although more is under way: nothing of that
/// may be done for long.
const ROUNDS_PER_POST: u32 = 4;
/// How long a connection that is being torn down may take to give back what it had.
const DRAIN: Duration = Duration::from_millis(100);
/// How long a report waits for the thread that has the lane to say what is in flight: it does so when it looks at the clock.
const DESCRIBE_TIMEOUT: Duration = Duration::from_millis(100);

/// A connection, as a lane uses it.
pub(super) trait Wire {
    type Ring: Ring;
    fn credits(&self) -> Credits;
    fn ring(&self) -> &Self::Ring;
    /// Posts what `next` returns, given the ring, with one doorbell: until it returns none, or there is no room for another. Returns
    /// how many requests that is; nothing has been posted if it is 0. What requests borrow is read before this returns.
    fn post<'a>(
        &mut self,
        next: impl FnMut(&Self::Ring) -> Option<(Request<'a>, Target)>,
    ) -> Result<usize, Refused>;
    /// Gives completions to `each`; gives how many.
    fn completions(&mut self, each: impl FnMut(Completion)) -> usize;
    /// Whether the other side has ended it.
    fn has_ended(&mut self) -> bool;
    /// The state of its queue pair, in words.
    fn queue_pair_state(&mut self) -> &'static str;
    /// Makes the device give back what it has not done. It touches nothing any more once this has been dropped.
    fn stop(&mut self);
}

/// Makes connections for a lane.
pub(super) trait Connect {
    type Wire: Wire;
    fn connect(&self) -> Result<Self::Wire>;
    /// The memory node's segments and the number of the first.
    fn segments(&self) -> (u16, &[Segment]);
    fn node(&self) -> u16;
    fn timeout(&self) -> Duration;
}

pub(super) struct Lane<C: Connect> {
    connect: C,
    state: Mutex<LaneState<C::Wire>>,
    doorbells: AtomicU64,
    /// Whether a report wants to know what is in flight, and what the thread that had the lane answered.
    is_description_wanted: AtomicBool,
    answer: Mutex<Option<String>>,
}

struct LaneState<W> {
    pipeline: Pipeline,
    wire: Option<W>,
    /// Whether chains wait for credits, not for their thread.
    waits_for_credits: bool,
    /// When somebody first looked at the clock since something last completed, or was posted where nothing was.
    waiting_since: Option<Instant>,
    /// Counts the rounds of the threads that use it, and those without a completion since it last posted.
    round: u64,
    rounds_without_completion: u32,
    /// How often nothing was found since.
    looks: u32,
    /// When a connection was last tried for, if it failed.
    failed: Option<Instant>,
    /// The process's number, if it has been evicted: there is no connection any more.
    evicted: Option<u32>,
}

impl<C: Connect> Lane<C> {
    /// A lane that is connected.
    pub(super) fn new(connect: C) -> Result<Self> {
        let wire = connect.connect()?;
        let state = LaneState {
            pipeline: Pipeline::new(wire.credits()),
            wire: Some(wire),
            waits_for_credits: false,
            waiting_since: None,
            round: 0,
            rounds_without_completion: 0,
            looks: 0,
            failed: None,
            evicted: None,
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
        // A panic in here is a bug of ours; what it leaves behind is no worse than a lost connection.
        lock(&self.state, || "a thread that shares the lane, and posts on it or connects it anew".to_owned())
    }

    /// Takes a chain over; gives its number.
    pub(super) fn push(&self, chain: Chain) -> usize {
        self.state().pipeline.push(chain)
    }

    /// Gives a chain back that is done. Looks for completions if it is not, and posts what waits if its thread does nothing else.
    pub(super) fn poll(&self, number: usize) -> Option<(Chain, Result<()>)> {
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

    /// A round of a thread that has nothing else to do: posts what waits, and looks for completions until as many chains are done
    /// as are still under way, or until it has looked so often in vain. Gives whether any is done.
    ///
    /// A thread looks at all of its tasks in a round, so the more of them can go on, the less each costs.
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
        let mut left = looks;
        while left > 0 && state.pipeline.in_flight() > 0 && (done == 0 || done < state.pipeline.under_way()) {
            let more = self.poll_completions(&mut state);
            done += more;
            if more == 0 {
                left -= 1;
                // After the look: a device in software may be done before the doorbell returns.
                std::hint::spin_loop();
            }
        }
        state.rounds_without_completion = if done > 0 { 0 } else { state.rounds_without_completion + 1 };
        done > 0
    }

    /// Posts all that waits. Where credits have run out that takes until others are done; where the other side does not answer, chains
    /// fail after the timeout.
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

    /// What it has in flight, for reports of stalls. A thread that looks for completions has the lane nearly all the time, so it is
    /// asked, and answers when it looks at the clock. Does not wait for one that connects anew.
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
                return format!("the lane to memory node {} connects anew", self.connect.node());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn describe_state(&self, state: &mut LaneState<C::Wire>) -> String {
        let node = self.connect.node();
        let since = state.waiting_since.map_or_else(
            || "its clock does not run".to_owned(),
            |since| {
                format!(
                    "without a completion for {:.1?}, and gives up after {:.1?}",
                    since.elapsed(),
                    self.connect.timeout()
                )
            },
        );
        let connection = state.wire.as_mut().map_or("which is not connected", Wire::queue_pair_state);
        format!("the lane to memory node {node}, {connection}, {since}: {}", state.pipeline.describe_use())
    }

    /// Posts as much as there are credits for, with one doorbell.
    fn post(&self, state: &mut LaneState<C::Wire>) {
        if state.wire.is_none() && !self.reconnect(state) {
            self.give_up(state, None);
            return;
        }
        let LaneState { pipeline, wire: Some(wire), waiting_since, waits_for_credits, .. } = state else {
            return;
        };
        let was_idle = pipeline.in_flight() == 0;
        let (first, segments) = self.connect.segments();
        let mut requests = pipeline.requests();
        let posted = wire.post(|ring| {
            let request = requests.next(ring)?;
            let Segment { base, rkey } = segments[usize::from(request.at.segment() - first)];
            // Where a memory node has told a base that is none, its own device refuses the address.
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

    /// Looks for completions; gives how many chains are done, or have failed.
    #[inline]
    fn poll_completions(&self, state: &mut LaneState<C::Wire>) -> usize {
        let LaneState { pipeline, wire: Some(wire), .. } = state else { return 0 };
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
        // What was posted earlier is done, too.
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

    /// Nothing was found: now and then, looks at the clock and for news of the connection. If that was its end, gives how many
    /// chains have failed.
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
        let has_ended = state.wire.as_mut().is_some_and(Wire::has_ended);
        let over = has_ended || waited >= self.connect.timeout();
        if over { self.tear_down(state, None, has_ended) } else { 0 }
    }

    /// Ends a connection that does not work any more. `failure` is the request that failed first, if it is known; `has_ended` says
    /// that the memory node has closed the connection. Gives how many chains have failed.
    fn tear_down(
        &self,
        state: &mut LaneState<C::Wire>,
        failure: Option<(u64, Outcome)>,
        has_ended: bool,
    ) -> usize {
        let Some(mut wire) = state.wire.take() else { return 0 };
        tracing::warn!(node = self.connect.node(), ?failure, "connection lost");
        wire.stop();
        // What was executed before has its results; after the first that was not, nothing is.
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
        // Destroys the queue pair: from here on the device touches nothing of it.
        drop(wire);
        // Why it was closed is told to whoever connects.
        let renewed = (has_ended || ended_meanwhile).then(|| self.connect.connect());
        if let Some(Err(Error::Evicted(evicted))) = &renewed {
            state.evicted = Some(evicted.process);
        }
        state.failed = Some(Instant::now());
        let failed = self.give_up(state, failure);
        if let Some(Ok(wire)) = renewed {
            state.pipeline.set_credits(wire.credits());
            (state.wire, state.failed) = (Some(wire), None);
        }
        failed
    }

    /// Fails all chains that are not done; gives how many.
    fn give_up(
        &self,
        state: &mut LaneState<C::Wire>,
        failure: Option<((&'static str, Address), Outcome)>,
    ) -> usize {
        let (node, timeout) = (self.connect.node(), self.connect.timeout());
        if let Some(process) = state.evicted {
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

    /// Connects anew, unless that was tried a moment ago.
    fn reconnect(&self, state: &mut LaneState<C::Wire>) -> bool {
        let is_too_soon = state.failed.is_some_and(|at| at.elapsed() < self.connect.timeout());
        if is_too_soon || state.evicted.is_some() {
            return false;
        }
        match self.connect.connect() {
            Ok(wire) => {
                state.pipeline.set_credits(wire.credits());
                (state.wire, state.failed) = (Some(wire), None);
                tracing::info!(node = self.connect.node(), "connected again");
                true
            }
            Err(error) => {
                tracing::warn!(node = self.connect.node(), %error, "not connected again");
                if let Error::Evicted(evicted) = &error {
                    state.evicted = Some(evicted.process);
                }
                state.failed = Some(Instant::now());
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
