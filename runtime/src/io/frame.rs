//! Frames: chains under construction, in flight and completed.
//!
//! A frame has a chain's *parts*, one for each change of memory node, and the duties that end with the chain: locks to release, blocks that it
//! publishes, attempts to take a lock whose result was dropped. It is shared, by reference count, between the chain and its pending results. The
//! thread keeps all frames that it has made, and reuses one without other references. So a warm thread allocates nothing.
//!
//! On an immediate fabric a chain is executed in its frame. On the others a part moves to the endpoint, and returns with its results.
//!
//! Invariant: nothing of the frame is borrowed while a chain is posted, or completed by a poll. A detached chain may complete at any post, and
//! settles the locks of its own frame then.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};

use farfield_fabric::Posted;
use farfield_fabric::chain::{Op, RawChain, Slot};
use farfield_fabric::host::Host;
use farfield_words::{Address, Block};

use super::acquisition::Acquisition;
use super::compensation::{Compensating, Exchange};
use super::detached::{Detaching, Releases};
use super::posting::{Operations, Thread};
use super::submit::Submitting;
use crate::error::{self, Error, Result};

/// The position of a result: an operation of a part.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) part: u32,
    pub(crate) op: u32,
}

/// A chain's operations, results and duties.
#[derive(Default)]
pub(crate) struct Frame {
    body: RefCell<Body>,
}

#[derive(Default)]
struct Body {
    /// The parts before the last; a completed part holds its results.
    earlier: Vec<RawChain>,
    /// The last part, to which operations are added.
    last: RawChain,
    /// The segment of the operation that was added last.
    segment: u16,
    /// The number of posted parts, and of completed ones.
    posted: usize,
    done: usize,
    /// The part in flight.
    in_flight: Option<Posted>,
    /// True if the chain is in flight and detached: its completion settles its locks.
    is_detached: bool,
    /// A lock that the chain takes twice.
    taken_twice: Option<Address>,
    /// Lock attempts of parts that are not posted yet and whose guards were dropped: the part, and the exchange that releases the lock.
    abandoned: Vec<(u32, Exchange)>,
    /// The locks that its operations release. If the chain is dropped before it completes, each is released by an exchange.
    releases: Vec<Acquisition>,
    /// The blocks of objects that it publishes. They are freed if the chain is dropped before it is posted.
    publishes: Vec<Block>,
}

/// All frames of a thread. A frame is free if only the pool refers to it.
#[derive(Default)]
pub(crate) struct FramePool {
    all: RefCell<Vec<Rc<Frame>>>,
    /// The frame that was taken last: mostly it is free again.
    last: Cell<usize>,
}

impl FramePool {
    /// Returns a free frame, emptied.
    #[inline]
    pub(crate) fn take<T: Thread>(&self, ct: &T) -> Rc<Frame> {
        let all = self.all.borrow();
        if let Some(frame) = all.get(self.last.get())
            && Rc::strong_count(frame) == 1
        {
            frame.empty(ct);
            return Rc::clone(frame);
        }
        drop(all);
        self.take_another(ct)
    }

    #[cold]
    fn take_another<T: Thread>(&self, ct: &T) -> Rc<Frame> {
        let mut all = self.all.borrow_mut();
        let free = all.iter().position(|frame| Rc::strong_count(frame) == 1);
        self.last.set(free.unwrap_or(all.len()));
        if let Some(free) = free {
            all[free].empty(ct);
            return Rc::clone(&all[free]);
        }
        let frame = Rc::new(Frame::default());
        frame.empty(ct);
        all.push(Rc::clone(&frame));
        frame
    }
}

impl Body {
    /// Returns the number of parts.
    #[inline]
    fn parts(&self) -> usize {
        self.earlier.len() + 1
    }

    #[inline]
    fn part(&self, index: usize) -> &RawChain {
        self.earlier.get(index).unwrap_or(&self.last)
    }

    #[inline]
    fn part_mut(&mut self, index: usize) -> &mut RawChain {
        self.earlier.get_mut(index).unwrap_or(&mut self.last)
    }

    /// Adds an operation at `at` to the last part, or to a new part if the memory node changes.
    #[inline]
    fn add<T: Thread>(&mut self, ct: &T, at: Address, add: impl FnOnce(&mut RawChain)) -> Found {
        if self.segment != at.segment() {
            self.enter_segment(ct, at);
        }
        add(&mut self.last);
        Found { part: self.earlier.len() as u32, op: self.last.ops().len() as u32 - 1 }
    }

    /// Begins a new part unless the segment is on the memory node of the last part.
    #[cold]
    fn enter_segment<T: Thread>(&mut self, ct: &T, at: Address) {
        if self.last.ops().first().is_some_and(|first| ct.node_of(first.at()) != ct.node_of(at)) {
            self.earlier.push(std::mem::replace(&mut self.last, ct.empty_chain()));
        }
        self.segment = at.segment();
    }

    /// A part is about to be posted. From the first part on, the objects may be reachable: a link in it may point to an object of a later part.
    #[inline]
    fn is_posted<T: Thread>(&mut self, ct: &T) {
        self.publishes.clear();
        self.posted += 1;
        if self.posted == self.parts() {
            self.releases.iter_mut().for_each(|lock| lock.may_be_released(ct));
        }
    }

    /// Returns an error if the chain must not be posted.
    #[inline]
    fn check(&self) -> Result<()> {
        match self.taken_twice {
            None => Ok(()),
            Some(lock) => Err(taken_twice(lock)),
        }
    }
}

/// Returns the error of a chain that takes a lock twice.
#[cold]
pub(crate) fn taken_twice(lock: Address) -> Error {
    Error::from(error::LockTakenTwice { lock, how: "one chain takes it twice: take it once" })
}

impl Frame {
    /// Empties the frame for its next chain, and keeps its buffers.
    #[inline]
    fn empty<T: Thread>(&self, ct: &T) {
        let body = &mut *self.body.borrow_mut();
        if body.last.is_worth_keeping() {
            body.last.clear();
        } else {
            body.last = ct.empty_chain();
        }
        (body.posted, body.done) = (0, 0);
        body.is_detached = false;
        body.taken_twice = None;
        if !body.earlier.is_empty() || !body.abandoned.is_empty() {
            body.earlier.drain(..).for_each(|part| ct.recycle(part));
            body.abandoned.drain(..).for_each(|(_, exchange)| exchange.settle(ct));
        }
        // A chain settles its releases and blocks before its frame is free.
        debug_assert!(body.releases.is_empty() && body.publishes.is_empty() && body.in_flight.is_none());
    }

    /// Returns the numbers of parts and of operations.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let body = self.body.borrow();
        let operations: usize = (0..body.parts()).map(|part| body.part(part).ops().len()).sum();
        (if operations == 0 { 0 } else { body.parts() }, operations)
    }

    /// Adds an operation at `at` to the last part, or to a new part if the memory node changes.
    #[inline]
    pub(crate) fn add<T: Thread>(&self, ct: &T, at: Address, add: impl FnOnce(&mut RawChain)) -> Found {
        self.body.borrow_mut().add(ct, at, add)
    }

    /// Notes that the chain takes a lock. A lock that it takes twice without a release in between is an error when it is posted.
    #[inline]
    pub(crate) fn takes(&self, lock: Address) {
        let body = &mut *self.body.borrow_mut();
        let mut ops = (0..body.parts()).rev().flat_map(|part| body.part(part).ops().iter().rev());
        let last = ops.find(|op| op.at() == lock && !matches!(op, Op::Read { .. }));
        if matches!(last, Some(Op::CompareExchange { .. })) {
            body.taken_twice = Some(lock);
        }
    }

    /// The result of a lock attempt was dropped. If the attempt is not posted yet, the frame becomes responsible for its compensation.
    pub(crate) fn abandons(&self, found: Found, compensation: impl FnOnce() -> Option<Exchange>) {
        let body = &mut *self.body.borrow_mut();
        if found.part as usize >= body.posted
            && let Some(exchange) = compensation()
        {
            body.abandoned.push((found.part, exchange));
        }
    }

    /// Adds the release of a lock.
    #[inline]
    pub(crate) fn release<T: Thread>(&self, ct: &T, lock: Acquisition) {
        let body = &mut *self.body.borrow_mut();
        body.add(ct, lock.at, |part| part.replace(lock.at, lock.token, lock.free()));
        body.releases.push(lock);
    }

    /// Adds the WRITE of a new object.
    #[inline]
    pub(crate) fn publish<T: Thread>(&self, ct: &T, block: Block, image: &[u64]) -> Found {
        let body = &mut *self.body.borrow_mut();
        body.publishes.push(block);
        body.add(ct, block.address, |part| part.write(block.address, image))
    }

    /// Returns whether a part has completed.
    #[inline]
    pub(crate) fn is_done(&self, part: u32) -> bool {
        self.body.borrow().done > part as usize
    }

    /// Decodes the result of an operation at `at`: its words, and the expected word of a CAS.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if its part has not completed.
    #[inline]
    pub(crate) fn result<R>(
        &self,
        at: Address,
        found: Found,
        decode: impl FnOnce(&[u64], u64) -> Result<R>,
    ) -> Result<R> {
        let body = &*self.body.borrow();
        if body.done <= found.part as usize {
            return Err(is_not_done(at));
        }
        let part = body.part(found.part as usize);
        let (slot, expected) = match &part.ops()[found.op as usize] {
            Op::Read { slot, .. } | Op::Write { slot, .. } => (*slot, 0),
            Op::CompareExchange { slot, expected, .. } => (Slot::of_word(*slot), *expected),
            Op::FetchAdd { slot, .. } => (Slot::of_word(*slot), 0),
        };
        decode(part.words(&slot), expected)
    }

    /// Executes the chain on an immediate fabric.
    #[inline]
    pub(crate) fn execute<T: Thread>(&self, ct: &T, host: &Host) -> Result<()> {
        ct.io().task_stack.makes_step();
        let body = &mut *self.body.borrow_mut();
        body.check()?;
        while body.posted < body.parts() {
            body.is_posted(ct);
            ct.execute(host, body.part_mut(body.done))?;
            body.done += 1;
        }
        body.releases.drain(..).for_each(|lock| lock.settle(ct));
        Ok(())
    }

    /// Polls the chain; posts a part when the previous part has completed.
    pub(crate) fn poll<T: Thread>(&self, ct: &T, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let in_flight = self.body.borrow_mut().in_flight.take();
            if let Some(posted) = in_flight {
                let mut posted = Some(posted);
                let polled = ct.poll_submitted(&mut posted, context);
                let body = &mut *self.body.borrow_mut();
                match polled {
                    Poll::Pending => {
                        body.in_flight = posted;
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(part)) => {
                        *body.part_mut(body.done) = part;
                        body.done += 1;
                    }
                }
            }
            let Some(part) = self.next_part()? else {
                self.locks_are_released(ct);
                return Poll::Ready(Ok(()));
            };
            let posted = ct.submit(part).into_posted();
            let body = &mut *self.body.borrow_mut();
            body.in_flight = posted;
            body.is_posted(ct);
        }
    }

    /// Takes the next part that is to be posted.
    fn next_part(&self) -> Result<Option<RawChain>> {
        let body = &mut *self.body.borrow_mut();
        body.check()?;
        let next = body.posted;
        let is_empty = body.part(next).ops().is_empty();
        Ok((next < body.parts() && !is_empty).then(|| std::mem::take(body.part_mut(next))))
    }

    /// Posts the chain without waiting.
    pub(crate) fn post<T: Thread>(self: &Rc<Self>, ct: &T) -> Result<()> {
        let parts = self.body.borrow().parts();
        if parts > 1 {
            self.body.borrow().check()?;
            let value = format!("{parts} memory nodes").into();
            let reason = "`post` needs all addresses on one: use `submit`";
            return Err(Error::from(error::InvalidArgument { argument: "chain", value, reason }));
        }
        let Some(part) = self.next_part()? else { return Ok(()) };
        self.body.borrow_mut().is_posted(ct);
        if Detaching::post(ct, part, Rc::clone(self) as _)? {
            self.locks_are_released(ct);
        } else {
            self.body.borrow_mut().is_detached = true;
        }
        Ok(())
    }

    /// The chain is dropped. If it was not posted, its new objects are freed, and guards release the locks that it was to release. Locks that it has
    /// taken and whose outcome was never read are released behind the CAS that took them.
    #[inline]
    pub(crate) fn is_dropped<T: Thread>(&self, ct: &T, free: impl FnMut(Block)) {
        let body = self.body.borrow();
        let is_settled = body.abandoned.is_empty()
            && body.publishes.is_empty()
            && body.releases.is_empty()
            && body.in_flight.is_none();
        drop(body);
        if !is_settled {
            self.settle(ct, free);
        }
    }

    #[cold]
    fn settle<T: Thread>(&self, ct: &T, free: impl FnMut(Block)) {
        let in_flight = self.body.borrow_mut().in_flight.take();
        ct.abandon_submitted(in_flight);
        let (abandoned, posted) = {
            let body = &mut *self.body.borrow_mut();
            (std::mem::take(&mut body.abandoned), body.posted)
        };
        for (part, exchange) in abandoned {
            if (part as usize) < posted {
                ct.compensate(exchange);
            } else {
                exchange.settle(ct);
            }
        }
        self.body.borrow_mut().publishes.drain(..).for_each(free);
        if !self.body.borrow().is_detached {
            self.release_locks(ct);
        }
    }
}

#[cold]
fn is_not_done(at: Address) -> Error {
    Error::from(error::InvalidArgument {
        argument: "pending result",
        value: format!("of an operation at {at}").into(),
        reason: "its chain has not been submitted, or has failed",
    })
}

impl<T: Thread> Releases<T> for Frame {
    /// The chain has released its locks. (Otherwise their guards release them.)
    fn locks_are_released(&self, ct: &T) {
        self.body.borrow_mut().releases.drain(..).for_each(|lock| lock.settle(ct));
    }

    /// The chain has failed: its locks may be held still. Releases them by exchanges.
    fn release_locks(&self, ct: &T) {
        loop {
            let Some(lock) = self.body.borrow_mut().releases.pop() else { return };
            lock.end(ct);
        }
    }
}
