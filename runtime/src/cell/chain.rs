//! `Chain`: several operations in one round trip.
//!
//! A single operation takes a round trip. Operations whose arguments do not depend on each other's results can form a chain: they are posted
//! together, take effect in program order, and complete together, in one round trip.
//!
//! Only a connection to one memory node keeps program order. A chain with addresses on several nodes is split where the node changes, and each part
//! waits for the previous part: one round trip more for each change. Objects that are used together belong on one node: see
//! [`ComputeThread::near`](crate::ComputeThread::near). If the order between nodes does not matter, use a chain for each node and await them together
//! (`futures_util::future::try_join(a.submit(), b.submit())`, or two [tasks](crate::ComputeThread::tasks)): their round trips overlap.
//!
//! A chain is a value whose type lists its operations. On an immediate fabric the first poll executes them one by one, without a description of them
//! in memory, so the compiler folds each into its accesses. On the others it records them in buffers of the thread, which are reused: a warm thread
//! allocates nothing for a chain. Locks and new objects belong to their operations, so dropping a chain, or its future, at any moment gives back the
//! former and frees the latter, unless they may have been published.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::op::Operations;
use super::op::sealed::Access;
use crate::error::{self, Error, Result};
use crate::io::operations::*;
use crate::io::{Completed, FirstPoll, Submitted, at_first_poll};
use crate::memory::worker::Worker;
use crate::pointer::Guard;
use crate::session::ComputeThread;
use farfield_fabric::host::Host;
use farfield_words::Address;

/// Operations that are posted together and completed together. Made by [`Guard::chain`].
///
/// ```
/// # use farfield::prelude::*;
/// # #[remote]
/// # struct Node { key: u64, next: Link<Node>, lock: Lock, hits: Atomic<u64> }
/// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
/// # let node = Node::new_in(ct, Node::init(7)).await?.write(ct).await?;
/// let g = &ct.pin();
/// let chain = g.chain((op::try_lock(node.lock()), op::read(node), op::fetch_add(node.hits(), 1)));
/// let (lock, seen, hits) = chain.submit().await?; // one round trip
/// let lock = lock.expect("the lock is free");
/// assert_eq!((seen.key, hits), (7, 0));
///
/// let chain = g.chain((op::store(node.hits(), 5), op::release(lock)));
/// chain.submit().await?; // one round trip: the store precedes the release
/// # Ok(()) })?;
/// # Ok::<(), farfield::Error>(())
/// ```
#[must_use = "nothing is posted until it is submitted"]
pub struct Chain<'g, O> {
    ct: &'g ComputeThread,
    operations: O,
}

impl Guard<'_> {
    /// Makes a chain of one or several [operations](crate::op). This guard protects the pointers that it loads.
    #[inline]
    pub fn chain<'g, O: Operations<'g>>(&'g self, operations: O) -> Chain<'g, O> {
        Chain { ct: self, operations }
    }
}

/// The bound of [`ComputeThread::chain`], which no type satisfies: a thread without a guard protects no pointers.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "only a guard makes a chain: it protects the pointers that the chain loads",
    label = "pin first: `let g = &ct.pin();`, then `g.chain(…)`"
)]
pub trait Protects<'g> {}

impl ComputeThread {
    /// Exists only for its error message; it can not be called.
    #[doc(hidden)]
    #[allow(clippy::unused_self)]
    pub fn chain<O>(&self, _: O) -> Chain<'_, O>
    where
        for<'any> Self: Protects<'any>,
    {
        unreachable!("nothing protects so")
    }
}

impl<'g, O: Operations<'g>> FirstPoll for Chain<'g, O> {
    type Output = Result<O::Output>;
    type Rest = Self;

    #[inline(always)]
    #[allow(clippy::inline_always)] // as for `submit`
    fn poll_first(mut self) -> Result<Result<O::Output>, Self> {
        match self.ct.worker().io.endpoint.immediate() {
            Some(host) => Ok(self.execute(host).and_then(|raw| self.operations.results(raw))),
            None => Err(self),
        }
    }
}

impl<'g, O: Operations<'g>> Chain<'g, O> {
    /// Posts all operations and waits for their completion. Returns their results. One round trip, and one for each change of memory node along the
    /// chain.
    ///
    /// Once this future is polled, the operations on the first memory node take effect, also if the future is dropped.
    ///
    /// # Errors
    /// Those of the first operation that fails; later operations are not executed. [`Error::LockTakenTwice`], before any operation is posted.
    /// [`Error::InvalidValue`] if the bits of a result encode no value; all operations are executed then.
    #[inline(always)]
    #[allow(clippy::inline_always)] // or operations and results are moved through memory
    pub fn submit(self) -> impl Future<Output = Result<O::Output>> {
        at_first_poll(self, Self::post_parts)
    }

    /// Executes the operations on an immediate fabric.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn execute(&mut self, host: &Host) -> Result<O::Raw> {
        let ct = self.ct.worker();
        ct.io.task_stack.makes_step();
        self.check()?;
        ct.posts_chain();
        ct.count_chained(self.chained());
        self.operations.prepare(ct);
        match self.operations.execute(ct, host) {
            Ok(raw) => {
                self.operations.settle(&raw);
                Ok(raw)
            }
            Err(error) => {
                self.operations.is_posted(true);
                Err(error)
            }
        }
    }

    /// Returns the number of operations that are not the first of their part.
    #[inline(always)]
    #[allow(clippy::inline_always)] // the number is mostly a constant
    fn chained(&self) -> u64 {
        let mut operations = 0;
        self.operations.visit(&mut |_, _| operations += 1);
        operations - self.parts().min(operations)
    }

    /// Returns the number of parts.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn parts(&self) -> u64 {
        if self.ct.nodes() == 1 { 1 } else { self.count_parts() }
    }

    #[cold]
    fn count_parts(&self) -> u64 {
        let (mut parts, mut last) = (0, None);
        self.operations.visit(&mut |at, _| {
            let node = Some(self.ct.node_of(at));
            parts += u64::from(std::mem::replace(&mut last, node) != node);
        });
        parts
    }

    /// Returns an error if the chain takes a lock twice without a release in between.
    #[inline(always)]
    #[allow(clippy::inline_always)] // mostly it is nothing
    fn check(&self) -> Result<()> {
        if O::LOCKS < 2 { Ok(()) } else { self.check_locks() }
    }

    fn check_locks(&self) -> Result<()> {
        let (mut number, mut twice) = (0, None);
        self.operations.visit(&mut |at, access| {
            number += 1;
            if access == Access::Takes && self.is_taken_before(at, number) {
                twice = Some(at);
            }
        });
        twice.map_or(Ok(()), |lock| Err(taken_twice(lock)))
    }

    /// Returns whether the last write to a lock's word before operation `number` takes the lock.
    fn is_taken_before(&self, lock: Address, number: usize) -> bool {
        let (mut seen, mut is_taken) = (0, false);
        self.operations.visit(&mut |at, access| {
            seen += 1;
            if seen < number && at == lock && access != Access::Reads {
                is_taken = access == Access::Takes;
            }
        });
        is_taken
    }

    /// Posts the parts, each when the previous one has completed.
    async fn post_parts(mut self) -> Result<O::Output> {
        let ct = self.ct.worker();
        self.check()?;
        self.operations.prepare(ct);
        let mut parts = self.ct.buffers.parts(ct);
        self.operations.record(&mut parts);
        let count = parts.chains.len();
        for index in 0..count {
            let submitted = ct.submit(std::mem::take(&mut parts.chains[index]));
            self.operations.is_posted(index + 1 == count);
            let flight =
                InFlight { submitted, operations: &mut self.operations, settles: count == 1 && O::SETTLES };
            parts.chains[index] = flight.await?.into_chain();
        }
        let raw = self.operations.raw(&mut parts.results());
        self.operations.settle(&raw);
        drop(parts);
        self.operations.results(raw)
    }

    /// Posts all operations and does not wait: no round trip. For operations whose result is not needed, such as the release of a lock. Chains of a
    /// thread to one memory node take effect in order, so the thread's next operations on that node come later.
    ///
    /// Objects that the thread's guards protect stay protected until the chain completes. An error that is detected later is returned by one of the
    /// thread's next operations, by [`ComputeThread::flush`], or, if the thread's function has returned, by [`Cluster::run`](crate::Cluster::run).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the addresses are on several memory nodes, since keeping their order requires
    /// waiting; [`Error::LockTakenTwice`]. No operation is posted then.
    pub fn post(mut self) -> Result<()> {
        let ct = self.ct.worker();
        self.check()?;
        let count = self.parts();
        if count > 1 {
            let value = format!("{count} memory nodes").into();
            let reason = "`post` needs all addresses on one: use `submit`";
            return Err(Error::from(error::InvalidArgument { argument: "chain", value, reason }));
        }
        if let Some(host) = ct.io.endpoint.immediate() {
            let raw = self.execute(host)?;
            return if O::SETTLES { self.operations.results(raw).map(drop) } else { Ok(()) };
        }
        self.operations.prepare(ct);
        let mut parts = self.ct.buffers.parts(ct);
        self.operations.record(&mut parts);
        let Some(part) = parts.chains.pop() else { return Ok(()) };
        self.operations.is_posted(true);
        let releases = self.ct.buffers.releases();
        self.operations.detach(&releases);
        if O::SETTLES {
            let mut settle = Vec::new();
            self.operations.abandon(&mut settle);
            ct.submit_detached(part, move |ct, done| {
                if done.is_some() {
                    releases.locks_are_released(ct);
                } else {
                    releases.release_locks(ct);
                }
                for settle in settle {
                    settle(ct, done);
                }
            });
            return Ok(());
        }
        // Dropping the operations then undoes locks that the chain may take.
        ct.post(part, releases)
    }
}

/// The future of a posted chain. If it is dropped, the operations settle what the outcome decides when it is known.
struct InFlight<'a, 'g, O: Operations<'g>> {
    submitted: Submitted<'g, Worker>,
    operations: &'a mut O,
    settles: bool,
}

impl<'g, O: Operations<'g>> Unpin for InFlight<'_, 'g, O> {}

impl<'g, O: Operations<'g>> Future for InFlight<'_, 'g, O> {
    type Output = Result<Completed<'g, Worker>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.submitted).poll(context)
    }
}

impl<'g, O: Operations<'g>> Drop for InFlight<'_, 'g, O> {
    #[inline]
    fn drop(&mut self) {
        if self.settles && self.submitted.is_posted() {
            self.submitted.abandon(|settle| self.operations.abandon(settle));
        }
    }
}

/// Returns the error of a chain that takes a lock twice.
#[cold]
pub(super) fn taken_twice(lock: Address) -> Error {
    Error::from(error::LockTakenTwice { lock, how: "one chain takes it twice: take it once" })
}

impl<'g, O: Operations<'g>> fmt::Debug for Chain<'g, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut operations = 0;
        self.operations.visit(&mut |_, _| operations += 1);
        f.debug_struct("Chain")
            .field("operations", &operations)
            .field("memory_nodes", &self.parts().min(operations))
            .finish()
    }
}
