//! A lane: a connection to one memory node, on which one or several threads post chains.
//!
//! Chains are queued immediately and posted when their thread has no other work, so the chains of its tasks are posted together. A waiting thread
//! also polls for completions, its own and those of other threads of the lane.
//!
//! All methods need exclusive access. A lane of one thread is that thread's own value; a shared one is in a mutex (see `endpoint`). So a thread with a
//! lane of its own takes no lock and counts no references. Only a report of a stall comes from another thread: it asks, and the lane's user
//! answers ([`Inquiry`]).
//!
//! # Failure of the memory node
//!
//! The device reports a failed connection, after a delay of its own; the connection manager reports an ended one. Neither report is certain, so a
//! waiting thread also checks the clock. If no posted request completes within the timeout, the connection is torn down: its queue pair is stopped,
//! the completions of executed requests are taken, and the queue pair is destroyed. From then on the device touches no buffer. Every incomplete chain
//! fails. The next chain reconnects, but not sooner than a timeout after the last attempt: until then chains fail immediately.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::inquiry::Inquiry;
use super::pipeline::{Outlet, Pipeline, Request, Ring, Target};
use super::wire::{Connect, Outcome, Wire};
use crate::chain::{Op, RawChain};
use crate::error::{self, Error, Result};
use crate::handshake::Segment;
use farfield_words::Address;

/// The polls without a completion before a thread checks the clock and the connection's events.
const LOOKS_PER_CLOCK: u32 = 1024;
/// The rounds of a thread without a completion before it posts the queued chains although more are under way, which may take long.
const ROUNDS_PER_POST: u32 = 4;
/// The timeout for flushing the requests of a connection that is being torn down.
const DRAIN: Duration = Duration::from_millis(100);

pub(crate) struct Lane<C: Connect> {
    connect: C,
    pipeline: Pipeline,
    link: Link<C::Wire>,
    /// The first check of the clock since the last completion, or since a chain was posted on an idle lane.
    waiting_since: Option<Instant>,
    /// The number of rounds of its threads, and of rounds without a completion since it last posted.
    round: u64,
    rounds_without_completion: u32,
    /// The number of polls without a completion since the last check of the clock.
    looks: u32,
    doorbells: u64,
    /// True if words are watched on the connection.
    is_watching: bool,
    inquiry: Arc<Inquiry>,
}

/// A wire that a pipeline fills, with the segments that its requests are for.
struct Port<'a, C: Connect> {
    wire: &'a mut C::Wire,
    connect: &'a C,
}

impl<C: Connect> Ring for Port<'_, C> {
    #[inline]
    fn read(&self, at: usize, into: &mut [u64]) {
        self.wire.ring().read(at, into);
    }
    #[inline]
    fn write(&self, at: usize, from: &[u64]) {
        self.wire.ring().write(at, from);
    }
}

impl<C: Connect> Outlet for Port<'_, C> {
    #[inline]
    fn target(&self, at: Address) -> Target {
        let (first, segments) = self.connect.segments();
        let Segment { base, rkey } = segments[usize::from(at.segment() - first)];
        // If a memory node has sent a wrong base, its own device refuses the address.
        Target { address: base.wrapping_add(at.offset()), key: rkey }
    }
    #[allow(clippy::inline_always)] // the verb of most requests is constant
    #[inline(always)]
    fn add(&mut self, request: Request) {
        self.wire.add(request);
    }
    fn signal_last(&mut self) {
        self.wire.signal_last();
    }
}

/// The connection of a lane.
enum Link<W> {
    Connected(W),
    /// The first chain connects it.
    Unconnected,
    /// The connection was lost, or the last attempt to connect has failed, at this time.
    Lost(Instant),
    /// The cluster has evicted the process with this number: the lane never reconnects.
    Evicted(u32),
}

impl<W> Link<W> {
    #[inline]
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
    pub(crate) fn new(connect: C) -> Result<Self> {
        let mut lane = Self::unconnected(connect);
        let wire = lane.connect.connect()?;
        lane.use_wire(wire);
        Ok(lane)
    }

    /// Makes a lane that its first chain connects.
    pub(crate) fn unconnected(connect: C) -> Self {
        Self {
            inquiry: Arc::new(Inquiry::new(connect.node())),
            connect,
            pipeline: Pipeline::default(),
            link: Link::Unconnected,
            waiting_since: None,
            round: 0,
            rounds_without_completion: 0,
            looks: 0,
            doorbells: 0,
            is_watching: false,
        }
    }

    fn use_wire(&mut self, wire: C::Wire) {
        self.pipeline.set_credits(wire.credits());
        self.link = Link::Connected(wire);
    }

    /// Pushes a chain, which the next doorbell posts. Returns its number.
    #[inline]
    pub(crate) fn push(&mut self, chain: RawChain) -> usize {
        let Self { connect, pipeline, link, .. } = self;
        pipeline.push(chain, link.wire().map(|wire| Port { wire, connect }).as_mut())
    }

    /// Pushes a single operation of at most [`SINGLE_WORDS`](crate::chain::SINGLE_WORDS) words, which the next doorbell posts. Returns its number.
    #[allow(clippy::inline_always)] // or the operation is copied through memory
    #[inline(always)]
    pub(crate) fn push_single(&mut self, op: impl Fn() -> Op, written: &[u64], target: Target) -> usize {
        let Self { connect, pipeline, link, .. } = self;
        pipeline.push_single(op, written, target, link.wire().map(|wire| Port { wire, connect }).as_mut())
    }

    /// As [`push_single`](Self::push_single), if the lane is connected and its pipeline can make the request. If not, returns `None` and has no
    /// effect.
    #[allow(clippy::inline_always)] // as above
    #[inline(always)]
    pub(crate) fn try_push_single(
        &mut self,
        op: impl Fn() -> Op,
        written: &[u64],
        target: Target,
    ) -> Option<usize> {
        let Self { connect, pipeline, link, .. } = self;
        pipeline.try_push_single(op, written, target, &mut Port { wire: link.wire()?, connect })
    }

    /// Returns whether a chain is done. If not, polls for completions, and posts queued chains if the thread has no other work.
    #[inline]
    pub(crate) fn is_done(&mut self, number: usize) -> bool {
        self.pipeline.is_done(number) || self.poll_pending(number)
    }

    /// As [`is_done`](Self::is_done), for a chain that was not done before. Not inlined, so that the poll of a chain that is done is a short function.
    #[inline(never)]
    fn poll_pending(&mut self, number: usize) -> bool {
        if self.pipeline.is_fresh(number, self.round) {
            return false;
        }
        if self.pipeline.is_waiting(number) {
            self.post_by_call();
        }
        self.poll_completions() > 0 && self.pipeline.is_done(number)
    }

    /// Takes back a chain that is done.
    #[inline]
    pub(crate) fn take(&mut self, number: usize) -> (RawChain, Result<()>) {
        let Self { pipeline, link, .. } = self;
        pipeline.take(number, link.wire().map(|wire| wire.ring()))
    }

    /// Takes back a single operation if it is done, as [`Pipeline::take_single`]. If not, polls as [`is_done`](Self::is_done).
    #[allow(clippy::inline_always)] // as its caller
    #[inline(always)]
    pub(crate) fn poll_single(&mut self, number: usize, into: &mut [u64]) -> Poll<Result<()>> {
        let Self { pipeline, link, .. } = self;
        if let Some(taken) = pipeline.take_single(number, into, link.wire().map(|wire| wire.ring())) {
            return Poll::Ready(taken);
        }
        if self.poll_pending(number) { self.poll_again(number, into) } else { Poll::Pending }
    }

    /// Takes back a single operation if it is done, as [`Pipeline::try_take_single`]. If not, returns `None` and has no effect.
    #[allow(clippy::inline_always)] // as its caller
    #[inline(always)]
    pub(crate) fn try_poll_single(&mut self, number: usize, into: &mut [u64]) -> Option<()> {
        self.pipeline.try_take_single(number, into, self.link.wire()?.ring())
    }

    /// Takes back a single operation that its own poll has found done.
    #[cold]
    fn poll_again(&mut self, number: usize, into: &mut [u64]) -> Poll<Result<()>> {
        let Self { pipeline, link, .. } = self;
        let taken = pipeline.take_single(number, into, link.wire().map(|wire| wire.ring()));
        taken.map_or(Poll::Pending, Poll::Ready)
    }

    pub(crate) fn forget(&mut self, number: usize) {
        self.pipeline.forget(number);
    }

    pub(crate) fn detach(&mut self, number: usize) {
        self.pipeline.detach(number);
    }

    /// A round of an idle thread: posts the chains that wait, and polls for completions until at least as many chains are done as are under way, or
    /// until `looks` polls found none. Returns whether any chain is done.
    ///
    /// A thread polls all of its tasks in a round, so the more of them can continue, the less each costs.
    #[allow(clippy::inline_always)] // it is what an awaited operation costs
    #[inline(always)]
    pub(crate) fn poll_round(&mut self, looks: u32) -> bool {
        self.round += 1;
        if self.inquiry.is_asked() {
            self.answer_inquiry();
        }
        let mut done = self.poll_completions();
        if self.pipeline.has_waiting()
            && (self.pipeline.has_many_waiting() || self.rounds_without_completion >= ROUNDS_PER_POST)
        {
            self.rounds_without_completion = 0;
            self.post();
        }
        let mut remaining = looks;
        while remaining > 0
            && self.pipeline.in_flight() > 0
            && (done == 0 || done < self.pipeline.under_way())
        {
            let more = self.poll_in_flight();
            done += more;
            if more == 0 {
                remaining -= 1;
                // After the poll: a software device may be done before the doorbell returns.
                std::hint::spin_loop();
            }
        }
        self.rounds_without_completion = if done > 0 { 0 } else { self.rounds_without_completion + 1 };
        done > 0
    }

    /// Posts all chains. Without credits this waits for completions; if the memory node does not answer, chains fail after the timeout.
    pub(crate) fn post_all(&mut self) {
        while self.pipeline.has_waiting() {
            self.post_by_call();
            if self.pipeline.has_waiting() {
                self.poll_completions();
            }
        }
    }

    /// Returns whether requests are in flight.
    pub(crate) fn is_under_way(&self) -> bool {
        self.pipeline.in_flight() > 0
    }

    /// Watches words, under a number, before the next request takes effect. Returns `false` if it can not; and if the connection is lost, so are its watches.
    pub(crate) fn watch(&mut self, target: Target, words: usize, number: u64) -> bool {
        let watches = self.link.wire().is_some_and(|wire| wire.watch(target.address, words, number));
        self.is_watching |= watches;
        watches
    }

    /// Watches the words that begin here no more, once the next request takes effect.
    pub(crate) fn unwatch(&mut self, target: Target) {
        if let Some(wire) = self.link.wire() {
            wire.unwatch(target.address);
        }
    }

    /// Watches no words any more: another thread has the lane next.
    pub(crate) fn unwatch_all(&mut self) {
        if std::mem::take(&mut self.is_watching)
            && let Some(wire) = self.link.wire()
        {
            wire.unwatch_all();
        }
    }

    /// Returns whether words are watched.
    pub(crate) fn is_watching(&self) -> bool {
        self.is_watching
    }

    /// Looks for forwarded words, unless polls for completions do. Returns whether some have arrived.
    pub(crate) fn poll_watches(&mut self) -> bool {
        if !self.is_watching {
            return false;
        }
        let is_idle = self.pipeline.in_flight() == 0;
        let Some(wire) = self.link.wire() else { return false };
        let mut failure = None;
        if is_idle {
            // Nothing completes.
            wire.completions(|completion| failure = Some((completion.number, completion.outcome)));
        }
        let has_changes = wire.has_changes();
        if failure.is_some() {
            self.tear_down(failure, true);
        }
        has_changes
    }

    /// Passes forwarded words on: the number of the watch, the address, and the words.
    pub(crate) fn take_changes(&mut self, mut each: impl FnMut(u64, Address, &[u64])) {
        let (first, _) = self.connect.segments();
        let Some(wire) = self.link.wire() else { return };
        let changes = wire.take_changes();
        let mut rest = &changes[..];
        while let [number, at, words, following @ ..] = rest
            && let Some((words, following)) = following.split_at_checked(*words as usize)
        {
            let at = Address::from_bits(*at);
            each(*number, Address::new(first.wrapping_add(at.segment()), at.offset()), words);
            rest = following;
        }
    }

    /// Returns the descriptor that becomes readable when a completion arrives, if there is one.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if let Link::Connected(wire) = &self.link { wire.descriptor() } else { None }
    }

    /// Has the next poll without a completion check the clock: the thread has slept, so its polls take much longer than usual.
    pub(crate) fn time_has_passed(&mut self) {
        self.looks = LOOKS_PER_CLOCK;
    }

    pub(crate) fn doorbells(&self) -> u64 {
        self.doorbells
    }

    /// Returns what a report of a stall asks for a description of the requests in flight.
    pub(crate) fn inquiry(&self) -> &Arc<Inquiry> {
        &self.inquiry
    }

    #[cold]
    fn answer_inquiry(&mut self) {
        let description = self.describe();
        self.inquiry.answer(description);
    }

    fn describe(&mut self) -> String {
        let node = self.connect.node();
        let since = self.waiting_since.map_or_else(
            || "its timeout does not run".to_owned(),
            |since| {
                format!(
                    "without a completion for {:.1?}, and fails after {:.1?}",
                    since.elapsed(),
                    self.connect.timeout()
                )
            },
        );
        let connection = self.link.wire().map_or("which is not connected", Wire::state);
        format!("the lane to memory node {node}, {connection}, {since}: {}", self.pipeline.describe_use())
    }

    #[inline(never)]
    fn post_by_call(&mut self) {
        self.post();
    }

    /// Posts as many requests as credits allow, with one doorbell. Inlined into the round of an idle thread only.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    fn post(&mut self) {
        if !matches!(self.link, Link::Connected(_)) && !self.reconnect() {
            self.give_up(None);
            return;
        }
        let Self { connect, pipeline, link: Link::Connected(wire), waiting_since, .. } = self else {
            return;
        };
        if pipeline.has_queued() {
            pipeline.make_requests(&mut Port { wire, connect });
        }
        if !pipeline.has_requests() {
            return;
        }
        if pipeline.in_flight() == 0 {
            *waiting_since = None;
        }
        self.doorbells += 1;
        let posted = wire.post();
        pipeline.was_posted();
        if posted.is_err() {
            self.tear_down(None, false);
        }
    }

    /// Polls for completions if requests are in flight. Returns how many chains are done, or have failed.
    #[inline]
    fn poll_completions(&mut self) -> usize {
        if self.pipeline.in_flight() > 0 { self.poll_by_call() } else { 0 }
    }

    #[inline(never)]
    fn poll_by_call(&mut self) -> usize {
        self.poll_in_flight()
    }

    /// As [`poll_completions`](Self::poll_completions), while requests are in flight. Inlined as [`post`](Self::post) is.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    fn poll_in_flight(&mut self) -> usize {
        let Self { pipeline, link: Link::Connected(wire), .. } = self else { return 0 };
        let (mut failure, mut end) = (None, 0);
        let found = wire.completions(|completion| match completion.outcome {
            Outcome::Done => end = completion.number + 1,
            outcome => failure = failure.or(Some((completion.number, outcome))),
        });
        if found == 0 {
            return self.check_connection();
        }
        // Earlier requests are done, too.
        let chains = pipeline.complete(end, wire.ring());
        if failure.is_some() {
            return chains + self.tear_down(failure, false);
        }
        (self.waiting_since, self.looks) = (None, 0);
        if self.pipeline.has_queued() {
            self.post_by_call();
        }
        chains
    }

    /// After polls without a completion, checks the clock and the connection's events. Returns how many chains have failed if the connection has
    /// ended.
    #[inline]
    fn check_connection(&mut self) -> usize {
        self.looks += 1;
        if self.looks < LOOKS_PER_CLOCK { 0 } else { self.check_clock() }
    }

    #[cold]
    fn check_clock(&mut self) -> usize {
        self.looks = 0;
        let waited = self.waiting_since.get_or_insert_with(Instant::now).elapsed();
        if self.inquiry.is_asked() {
            self.answer_inquiry();
        }
        let has_ended = self.link.wire().is_some_and(Wire::has_ended);
        let over = has_ended || waited >= self.connect.timeout();
        if over { self.tear_down(None, has_ended) } else { 0 }
    }

    /// Tears down a failed connection. `failure` is the request that failed first, if known; `has_ended` is true if the memory node has closed
    /// the connection. Returns how many chains have failed.
    #[cold]
    fn tear_down(&mut self, failure: Option<(u64, Outcome)>, has_ended: bool) -> usize {
        let Some(mut wire) = self.link.take() else { return 0 };
        self.is_watching = false;
        tracing::warn!(node = self.connect.node(), ?failure, "connection lost");
        wire.stop();
        // Executed requests have results; no request behind the first unexecuted one has.
        let deadline = Instant::now() + DRAIN;
        let mut flushed = failure.is_some();
        while self.pipeline.in_flight() > 0 && !flushed && Instant::now() < deadline {
            let mut end = 0;
            wire.completions(|completion| match completion.outcome {
                Outcome::Done if !flushed => end = completion.number + 1,
                _ => flushed = true,
            });
            self.pipeline.complete(end, wire.ring());
        }
        let failure = failure.and_then(|(number, outcome)| Some((self.pipeline.describe(number)?, outcome)));
        let ended_meanwhile = wire.has_ended();
        self.pipeline.leave_places(wire.ring());
        // Destroys the queue pair: from here on the device touches no buffer of it.
        drop(wire);
        // The reason of the close is in the answer to a new connection request.
        let renewed = (has_ended || ended_meanwhile).then(|| self.connect.connect());
        self.link = match &renewed {
            Some(Err(error)) => Link::after(error),
            _ => Link::Lost(Instant::now()),
        };
        let failed = self.give_up(failure);
        if let Some(Ok(wire)) = renewed {
            self.use_wire(wire);
        }
        failed
    }

    /// Fails all incomplete chains. Returns their number.
    #[cold]
    fn give_up(&mut self, failure: Option<((&'static str, Address), Outcome)>) -> usize {
        let (node, timeout) = (self.connect.node(), self.connect.timeout());
        if let Link::Evicted(process) = self.link {
            return self.pipeline.fail(|_, _| Error::from(error::Evicted { process }));
        }
        self.pipeline.fail(|operation, address| match &failure {
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
    #[cold]
    fn reconnect(&mut self) -> bool {
        match self.link {
            Link::Unconnected => {}
            Link::Lost(since) if since.elapsed() >= self.connect.timeout() => {}
            _ => return false,
        }
        match self.connect.connect() {
            Ok(wire) => {
                self.use_wire(wire);
                tracing::info!(node = self.connect.node(), "connected again");
                true
            }
            Err(error) => {
                tracing::warn!(node = self.connect.node(), %error, "not connected again");
                self.link = Link::after(&error);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
