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
//! Results are stored in buffers of the thread, which are reused: a warm thread allocates nothing for a chain. A [`Pending`] keeps its buffer from
//! being reused.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use super::link::{Exchanged, Link, LinkWord};
use super::lock::{Lock, LockGuard};
use super::read::check_aligned;
use super::{Atomic, CompareExchangeError, Place};
use super::{Owned, Pending, PendingLock, Written};
use crate::error::{self, Error, Result};
use crate::io::Releases as _;
use crate::io::operations::*;
use crate::io::{Found, Results};
use crate::pointer::Guard;
use crate::pointer::{Address, Marks, RemotePtr, Shared};
use crate::session::ComputeThread;
use farfield_fabric::chain::{Op, RawChain, Slot};
use farfield_words::scratch::bytes;
use farfield_words::{Field, FrozenField, Initial, Integer, Remote, WORD_BYTES, Word};

/// Operations that are posted together and completed together. Made by [`Guard::chain`].
///
/// Each method adds an operation and returns a [`Pending`], which holds the result once the chain has completed.
///
/// ```
/// # use farfield::prelude::*;
/// # #[remote]
/// # struct Node { key: u64, next: Link<Node>, lock: Lock, hits: Atomic<u64> }
/// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
/// # let node = Node::new_in(ct, Node::init(7)).await?.write(ct).await?;
/// let g = &ct.pin();
/// let mut chain = g.chain();
/// let lock = chain.try_lock(node.lock());
/// let seen = chain.read(node);
/// let hits = chain.fetch_add(node.hits(), 1);
/// chain.submit().await?; // one round trip
/// let lock = lock.get()?.expect("the lock is free");
/// assert_eq!((seen.get()?.key, hits.get()?), (7, 0));
///
/// let mut chain = g.chain();
/// chain.store(node.hits(), 5);
/// chain.release(lock);
/// chain.submit().await?; // one round trip: the store precedes the release
/// # Ok(()) })?;
/// # Ok::<(), farfield::Error>(())
/// ```
#[must_use = "nothing is posted until it is submitted"]
pub struct Chain<'g> {
    ct: &'g ComputeThread,
    results: Rc<Results>,
}

impl Guard<'_> {
    /// Makes an empty chain. This guard protects the pointers that it loads.
    pub fn chain(&self) -> Chain<'_> {
        Chain { ct: self, results: self.results.take(self.worker()) }
    }
}

/// The bound of [`ComputeThread::chain`], which no type satisfies: a thread without a guard protects no pointers.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "only a guard makes a chain: it protects the pointers that the chain loads",
    label = "pin first: `let g = &ct.pin();`, then `g.chain()`"
)]
pub trait Protects<'g> {}

impl ComputeThread {
    /// Exists only for its error message; it can not be called.
    #[doc(hidden)]
    #[allow(clippy::unused_self)]
    pub fn chain(&self) -> Chain<'_>
    where
        for<'any> Self: Protects<'any>,
    {
        unreachable!("no type implements `Protects`")
    }
}

/// An argument of [`Chain::read`]: a field, an object, or the word of a cell.
pub trait Readable<'g> {
    /// The declared type.
    type Field: Field;
    /// Returns the address.
    #[doc(hidden)]
    fn at(self) -> Address;
}

impl<'g, F: FrozenField> Readable<'g> for Place<'g, F> {
    type Field = F;
    fn at(self) -> Address {
        self.address()
    }
}
impl<'g, T: Remote, M> Readable<'g> for Shared<'g, T, M> {
    type Field = T;
    fn at(self) -> Address {
        self.address()
    }
}
impl<T: Remote> Readable<'_> for RemotePtr<T> {
    type Field = T;
    fn at(self) -> Address {
        self.address()
    }
}

impl<'g> Chain<'g> {
    /// Returns whether the chain has no operations.
    pub fn is_empty(&self) -> bool {
        self.results.parts.borrow().is_empty()
    }

    /// Adds an operation at `at` to the last part, or to a new one if the memory node changes.
    fn add(&self, at: Address, add: impl FnOnce(&mut RawChain) -> Slot) -> Found {
        let mut parts = self.results.parts.borrow_mut();
        let same_node = parts
            .last()
            .and_then(|last| last.ops().first())
            .is_some_and(|first| self.ct.node_of(first.at()) == self.ct.node_of(at));
        if !same_node {
            parts.push(self.ct.empty_chain());
        }
        let part = parts.len() - 1;
        let slot = add(&mut parts[part]);
        Found { part, slot, at }
    }

    fn pending<T>(
        &self,
        found: Found,
        expected: u64,
        decode: fn(Address, &[u64], u64) -> Result<T>,
    ) -> Pending<'g, T> {
        Pending { results: Rc::clone(&self.results), found, expected, decode, thread: PhantomData }
    }

    /// Reads the field that is declared as `F` at `at`.
    fn read_field<F: Field>(&mut self, at: Address, peek: bool) -> Pending<'g, F::Value<'g>> {
        let within = if align_of::<F::Cell>() >= WORD_BYTES { 0 } else { at.bits() % WORD_BYTES as u64 };
        let words = (within as usize + size_of::<F::Cell>()).div_ceil(WORD_BYTES);
        let first = Address::from_bits(at.bits() - within);
        let mut found =
            self.add(first, |part| if peek { part.peek(first, words) } else { part.read(first, words) });
        found.at = at;
        self.pending(found, 0, |at, words, _| {
            check_aligned(at, align_of::<F::Cell>())?;
            let within = if align_of::<F::Cell>() >= WORD_BYTES { 0 } else { at.bits() % WORD_BYTES as u64 };
            Ok(F::decode(at, &bytes(words)[within as usize..])?)
        })
    }

    /// Reads all fields of an object, or one field.
    pub fn read<R: Readable<'g>>(&mut self, what: R) -> Pending<'g, <R::Field as Field>::Value<'g>> {
        self.read_field::<R::Field>(what.at(), false)
    }

    /// Reads an object that may have been freed and reused: a guess. The result is meaningful only if results *before* it in the chain show that the
    /// object was reachable then; from that moment the guard protects it. Ignore the result of a wrong guess.
    ///
    /// A link and the object that it probably points to thus take one round trip. In the simulator only a peek may read freed memory.
    pub fn peek<T: Remote>(&mut self, guess: RemotePtr<T>) -> Pending<'g, T::Value<'g>> {
        self.read_field::<T>(guess.address(), true)
    }

    /// Loads an atomic or a link.
    pub fn load<F: Loadable>(&mut self, place: Place<'g, F>) -> Pending<'g, F::Value<'g>> {
        self.read_field::<F>(place.address(), false)
    }

    /// Stores to an atomic or a link. Storing an [`Owned`] to a link publishes it: the chain writes its image before the link.
    pub fn store<F: Storable<V>, V>(&mut self, place: Place<'g, F>, value: V) -> F::Outcome<'g> {
        F::add_store(self, place, value)
    }

    /// Replaces the value of an atomic by `new` if it is `current`. Returns the previous value, as `Ok` if it was replaced.
    pub fn compare_exchange<T: Word>(
        &mut self,
        place: Place<'g, Atomic<T>>,
        current: T,
        new: T,
    ) -> Pending<'g, Result<T, T>> {
        let (at, expected) = (place.address(), current.to_word());
        let found = self.add(at, |part| part.compare_exchange(at, expected, new.to_word()));
        self.pending(found, expected, |at, words, expected| {
            let old = decode_word::<T>(at, words[0])?;
            Ok(if words[0] == expected { Ok(old) } else { Err(old) })
        })
    }

    /// Makes a link point to `new` if it holds `current`, compared with its marks.
    pub fn compare_exchange_link<T: Remote, M>(
        &mut self,
        place: Place<'g, Link<T, M>>,
        current: impl Initial<LinkWord<T, M>>,
        new: impl Initial<LinkWord<T, M>>,
    ) -> Pending<'g, Exchanged<Shared<'g, T, M>, ()>> {
        let (at, expected, new) = (place.address(), current.into_init().word, new.into_init().word);
        let found = self.add(at, |part| part.compare_exchange(at, expected, new));
        self.pending(found, expected, |_, words, expected| {
            let current = Shared::from_word(words[0]);
            Ok(if words[0] == expected {
                Ok(current)
            } else {
                Err(CompareExchangeError { current, new: () })
            })
        })
    }

    /// Adds to a 64-bit atomic, modulo 2^64. Returns the previous value.
    pub fn fetch_add<T: Integer>(&mut self, place: Place<'g, Atomic<T>>, addend: T) -> Pending<'g, T> {
        const { assert!(size_of::<T>() == WORD_BYTES, "only 64-bit integers are added to in one operation") };
        let at = place.address();
        let found = self.add(at, |part| part.fetch_add(at, addend.to_word()));
        self.pending(found, 0, |at, words, _| decode_word(at, words[0]))
    }

    /// Tries to take a lock. Later operations of the chain are executed whether or not it was free. A chain that takes a lock twice without a release
    /// in between is not posted: [`Error::LockTakenTwice`].
    pub fn try_lock(&mut self, lock: Place<'g, Lock>) -> PendingLock<'g> {
        self.try_lock_from(lock, 0)
    }

    /// Takes a lock if its word is `expected`.
    pub(super) fn try_lock_from(&mut self, lock: Place<'g, Lock>, expected: u64) -> PendingLock<'g> {
        if self.takes(lock.address()) {
            self.results.taken_twice.set(Some(lock.address()));
        }
        let token = self.ct.token();
        // The guard exists before the CAS is posted, and undoes it if the outcome is never read.
        let guard = LockGuard::in_flight(self.ct, lock.address(), token, expected);
        let found = self.add(lock.address(), |part| part.compare_exchange(lock.address(), expected, token));
        PendingLock { guard: Some(guard), results: Rc::clone(&self.results), found, expected }
    }

    /// Returns whether the last operation on a lock's word takes the lock.
    fn takes(&self, lock: Address) -> bool {
        let parts = self.results.parts.borrow();
        let mut ops = parts.iter().rev().flat_map(|part| part.ops().iter().rev());
        let last = ops.find(|op| op.at() == lock && !matches!(op, Op::Read { .. }));
        matches!(last, Some(Op::CompareExchange { .. }))
    }

    /// Returns an error if the chain must not be posted.
    fn check(&self) -> Result<()> {
        self.results.taken_twice.get().map_or(Ok(()), |lock| {
            let how = "one chain takes it twice: take it once";
            Err(Error::from(error::LockTakenTwice { lock, how }))
        })
    }

    /// Releases a lock. If the chain fails, its changes may be incomplete. The lock is released all the same, and its next owner is
    /// [notified](LockGuard::needs_recovery). If the chain is dropped instead of submitted, the lock is released on its own.
    pub fn release(&mut self, lock: LockGuard<'g>) {
        let (at, token, free) = (lock.address(), lock.token(), lock.word_when_free());
        self.add(at, |part| {
            part.replace(at, token, free);
            Slot::default()
        });
        self.results.releases.borrow_mut().push(lock.into_parts());
    }

    /// Writes a new object to which no link points yet: for objects that point to each other, or that one CAS links together.
    ///
    /// Later operations of the chain may link it through [`Written::as_ptr`]. It counts as published once the chain is posted. If no link holds it
    /// afterwards, [`Written::take`] returns it.
    ///
    /// ```
    /// # use farfield::prelude::*;
    /// # #[remote]
    /// # struct Node { key: u64, next: Link<Node>, previous: Link<Node> }
    /// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
    /// # let list = Node::new_in(ct, Node::init(0)).await?.write(ct).await?;
    /// let g = &ct.pin();
    /// let mut first = Node::new_in(g.near(list), Node::init(1)).await?;
    /// let mut second = Node::new_in(g.near(list), Node::init(2)).await?;
    /// first.set(|node| node.next(), second.as_ptr());
    /// second.set(|node| node.previous(), first.as_ptr());
    ///
    /// let mut chain = g.chain();
    /// let (first, second) = (chain.write(first), chain.write(second));
    /// let linked = chain.compare_exchange_link(list.next(), Shared::NULL, first.as_ptr());
    /// chain.submit().await?; // one round trip
    /// if linked.get()?.is_err() {
    ///     let both = (first.take()?, second.take()?); // unpublished: edit and retry, or drop
    /// #   drop(both);
    /// }
    /// # assert_eq!(list.next().load(g).await?.next().load(g).await?.key().read(g).await?, 2);
    /// # Ok(()) })?;
    /// # Ok::<(), farfield::Error>(())
    /// ```
    pub fn write<T: Remote>(&mut self, mut object: Owned<T>) -> Written<T> {
        let part = self.publish(&mut object);
        Written { results: Rc::clone(&self.results), part, object }
    }

    /// Writes an object's image. Returns the index of the part that writes it.
    fn publish<T: Remote>(&mut self, object: &mut Owned<T>) -> usize {
        let (block, image) = object.publish();
        let written = self.add(block.address, |part| {
            part.write(block.address, image);
            Slot::default()
        });
        self.results.publishes.borrow_mut().push(block);
        written.part
    }

    /// Writes one word.
    fn write_word(&mut self, at: Address, word: u64) {
        self.add(at, |part| {
            part.write(at, &[word]);
            Slot::default()
        });
    }

    /// Posts all operations and waits for their completion. One round trip, and one for each change of memory node along the chain.
    ///
    /// Once this future is polled, the operations on the first memory node take effect, also if the future is dropped.
    ///
    /// # Errors
    /// Those of the first operation that fails; later operations are not executed. [`Error::LockTakenTwice`], before any operation is posted.
    pub async fn submit(self) -> Result<()> {
        self.check()?;
        let count = self.results.parts.borrow().len();
        for index in 0..count {
            let part = std::mem::take(&mut self.results.parts.borrow_mut()[index]);
            let submitted = self.ct.submit(part);
            self.results.are_posted(self.ct.worker(), index, count);
            let done = submitted.await?;
            self.results.parts.borrow_mut()[index] = done.into_chain();
            self.results.done.set(index + 1);
        }
        self.results.locks_are_released(self.ct.worker());
        Ok(())
    }

    /// Posts all operations and does not wait: no round trip. For operations whose result is not needed, such as the release of a lock. Chains of a
    /// thread to one memory node take effect in order, so the thread's next operations on that node come later.
    ///
    /// Objects that the thread's guards protect stay protected until the chain completes. An error that is detected later is returned by one of the
    /// thread's next operations, or by [`ComputeThread::flush`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the addresses are on several memory nodes, since keeping their order requires
    /// waiting; [`Error::LockTakenTwice`]. No operation is posted then.
    pub fn post(self) -> Result<()> {
        self.check()?;
        let count = self.results.parts.borrow().len();
        if count > 1 {
            let value = format!("{count} memory nodes").into();
            let reason = "`post` needs all addresses on one: use `submit`";
            return Err(Error::from(error::InvalidArgument { argument: "chain", value, reason }));
        }
        let Some(part) = self.results.parts.borrow_mut().pop() else { return Ok(()) };
        self.results.are_posted(self.ct.worker(), 0, 1);
        if self.ct.post(part, Rc::clone(&self.results) as _)? {
            self.results.locks_are_released(self.ct.worker());
        } else {
            self.results.is_detached.set(true);
        }
        Ok(())
    }
}

fn decode_word<T: Word>(at: Address, word: u64) -> Result<T> {
    T::from_word(word).ok_or_else(|| farfield_words::invalid_value::<T>(at).into())
}

/// A cell that is read as one word: an [`Atomic`], a [`Link`].
pub trait Loadable: Field {}
impl<T: Word> Loadable for Atomic<T> {}
impl<T: Remote, M: 'static> Loadable for Link<T, M> {}

/// A cell to which a chain can store a `V`.
pub trait Storable<V>: Field {
    /// The new value, if the caller does not have it already.
    type Outcome<'g>;
    #[doc(hidden)]
    fn add_store<'g>(chain: &mut Chain<'g>, place: Place<'g, Self>, value: V) -> Self::Outcome<'g>;
}

impl<T: Word> Storable<T> for Atomic<T> {
    type Outcome<'g> = ();
    fn add_store<'g>(chain: &mut Chain<'g>, place: Place<'g, Self>, value: T) {
        chain.write_word(place.address(), value.to_word());
    }
}

impl<T: Remote, M: 'static> Storable<Shared<'_, T, M>> for Link<T, M> {
    type Outcome<'g> = ();
    fn add_store<'g>(chain: &mut Chain<'g>, place: Place<'g, Self>, target: Shared<'_, T, M>) {
        chain.write_word(place.address(), target.to_word());
    }
}

impl<T: Remote, M: Marks> Storable<Shared<'_, T>> for Link<T, M> {
    type Outcome<'g> = ();
    fn add_store<'g>(chain: &mut Chain<'g>, place: Place<'g, Self>, target: Shared<'_, T>) {
        chain.write_word(place.address(), target.to_word());
    }
}

impl<T: Remote, M: 'static> Storable<RemotePtr<T>> for Link<T, M> {
    type Outcome<'g> = ();
    fn add_store<'g>(chain: &mut Chain<'g>, place: Place<'g, Self>, target: RemotePtr<T>) {
        chain.write_word(place.address(), target.address().bits());
    }
}

impl<T: Remote, M: 'static> Storable<Owned<T>> for Link<T, M> {
    type Outcome<'g> = Shared<'g, T>;
    fn add_store<'g>(chain: &mut Chain<'g>, place: Place<'g, Self>, mut object: Owned<T>) -> Shared<'g, T> {
        let target: Shared<'g, T> = Shared::unmarked(object.as_ptr().address());
        chain.publish(&mut object);
        chain.write_word(place.address(), target.to_word());
        target
    }
}

impl Drop for Chain<'_> {
    /// If the chain was not posted, frees its new objects. Guards release the locks that the chain was to release. Locks that the chain has taken and
    /// whose outcome was never read are released behind the CAS that took them.
    fn drop(&mut self) {
        for (part, exchange) in self.results.abandoned.borrow_mut().drain(..) {
            if part < self.results.posted.get() {
                self.ct.compensate(exchange);
            } else {
                exchange.settle(self.ct.worker());
            }
        }
        for block in self.results.publishes.borrow_mut().drain(..) {
            self.ct.heap().free(block);
        }
        if !self.results.is_detached.get() {
            self.results.release_locks(self.ct.worker());
        }
    }
}

impl fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.results.parts.borrow();
        let operations: usize = parts.iter().map(|part| part.ops().len()).sum();
        f.debug_struct("Chain").field("operations", &operations).field("memory_nodes", &parts.len()).finish()
    }
}
