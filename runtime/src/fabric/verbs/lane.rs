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

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::device::Region;
use super::handshake::Segment;
use super::manager::{Id, What};
use super::pipeline::{Credits, Pipeline};
use super::queue::{Batch, Completions, Outcome, Target};
use crate::error::{self, Error, Result};
use crate::fabric::chain::Chain;
use crate::pointer::Address;

/// How often a thread looks for completions in vain before it looks at the clock and for news of the connection.
const LOOKS_PER_CLOCK: u32 = 1024;
/// In how many rounds of its thread, without a completion, it posts what waits although more is under way: nothing of that
/// may be done for long.
const ROUNDS_PER_POST: u32 = 4;
/// How long a connection that is being torn down may take to give back what it had.
const DRAIN: Duration = Duration::from_millis(100);

/// A connection and what belongs to it, in the order in which it is destroyed.
pub(super) struct Connection {
    pub(super) id: Id,
    pub(super) completions: Completions,
    pub(super) ring: Region,
    pub(super) credits: Credits,
}

/// Makes connections for lanes.
pub(super) trait Connect {
    /// A connection of the lane with this number.
    fn connect(&self) -> Result<Connection>;
    /// The memory node's segments and the number of the first.
    fn segments(&self) -> (u16, &[Segment]);
    fn node(&self) -> u16;
    fn timeout(&self) -> Duration;
}

pub(super) struct Lane<C> {
    connect: C,
    state: Mutex<State>,
    doorbells: AtomicU64,
}

struct State {
    pipeline: Pipeline,
    batch: Batch,
    connection: Option<Connection>,
    /// Whether chains wait for credits, not for their thread.
    starved: bool,
    /// When somebody first looked at the clock since something last completed, or was posted where nothing was.
    waiting_since: Option<Instant>,
    /// Counts the rounds of the threads that use it, and those without a completion since it last posted.
    round: u64,
    in_vain: u32,
    /// How often nothing was found since.
    looks: u32,
    /// When a connection was last tried for, if it failed.
    failed: Option<Instant>,
}

impl<C: Connect> Lane<C> {
    /// A lane that is connected.
    pub(super) fn new(connect: C) -> Result<Self> {
        let connection = connect.connect()?;
        let state = State {
            pipeline: Pipeline::new(connection.credits),
            batch: Batch::new(connection.credits.requests),
            connection: Some(connection),
            starved: false,
            waiting_since: None,
            round: 0,
            in_vain: 0,
            looks: 0,
            failed: None,
        };
        Ok(Self { connect, state: Mutex::new(state), doorbells: AtomicU64::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in here is a bug of ours; what it leaves behind is no worse than a lost connection.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        if state.pipeline.is_overdue(number, round) {
            self.post(&mut state);
        }
        if self.look(&mut state) { state.pipeline.take(number) } else { None }
    }

    pub(super) fn forget(&self, number: usize) {
        self.state().pipeline.forget(number);
    }

    pub(super) fn leave(&self, number: usize) {
        self.state().pipeline.leave(number);
    }

    /// A round of a thread: looks for completions, a few times, and posts what waits; gives whether any chain is done.
    pub(super) fn go_on(&self, looks: u32) -> bool {
        let mut state = self.state();
        state.round += 1;
        if self.look(&mut state) {
            state.in_vain = 0;
            return true;
        }
        state.in_vain += 1;
        if state.pipeline.has_queued() && (state.pipeline.has_many_queued() || state.in_vain >= ROUNDS_PER_POST) {
            state.in_vain = 0;
            self.post(&mut state);
        }
        (1..looks).any(|_| {
            std::hint::spin_loop();
            self.look(&mut state)
        })
    }

    pub(super) fn doorbells(&self) -> u64 {
        self.doorbells.load(Ordering::Relaxed)
    }

    /// Posts as much as there are credits for, with one doorbell.
    fn post(&self, state: &mut State) {
        if state.connection.is_none() && !self.reconnect(state) {
            self.give_up(state, None);
            return;
        }
        let State { pipeline, batch, connection, waiting_since, starved, .. } = state;
        let Some(connection) = connection else { return };
        let was_idle = pipeline.in_flight() == 0;
        let (first, segments) = self.connect.segments();
        while !batch.is_full()
            && let Some(request) = pipeline.next(&connection.ring)
        {
            let Segment { base, rkey } = segments[usize::from(request.at.segment() - first)];
            let target = Target { address: base + request.at.offset(), key: rkey };
            batch.push(&request, target, &connection.ring);
        }
        *starved = pipeline.has_queued();
        if pipeline.in_flight() > 0 && was_idle {
            *waiting_since = None;
        }
        if batch.is_empty() {
            return;
        }
        self.doorbells.fetch_add(1, Ordering::Relaxed);
        if !batch.post(&connection.id) {
            self.tear_down(state, None);
        }
    }

    /// Looks for completions; gives whether any chain has completed, or failed.
    fn look(&self, state: &mut State) -> bool {
        let State { pipeline, connection, .. } = state;
        let Some(connection) = connection else { return false };
        if pipeline.in_flight() == 0 {
            return false;
        }
        let (mut chains, mut failure) = (0, None);
        let found = connection.completions.take(|completion| match completion.outcome {
            Outcome::Done => chains += pipeline.complete(completion.number, &connection.ring),
            outcome => failure = failure.or(Some((completion.number, outcome))),
        });
        if failure.is_some() {
            self.tear_down(state, failure);
            return true;
        }
        if found > 0 {
            (state.waiting_since, state.looks) = (None, 0);
            if state.starved {
                self.post(state);
            }
            return chains > 0;
        }
        state.looks += 1;
        if state.looks >= LOOKS_PER_CLOCK {
            state.looks = 0;
            let ended = connection.id.channel().next().is_some_and(|event| matches!(event.what, What::Ended));
            let waited = state.waiting_since.get_or_insert_with(Instant::now).elapsed();
            if ended || waited >= self.connect.timeout() {
                self.tear_down(state, None);
                return true;
            }
        }
        false
    }

    /// Ends a connection that does not work any more. `failure` is the request that failed first, if it is known.
    fn tear_down(&self, state: &mut State, failure: Option<(u64, Outcome)>) {
        let Some(connection) = state.connection.take() else { return };
        tracing::warn!(node = self.connect.node(), ?failure, "connection lost");
        connection.id.stop();
        // What was executed before has its results; after the rest has been flushed nothing is left.
        let deadline = Instant::now() + DRAIN;
        let mut flushed = failure.is_some();
        while state.pipeline.in_flight() > 0 && !flushed && Instant::now() < deadline {
            let pipeline = &mut state.pipeline;
            connection.completions.take(|completion| match completion.outcome {
                Outcome::Done if !flushed => drop(pipeline.complete(completion.number, &connection.ring)),
                _ => flushed = true,
            });
        }
        let failure = failure.and_then(|(number, outcome)| Some((state.pipeline.describe(number)?, outcome)));
        // Destroys the queue pair: from here on the device touches nothing of it.
        drop(connection);
        state.failed = Some(Instant::now());
        self.give_up(state, failure);
    }

    /// Fails all chains that are not done.
    fn give_up(&self, state: &mut State, failure: Option<((&'static str, Address), Outcome)>) {
        let (node, timeout) = (self.connect.node(), self.connect.timeout());
        state.pipeline.fail(|operation, address, _| match &failure {
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
        });
    }

    /// Connects anew, unless that was tried a moment ago.
    fn reconnect(&self, state: &mut State) -> bool {
        if state.failed.is_some_and(|at| at.elapsed() < self.connect.timeout()) {
            return false;
        }
        match self.connect.connect() {
            Ok(connection) => {
                state.pipeline.set_credits(connection.credits);
                state.batch = Batch::new(connection.credits.requests);
                (state.connection, state.failed) = (Some(connection), None);
                tracing::info!(node = self.connect.node(), "connected again");
                true
            }
            Err(error) => {
                tracing::warn!(node = self.connect.node(), %error, "not connected again");
                state.failed = Some(Instant::now());
                false
            }
        }
    }
}
