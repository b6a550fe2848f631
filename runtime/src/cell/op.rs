//! Operations as values, for [`Guard::chain`](crate::Guard::chain).
//!
//! Each function returns one operation. It has no effect until its chain is submitted. Dropped before, it gives back its lock or its object.
//!
//! | function | result |
//! |---|---|
//! | [`read`], [`read_with`], [`read_bytes`], [`read_bytes_with`], [`load`], [`load_range`], [`peek`], [`peek_range`], [`peek_bytes`], [`peek_bytes_with`] | the value |
//! | [`prefetch`] | nothing |
//! | [`store`], [`store_range`] | a `Link`'s new value; nothing for an atomic or a tagged link |
//! | [`compare_exchange`], [`compare_exchange_link`], [`fetch_add`] | the previous value |
//! | [`write()`] | the object, in case no link holds it |
//! | [`stage`] | the object, which no link holds yet |
//! | [`replace`] | the object that was replaced |
//! | [`publish`] | the object, if the link does not hold it |
//! | [`try_lock`] | the lock's guard, if it was free |
//! | [`release`] | nothing |
//!
//! Several operations are a tuple, an array or a `Vec`; an operation that may be left out is an `Option`. Their results have the same form.

#![allow(private_interfaces)] // only this crate can call the methods of the sealed trait
#![allow(clippy::inline_always)] // or operations and results are moved through memory

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use farfield_fabric::chain::RawChain;
use farfield_fabric::host::{self, Host};
use farfield_words::scratch::{Scratch, bytes};
use farfield_words::{Field, FrozenField, Initial, Integer, Remote, WORD_BYTES, Word, try_array};

use super::atomic::from_word;
use super::blob::{Blob, SizeClass, blob_bytes};
use super::link::{Exchanged, LinkWord};
use super::owned::Publish;
use super::read::check_aligned;
use super::tagged::{Tag, Tagged, TaggedLink, TaggedWord};
use super::{Atomic, CompareExchangeError, Link, Lock, LockGuard, Owned, Place, Tail};
use crate::error::Result;
use crate::io::operations::*;
use crate::io::{Acquisition, CompletedOperations, Parts, ReleasedLocks};
use crate::memory::worker::Worker;
use crate::pointer::{Address, Guard, MaybeMarks, RemotePtr, Shared};
use sealed::{Access, Settle, Steps};

/// One or several operations of a chain: see [`op`](crate::op). `Output` has their results.
pub trait Operations<'g>: Steps<'g> {}

impl<'g, S: Steps<'g>> Operations<'g> for S {}

pub(crate) mod sealed {
    use super::{Address, CompletedOperations, Field, Host, Parts, RawChain, ReleasedLocks, Result, Worker};
    use super::{WORD_BYTES, bytes};

    /// A cell that is a word, of which consecutive ones are read at once.
    pub trait Consecutive: Field {
        /// Decodes the words of consecutive ones.
        fn decode_all<'g>(at: Address, words: &[u64]) -> Result<Vec<Self::Value<'g>>> {
            // An iterator of results collects into a vector that grows again and again.
            let mut values = Vec::with_capacity(words.len());
            for (index, bytes) in bytes(words).chunks_exact(WORD_BYTES).enumerate() {
                values.push(Self::decode(at.add((index * WORD_BYTES) as u64), bytes)?);
            }
            Ok(values)
        }
    }

    /// A function that settles what the outcome of an abandoned chain decides. Its argument is the completed chain, or `None` if it has failed.
    pub(crate) type Settle = Box<dyn FnOnce(&Worker, Option<&RawChain>)>;

    /// The kind of an elementary operation.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Access {
        Reads,
        Writes,
        /// Takes a lock.
        Takes,
    }

    /// The steps in the life of operations.
    pub trait Steps<'g>: Sized {
        /// The results as they were found, before they are decoded.
        type Raw;
        type Output;
        /// The number of locks that they take.
        const LOCKS: usize = 0;

        /// Calls `each` with every elementary operation, in order.
        fn visit(&self, each: &mut impl FnMut(Address, Access));

        /// The operations are about to be executed or recorded.
        #[inline(always)]
        fn prepare(&mut self, _: &'g Worker) {}

        /// They are about to be executed on an immediate fabric, among others: tells the processor what they read.
        #[inline(always)]
        fn prefetch(&self, _: &Host) {}

        /// Executes them on an immediate fabric.
        fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<Self::Raw>;

        /// Adds them to a chain.
        fn record(&self, parts: &mut Parts<'g, Worker>);

        /// The first part of the chain, or the last, is posted. Each call has a part.
        #[inline(always)]
        fn is_posted(&mut self, _is_last: bool) {}

        /// Returns the results of the completed chain.
        fn raw(&self, done: &mut CompletedOperations<'_>) -> Self::Raw;

        /// The chain has completed: settles locks.
        #[inline(always)]
        fn settle(&mut self, _: &Self::Raw) {}

        /// Decodes the results.
        fn results(self, raw: Self::Raw) -> Result<Self::Output>;

        /// The chain is about to be posted without waiting: hands over the locks that it releases.
        #[inline]
        fn detach(&mut self, _: &ReleasedLocks) {}

        /// True if something is to be settled when a chain completes whose future was dropped.
        const SETTLES: bool = false;

        /// The future of the chain in flight is dropped: adds functions that settle what its outcome decides.
        #[inline]
        fn abandon(&mut self, _: &mut Vec<Settle>) {}
    }
}

/// An argument of [`read`]: a field, an object, or the word of a cell.
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
impl<'g, T: Remote, M: MaybeMarks> Readable<'g> for Shared<'g, T, M> {
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

/// A cell that is read as one word: an [`Atomic`], a [`Link`].
pub trait Loadable: sealed::Consecutive {}
impl<T: Word> Loadable for Atomic<T> {}
impl<T: Word> sealed::Consecutive for Atomic<T> {
    fn decode_all<'g>(at: Address, words: &[u64]) -> Result<Vec<Self::Value<'g>>> {
        if let Some(index) = words.iter().position(|word| T::from_word(*word).is_none()) {
            from_word::<T>(at.add((index * WORD_BYTES) as u64), words[index])?;
        }
        // A copy, if any bits are a `T`.
        Ok(words.iter().map(|word| T::from_word(*word).unwrap_or_else(T::initial)).collect())
    }
}
impl<T: Remote, M: MaybeMarks> sealed::Consecutive for Link<T, M> {}
impl<T: Remote, G: 'static> sealed::Consecutive for TaggedLink<T, G> {}
impl<T: Remote, M: MaybeMarks> Loadable for Link<T, M> {}
impl<T: Remote, G: 'static> Loadable for TaggedLink<T, G> {}

/// A cell with a pointer, which a chain can compare and exchange: a [`Link`], a [`TaggedLink`].
pub trait Exchangeable: Field {
    #[doc(hidden)]
    fn word(value: Self::Init) -> u64;
}
impl<T: Remote, M: MaybeMarks> Exchangeable for Link<T, M> {
    #[inline]
    fn word(value: LinkWord<T, M>) -> u64 {
        value.word
    }
}
impl<T: Remote, G: 'static> Exchangeable for TaggedLink<T, G> {
    #[inline]
    fn word(value: TaggedWord<T, G>) -> u64 {
        value.word
    }
}

/// Reads all fields of an object, or one field.
#[inline]
pub fn read<'g, R: Readable<'g>>(what: R) -> impl Operations<'g, Output = <R::Field as Field>::Value<'g>> {
    ReadField::<'g, R::Field>::new(what.at())
}

/// Operations after this one probably access the fields of an object, or one field: on memory that the processor reaches, they come to its cache in parallel.
/// No access of the object as a READ is, and nothing at all on other fabrics. The READs of an array or a `Vec` need no such hint.
#[inline]
pub fn prefetch<'g, R: Readable<'g>>(what: R) -> impl Operations<'g, Output = ()> {
    Prefetch(ReadField::<'g, R::Field>::new(what.at()))
}

/// Reads all fields of an object, or one field. The result is what `decode` makes of them, so that a large object is not moved about.
#[inline]
pub fn read_with<'g, R: Readable<'g>, T>(
    what: R,
    decode: impl FnOnce(<R::Field as Field>::Value<'g>) -> T,
) -> impl Operations<'g, Output = T> {
    ReadWith { read: ReadField::<'g, R::Field>::new(what.at()), decode: Cell::new(Some(decode)) }
}

/// Reads an object that may have been freed and reused: a guess. The result is meaningful only if results of operations *before* it in the chain show
/// that the object was reachable then; from that moment the guard protects it. Ignore the result of a wrong guess: it may be an error.
///
/// A link and the object that it probably points to thus take one round trip. In the simulator only a peek may read freed memory.
#[inline]
pub fn peek<'g, T: Remote>(guess: RemotePtr<T>) -> impl Operations<'g, Output = Result<T::Value<'g>>> {
    Peek(ReadField::<'g, T>::new(guess.address()))
}

/// Reads a byte string of a class.
#[inline]
pub fn read_bytes<M: MaybeMarks>(
    blob: Shared<'_, Blob, M>,
    class: SizeClass,
) -> impl Operations<'_, Output = Vec<u8>> {
    read_bytes_with(blob, class, <[u8]>::to_vec)
}

/// Reads a byte string of a class. The result is what `decode` makes of it: no allocation but those of `decode`.
#[inline]
pub fn read_bytes_with<R, M: MaybeMarks>(
    blob: Shared<'_, Blob, M>,
    class: SizeClass,
    decode: impl FnOnce(&[u8]) -> R,
) -> impl Operations<'_, Output = R> {
    ReadBytes::new(blob.address(), class, decode)
}

/// Reads a byte string that may have been freed and reused: a guess, as in [`peek`].
#[inline]
pub fn peek_bytes<'g>(
    guess: RemotePtr<Blob>,
    class: SizeClass,
) -> impl Operations<'g, Output = Result<Vec<u8>>> {
    peek_bytes_with(guess, class, <[u8]>::to_vec)
}

/// Reads a byte string that may have been freed and reused: a guess, as in [`peek`]. The result is what `decode` makes of it, which for a wrong guess
/// are any bytes.
#[inline]
pub fn peek_bytes_with<'g, R>(
    guess: RemotePtr<Blob>,
    class: SizeClass,
    decode: impl FnOnce(&[u8]) -> R,
) -> impl Operations<'g, Output = Result<R>> {
    Peek(ReadBytes::new(guess.address(), class, decode))
}

/// Loads an atomic or a link, marked or tagged.
#[inline]
pub fn load<'g, F: Loadable>(place: Place<'g, F>) -> impl Operations<'g, Output = F::Value<'g>> {
    ReadField::<'g, F>::new(place.address())
}

/// Stores to an atomic or a link. Storing an [`Owned`] to a [`Link`] publishes it: the chain writes its image before the link. A [`TaggedLink`] takes a
/// [`TaggedWord`] or a value of such a link; [`write()`] writes a new object.
#[inline]
pub fn store<F: Storable<V>, V>(
    place: Place<'_, F>,
    value: V,
) -> impl Operations<'_, Output = F::Outcome<'_>> {
    F::storing(place, value)
}

/// Loads consecutive atomics or links of a tail, without a bounds check, by one READ. Each is loaded atomically, in no order.
pub fn load_range<'g, F: Loadable>(
    tail: Place<'g, Tail<F>>,
    range: Range<u64>,
) -> impl Operations<'g, Output = Vec<F::Value<'g>>> {
    let words = range.end.saturating_sub(range.start) as usize;
    LoadRange::<'g, F> { at: tail.at(range.start).address(), words, field: PhantomData }
}

/// Loads consecutive atomics or links of a tail of an object that may have been freed and reused: a guess, as in [`peek`].
pub fn peek_range<'g, F: Loadable>(
    tail: Place<'g, Tail<F>>,
    range: Range<u64>,
) -> impl Operations<'g, Output = Result<Vec<F::Value<'g>>>> {
    let words = range.end.saturating_sub(range.start) as usize;
    Peek(LoadRange::<'g, F> { at: tail.at(range.start).address(), words, field: PhantomData })
}

/// Stores to consecutive atomics of a tail from the index `first` on, without a bounds check, by one WRITE. Each is stored atomically, in no order.
pub fn store_range<'g, T: Word>(
    tail: Place<'g, Tail<Atomic<T>>>,
    first: u64,
    values: &[T],
) -> impl Operations<'g, Output = ()> {
    let words = values.iter().map(|value| value.to_word()).collect();
    StoreRange { at: tail.at(first).address(), words }
}

/// Replaces the value of an atomic by `new` if it is `current`. Returns the previous value, as `Ok` if it was replaced.
#[inline]
pub fn compare_exchange<T: Word>(
    place: Place<'_, Atomic<T>>,
    current: T,
    new: T,
) -> impl Operations<'_, Output = Result<T, T>> {
    let exchange = Exchange { at: place.address(), expected: current.to_word(), new: new.to_word() };
    ExchangeWord::<T> { exchange, word: PhantomData }
}

/// Makes a link point to `new` if it holds `current`, compared with its marks or its tag. Returns the previous value, as `Ok` if it was replaced.
#[inline]
pub fn compare_exchange_link<'g, F: Exchangeable>(
    place: Place<'g, F>,
    current: impl Initial<F::Init>,
    new: impl Initial<F::Init>,
) -> impl Operations<'g, Output = Exchanged<F::Value<'g>, ()>> {
    let (expected, new) = (F::word(current.into_init()), F::word(new.into_init()));
    ExchangeLink::<'g, F> { exchange: Exchange { at: place.address(), expected, new }, link: PhantomData }
}

/// Adds to a 64-bit atomic, modulo 2^64. Returns the previous value.
#[inline]
pub fn fetch_add<T: Integer>(place: Place<'_, Atomic<T>>, addend: T) -> impl Operations<'_, Output = T> {
    const { assert!(size_of::<T>() == WORD_BYTES, "only 64-bit integers are added to in one operation") };
    FetchAdd::<T> { at: place.address(), addend: addend.to_word(), word: PhantomData }
}

/// Tries to take a lock. Returns its guard, or `None` if the lock is held. Later operations of the chain are executed in either case. A chain that
/// takes a lock twice without a release in between is not posted: [`Error::LockTakenTwice`](crate::Error::LockTakenTwice).
#[inline]
pub fn try_lock(lock: Place<'_, Lock>) -> impl Operations<'_, Output = Option<LockGuard<'_>>> {
    TryLock(try_lock_from(lock, 0))
}

/// Takes a lock if its word is `expected`. Returns its guard, or the lock's word.
#[inline]
pub(super) fn try_lock_from(lock: Place<'_, Lock>, expected: u64) -> TryLockFrom<'_> {
    TryLockFrom { at: lock.address(), expected, guard: None }
}

/// Releases a lock. If the chain fails, its changes may be incomplete. The lock is released all the same, and its next owner is
/// [notified](LockGuard::needs_recovery). If the chain is dropped instead of submitted, the lock is released on its own.
#[inline]
pub fn release(lock: LockGuard<'_>) -> impl Operations<'_, Output = ()> {
    Release(lock)
}

/// Writes a new object to which no link points yet: for objects that point to each other, or that one CAS links together. Its address is
/// [`Owned::as_ptr`].
///
/// The object counts as published once the chain is posted. If no link holds it afterwards, [`Written::take`] returns it.
#[inline]
pub fn write<'g, T: Remote>(object: Owned<T>) -> impl Operations<'g, Output = Written<T>> {
    WriteObject(object)
}

/// A new object that a chain has written. Dropped without [`take`](Self::take), it counts as published.
#[must_use = "an object that no link holds is lost: call `take`"]
pub struct Written<T>(Owned<T>);

impl<T: Remote> Written<T> {
    /// Returns the object's address.
    pub fn as_ptr(&self) -> RemotePtr<T> {
        self.0.as_ptr()
    }

    /// Returns the object as unpublished, after a chain in which no link was made to hold it, such as one whose CAS has failed.
    ///
    /// The caller must know that no link holds it. If a link does, dropping the `Owned` frees the object under its readers. The simulator reports
    /// their next access.
    pub fn take(mut self) -> Owned<T> {
        self.0.set_unpublished();
        self.0
    }
}

/// Writes a new object that no operation of this chain links: a later chain publishes it by [`replace`], or it is freed. Nothing is lost if the chain's future is
/// dropped.
#[inline]
pub fn stage<'g, T: Remote>(object: Owned<T>) -> impl Operations<'g, Output = Staged<T>> {
    StageObject(Some(object))
}

/// An object that a chain has written and no link holds: see [`stage`]. Dropped, it is freed.
#[must_use = "a staged object is to be published"]
pub struct Staged<T>(Owned<T>);

impl<T: Remote> Staged<T> {
    /// Returns the object's address.
    pub fn as_ptr(&self) -> RemotePtr<T> {
        self.0.as_ptr()
    }

    /// Makes of it what can replace an object in a link with a tag.
    ///
    /// # Errors
    /// Those of [`TaggedWord::new`]. The object is freed then.
    pub fn tagged<G: Tag>(self, tag: G) -> Result<Replacement<T, G>> {
        let word = TaggedWord::new(self.as_ptr(), tag)?;
        Ok(Replacement { object: Some(self), others: Vec::new(), word, is_new: false })
    }
}

/// What [`replace`] makes a link hold: a staged or a new object and a tag, or null.
pub struct Replacement<T, G> {
    object: Option<Staged<T>>,
    /// Those that are published with it.
    others: Vec<Staged<T>>,
    word: TaggedWord<T, G>,
    /// True if the object is still to be written, by the chain of the CAS.
    is_new: bool,
}

impl<T: Remote, G: Tag> Replacement<T, G> {
    /// Null, without a tag.
    pub const NULL: Self = Self { object: None, others: Vec::new(), word: TaggedWord::NULL, is_new: false };

    /// Null, with a tag.
    pub fn null(tag: G) -> Self {
        Self { word: TaggedWord::null(tag), ..Self::NULL }
    }

    /// Makes one of a link's value that points to an object of the structure, such as what is behind the object that [`replace`] takes out.
    pub fn existing(value: Tagged<'_, T, G>) -> Self {
        Self { word: value.into(), ..Self::NULL }
    }

    /// Makes one of a new object, which [`replace`] writes before it exchanges the link.
    ///
    /// # Errors
    /// Those of [`TaggedWord::new`]. The object is freed then.
    pub fn of(object: Owned<T>, tag: G) -> Result<Self> {
        Ok(Self { is_new: true, ..Staged(object).tagged(tag)? })
    }

    /// Returns the address and the words of an object that is still to be written.
    fn to_write(&self) -> Option<(Address, &[u64])> {
        self.object.as_ref().filter(|_| self.is_new).map(|object| object.0.written())
    }

    /// Adds objects that the first one links to. All are published together, or none.
    #[must_use]
    pub fn with(mut self, others: impl IntoIterator<Item = Staged<T>>) -> Self {
        self.others.extend(others);
        self
    }

    /// Returns the word of the link.
    pub fn word(&self) -> TaggedWord<T, G> {
        self.word
    }

    /// Returns the staged object, without its tag.
    pub fn into_staged(self) -> Option<Staged<T>> {
        self.object
    }

    fn set_published(&mut self, published: bool) {
        for object in self.object.iter_mut().chain(&mut self.others) {
            super::owned::sealed::Sealed::<T, ()>::set_published(&mut object.0, published);
        }
    }
}

/// Makes a tagged link hold `new` if it holds `current`, pointer and tag. Returns the object that it held, to be [retired](Replaced::retire), or the
/// link's value and `new`. `tail` is the number of elements of the old object's [`Tail`](crate::Tail), or the [capacity](SizeClass::capacity) of the class of a
/// [`Blob`].
///
/// Nothing is lost if the chain's future is dropped: when the chain completes, the old object is retired or the new one is freed. That holds
/// if all operations of the chain are on one memory node.
#[inline]
pub fn replace<'g, T: Remote, G: Tag>(
    place: Place<'g, TaggedLink<T, G>>,
    current: Tagged<'g, T, G>,
    tail: u64,
    new: Replacement<T, G>,
) -> impl Operations<'g, Output = Exchanging<'g, T, G>> {
    let exchange =
        Exchange { at: place.address(), expected: TaggedWord::from(current).word, new: new.word.word };
    ReplaceLink { exchange, old: current.shared().address(), tail, new: Some(new), ct: None }
}

/// Makes a tagged link hold `new` if it holds `current`, pointer and tag, whose object stays in the structure: the new object links to it, or it is the
/// same object with another tag. Returns the link's value and `new` if it holds another value.
///
/// Nothing is lost if the chain's future is dropped: when the chain completes, the new object is freed if the link does not hold it. That holds
/// if all operations of the chain are on one memory node.
#[inline]
pub fn publish<'g, T: Remote, G: Tag>(
    place: Place<'g, TaggedLink<T, G>>,
    current: Tagged<'g, T, G>,
    new: Replacement<T, G>,
) -> impl Operations<'g, Output = Publishing<'g, T, G>> {
    let exchange =
        Exchange { at: place.address(), expected: TaggedWord::from(current).word, new: new.word.word };
    PublishInLink(ReplaceLink { exchange, old: Address::NULL, tail: 0, new: Some(new), ct: None })
}

/// The result of [`publish`].
type Publishing<'g, T, G> = Result<(), CompareExchangeError<Tagged<'g, T, G>, Replacement<T, G>>>;

/// The result of [`replace`].
type Exchanging<'g, T, G> =
    Result<Replaced<'g, T>, CompareExchangeError<Tagged<'g, T, G>, Replacement<T, G>>>;

/// An object that this thread has unlinked. Dropped, it is retired, as far as that is possible without waiting.
#[must_use = "it is to be retired"]
pub struct Replaced<'g, T: Remote> {
    ct: &'g Worker,
    /// Null if it is retired, or the link was null.
    at: Address,
    tail: u64,
    object: PhantomData<fn() -> T>,
}

impl<T: Remote> Replaced<'_, T> {
    /// Retires the object. See [`Guard::sched_reclaim`](crate::Guard::sched_reclaim); no round trip, since its size is known.
    ///
    /// # Errors
    /// Those of [`Guard::sched_reclaim`](crate::Guard::sched_reclaim).
    pub async fn retire(mut self, g: &Guard<'_>) -> Result<()> {
        match self.retire_now() {
            Some(retired) => retired,
            None => g.settle_retirement().await,
        }
    }

    fn retire_now(&mut self) -> Option<Result<()>> {
        let at = std::mem::replace(&mut self.at, Address::NULL);
        if at.is_null() { Some(Ok(())) } else { self.ct.retire_sized::<T>(at, self.tail) }
    }
}

impl<T: Remote> Drop for Replaced<'_, T> {
    fn drop(&mut self) {
        // What may have to wait is done by the next retirement.
        let _ = self.retire_now();
    }
}

/// A cell to which a chain can store a `V`.
pub trait Storable<V>: Field {
    /// The result of the store.
    type Outcome<'g>;
    #[doc(hidden)]
    fn storing(place: Place<'_, Self>, value: V) -> impl Operations<'_, Output = Self::Outcome<'_>>;
}

impl<T: Word> Storable<T> for Atomic<T> {
    type Outcome<'g> = ();
    #[inline]
    fn storing(place: Place<'_, Self>, value: T) -> impl Operations<'_, Output = ()> {
        StoreWord { at: place.address(), word: value.to_word() }
    }
}

impl<T: Remote, M: MaybeMarks, P: Publish<T, M>> Storable<P> for Link<T, M> {
    type Outcome<'g> = Shared<'g, T, M>;
    #[inline]
    fn storing<'g>(place: Place<'g, Self>, new: P) -> impl Operations<'g, Output = Shared<'g, T, M>> {
        StoreLink::<'g, T, M, P> { at: place.address(), new, link: PhantomData }
    }
}

impl<T: Remote, G: 'static, W: Initial<TaggedWord<T, G>>> Storable<W> for TaggedLink<T, G> {
    type Outcome<'g> = ();
    #[inline]
    fn storing(place: Place<'_, Self>, value: W) -> impl Operations<'_, Output = ()> {
        StoreWord { at: place.address(), word: value.into_init().word }
    }
}

// ---- reads ---------------------------------------------------------------------------------------------------------

/// A READ of the field that is declared as `F`. A field narrower than a word is read with its neighbours.
struct ReadField<'g, F> {
    at: Address,
    field: PhantomData<fn() -> (F, &'g ())>,
}

impl<F: Field> ReadField<'_, F> {
    #[inline]
    fn new(at: Address) -> Self {
        Self { at, field: PhantomData }
    }

    /// Returns the first word's address, the offset of the field in it, and the number of words.
    #[inline]
    fn words(&self) -> (Address, usize, usize) {
        let within = if align_of::<F::Cell>() >= WORD_BYTES { 0 } else { self.at.bits() % WORD_BYTES as u64 };
        let words = (within as usize + size_of::<F::Cell>()).div_ceil(WORD_BYTES);
        (Address::from_bits(self.at.bits() - within), within as usize, words)
    }
}

impl<'g, F: Field> Steps<'g> for ReadField<'g, F> {
    type Raw = Result<F::Value<'g>>;
    type Output = F::Value<'g>;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.words().0, Access::Reads);
    }
    #[inline(always)]
    fn prefetch(&self, host: &Host) {
        let (first, _, words) = self.words();
        host.prefetch(first, words);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<Self::Raw> {
        let (first, within, words) = self.words();
        ct.count_read(words);
        // A field that is not aligned to words may begin in the middle of one, and need a word more.
        let mut scratch = Scratch::<(F::Cell, u64)>::new();
        let words = host::load(host.words(first, words)?, &mut scratch.words()[..words]);
        Ok(check_aligned(self.at, align_of::<F::Cell>())
            .and_then(|()| Ok(F::decode(self.at, &bytes(words)[within..])?)))
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        let (first, _, words) = self.words();
        parts.add(first, |part| {
            part.read(first, words);
        });
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> Self::Raw {
        let words = done.next();
        check_aligned(self.at, align_of::<F::Cell>())?;
        Ok(F::decode(self.at, &bytes(words)[self.words().1..])?)
    }
    #[inline(always)]
    fn results(self, raw: Self::Raw) -> Result<Self::Output> {
        raw
    }
}

/// A READ.
trait Reads {
    /// Returns the first word's address, and the number of words.
    fn span(&self) -> (Address, usize);
}

impl<F: Field> Reads for ReadField<'_, F> {
    #[inline]
    fn span(&self) -> (Address, usize) {
        let (first, _, words) = self.words();
        (first, words)
    }
}

impl<F> Reads for LoadRange<'_, F> {
    #[inline]
    fn span(&self) -> (Address, usize) {
        (self.at, self.words)
    }
}

impl<D> Reads for ReadBytes<D> {
    #[inline]
    fn span(&self) -> (Address, usize) {
        (self.at, self.words)
    }
}

/// A READ of memory that may have been freed.
struct Peek<R>(R);

impl<'g, V, R: Steps<'g, Raw = Result<V>> + Reads> Steps<'g> for Peek<R> {
    type Raw = Result<V>;
    type Output = Result<V>;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        self.0.visit(each);
    }
    #[inline(always)]
    fn prefetch(&self, host: &Host) {
        self.0.prefetch(host);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<Self::Raw> {
        self.0.execute(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        let (first, words) = self.0.span();
        parts.add(first, |part| {
            part.peek(first, words);
        });
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> Self::Raw {
        self.0.raw(done)
    }
    #[inline(always)]
    fn results(self, raw: Self::Raw) -> Result<Self::Output> {
        Ok(raw)
    }
}

/// A hint that a field will be accessed.
struct Prefetch<R>(R);

impl<'g, R: Steps<'g>> Steps<'g> for Prefetch<R> {
    type Raw = ();
    type Output = ();

    #[inline(always)]
    fn visit(&self, _: &mut impl FnMut(Address, Access)) {}
    #[inline(always)]
    fn execute(&mut self, _: &'g Worker, host: &Host) -> Result<()> {
        self.0.prefetch(host);
        Ok(())
    }
    fn record(&self, _: &mut Parts<'g, Worker>) {}
    fn raw(&self, _: &mut CompletedOperations<'_>) {}
    #[inline(always)]
    fn results(self, (): ()) -> Result<()> {
        Ok(())
    }
}

/// A READ of a field whose value is decoded where it is.
struct ReadWith<'g, F, D> {
    read: ReadField<'g, F>,
    /// Until the value is there.
    decode: Cell<Option<D>>,
}

impl<'g, F: Field, T, D: FnOnce(F::Value<'g>) -> T> Steps<'g> for ReadWith<'g, F, D> {
    type Raw = Result<T>;
    type Output = T;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        self.read.visit(each);
    }
    #[inline(always)]
    fn prefetch(&self, host: &Host) {
        self.read.prefetch(host);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<Self::Raw> {
        let decode = self.decode.take().expect("the value is decoded once");
        Ok(self.read.execute(ct, host)?.map(decode))
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        self.read.record(parts);
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> Self::Raw {
        let decode = self.decode.take().expect("the value is decoded once");
        self.read.raw(done).map(decode)
    }
    #[inline(always)]
    fn results(self, raw: Self::Raw) -> Result<T> {
        raw
    }
}

/// The most words of a byte string that are loaded to the stack.
const SHORT_WORDS: usize = 64;

/// A READ of a byte string.
struct ReadBytes<D> {
    at: Address,
    words: usize,
    /// Until the words are there.
    decode: Cell<Option<D>>,
}

impl<D> ReadBytes<D> {
    #[inline]
    fn new(at: Address, class: SizeClass, decode: D) -> Self {
        Self { at, words: class.words(), decode: Cell::new(Some(decode)) }
    }

    #[inline]
    fn decode<R>(&self, words: &[u64]) -> Result<R>
    where
        D: FnOnce(&[u8]) -> R,
    {
        let decode = self.decode.take().expect("the words are decoded once");
        blob_bytes(self.at, words).map(decode)
    }
}

impl<'g, R, D: FnOnce(&[u8]) -> R> Steps<'g> for ReadBytes<D> {
    type Raw = Result<R>;
    type Output = R;

    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.at, Access::Reads);
    }
    #[inline]
    fn prefetch(&self, host: &Host) {
        host.prefetch(self.at, self.words);
    }
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<Self::Raw> {
        ct.count_read(self.words);
        let words = host.words(self.at, self.words)?;
        // Nothing but the result is allocated, unless the byte string is long.
        let (mut short, mut long) = ([const { MaybeUninit::uninit() }; SHORT_WORDS], Vec::new());
        let into = if self.words <= SHORT_WORDS {
            &mut short[..]
        } else {
            long.resize(self.words, MaybeUninit::uninit());
            &mut long[..]
        };
        Ok(self.decode(host::load_many(words, into)))
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        parts.add(self.at, |part| {
            part.read(self.at, self.words);
        });
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> Self::Raw {
        self.decode(done.next())
    }
    fn results(self, raw: Self::Raw) -> Result<R> {
        raw
    }
}

// ---- writes --------------------------------------------------------------------------------------------------------

/// A WRITE of one word.
struct StoreWord {
    at: Address,
    word: u64,
}

impl StoreWord {
    #[inline(always)]
    fn execute_on(&self, ct: &Worker, host: &Host) -> Result<()> {
        ct.writes_words(&[self.word]);
        ct.count_write(1);
        Ok(host.write(self.at, &[self.word])?)
    }
}

impl<'g> Steps<'g> for StoreWord {
    type Raw = ();
    type Output = ();

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.at, Access::Writes);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<()> {
        self.execute_on(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        parts.add(self.at, |part| part.write(self.at, &[self.word]));
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) {
        done.next();
    }
    #[inline(always)]
    fn results(self, (): ()) -> Result<()> {
        Ok(())
    }
}

/// A READ of consecutive words.
struct LoadRange<'g, F> {
    at: Address,
    words: usize,
    field: PhantomData<fn() -> (F, &'g ())>,
}

/// A READ of at most so many words needs no buffer.
const FEW_WORDS: usize = 64;

impl<'g, F: Loadable> Steps<'g> for LoadRange<'g, F> {
    type Raw = Result<Vec<F::Value<'g>>>;
    type Output = Vec<F::Value<'g>>;

    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        if self.words > 0 {
            each(self.at, Access::Reads);
        }
    }
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<Self::Raw> {
        if self.words == 0 {
            return Ok(Ok(Vec::new()));
        }
        ct.count_read(self.words);
        let words = host.words(self.at, self.words)?;
        let (mut few, mut many) = ([MaybeUninit::uninit(); FEW_WORDS], Vec::new());
        let read = few.get_mut(..self.words).unwrap_or_else(|| {
            many.resize(self.words, MaybeUninit::uninit());
            &mut many
        });
        Ok(F::decode_all(self.at, host::load_many(words, read)))
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        if self.words > 0 {
            parts.add(self.at, |part| {
                part.read(self.at, self.words);
            });
        }
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> Self::Raw {
        if self.words == 0 { Ok(Vec::new()) } else { F::decode_all(self.at, done.next()) }
    }
    fn results(self, raw: Self::Raw) -> Result<Self::Output> {
        raw
    }
}

/// A WRITE of consecutive atomics.
struct StoreRange {
    at: Address,
    words: Vec<u64>,
}

impl<'g> Steps<'g> for StoreRange {
    type Raw = ();
    type Output = ();

    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        if !self.words.is_empty() {
            each(self.at, Access::Writes);
        }
    }
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<()> {
        if self.words.is_empty() {
            return Ok(());
        }
        ct.writes_words(&self.words);
        ct.count_write(self.words.len());
        Ok(host.write(self.at, &self.words)?)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        if !self.words.is_empty() {
            parts.add(self.at, |part| part.write(self.at, &self.words));
        }
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) {
        if !self.words.is_empty() {
            done.next();
        }
    }
    fn results(self, (): ()) -> Result<()> {
        Ok(())
    }
}

/// A WRITE of a link, behind the WRITE of the object that it publishes.
struct StoreLink<'g, T, M: MaybeMarks, P> {
    at: Address,
    new: P,
    link: PhantomData<Shared<'g, T, M>>,
}

impl<'g, T: Remote, M: MaybeMarks, P: Publish<T, M>> Steps<'g> for StoreLink<'g, T, M, P> {
    type Raw = ();
    type Output = Shared<'g, T, M>;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        if let Some((object, _)) = self.new.image() {
            each(object, Access::Writes);
        }
        each(self.at, Access::Writes);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<()> {
        self.new.set_published(true);
        if let Some((object, image)) = self.new.image() {
            ct.writes_words(image);
            ct.count_write(image.len());
            host.write(object, image)?;
        }
        StoreWord { at: self.at, word: self.new.word() }.execute_on(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        if let Some((object, image)) = self.new.image() {
            parts.add(object, |part| part.write(object, image));
        }
        parts.add(self.at, |part| part.write(self.at, &[self.new.word()]));
    }
    fn is_posted(&mut self, _: bool) {
        self.new.set_published(true);
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) {
        if self.new.image().is_some() {
            done.next();
        }
        done.next();
    }
    #[inline(always)]
    fn results(self, (): ()) -> Result<Shared<'g, T, M>> {
        Ok(Shared::from_word(self.new.word()))
    }
}

/// A WRITE of a new object.
struct WriteObject<T>(Owned<T>);

impl<'g, T: Remote> Steps<'g> for WriteObject<T> {
    type Raw = ();
    type Output = Written<T>;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.0.as_ptr().address(), Access::Writes);
    }
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<()> {
        let (block, image) = self.0.publish();
        ct.writes_words(image);
        ct.count_write(image.len());
        Ok(host.write(block.address, image)?)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        let (at, image) = self.0.written();
        parts.add(at, |part| part.write(at, image));
    }
    fn is_posted(&mut self, _: bool) {
        self.0.publish();
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) {
        done.next();
    }
    fn results(self, (): ()) -> Result<Written<T>> {
        Ok(Written(self.0))
    }
}

/// A WRITE of a new object that no link holds.
struct StageObject<T>(Option<Owned<T>>);

const HAS_OBJECT: &str = "the operation has its object until its results are taken";

impl<T> StageObject<T> {
    fn object(&mut self) -> &mut Owned<T> {
        self.0.as_mut().expect(HAS_OBJECT)
    }
}

impl<'g, T: Remote> Steps<'g> for StageObject<T> {
    type Raw = ();
    type Output = Staged<T>;
    const SETTLES: bool = true;

    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.0.as_ref().expect(HAS_OBJECT).as_ptr().address(), Access::Writes);
    }
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<()> {
        let (at, image) = self.object().written();
        ct.writes_words(image);
        ct.count_write(image.len());
        Ok(host.write(at, image)?)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        let (at, image) = self.0.as_ref().expect(HAS_OBJECT).written();
        parts.add(at, |part| part.write(at, image));
    }
    /// Its block must not be reused before the WRITE is over.
    fn is_posted(&mut self, _: bool) {
        self.object().publish();
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) {
        done.next();
    }
    fn results(mut self, (): ()) -> Result<Staged<T>> {
        let mut object = self.0.take().expect(HAS_OBJECT);
        object.set_unpublished();
        Ok(Staged(object))
    }
    fn abandon(&mut self, settle: &mut Vec<Settle>) {
        let Some(mut object) = self.0.take() else { return };
        settle.push(Box::new(move |_, done| {
            if done.is_some() {
                object.set_unpublished();
            }
        }));
    }
}

// ---- atomics -------------------------------------------------------------------------------------------------------

/// A CAS.
#[derive(Clone, Copy)]
struct Exchange {
    at: Address,
    expected: u64,
    new: u64,
}

impl Exchange {
    #[inline(always)]
    fn execute(&self, ct: &Worker, host: &Host) -> Result<u64> {
        ct.writes_words(&[self.new]);
        let found = host.compare_exchange(self.at, self.expected, self.new);
        ct.count_exchange(found.as_ref().is_ok_and(|found| *found != self.expected));
        Ok(found?)
    }

    fn record(&self, parts: &mut Parts<'_, Worker>) {
        parts.add(self.at, |part| {
            part.compare_exchange(self.at, self.expected, self.new);
        });
    }
}

/// A CAS of an atomic.
struct ExchangeWord<T> {
    exchange: Exchange,
    word: PhantomData<fn() -> T>,
}

impl<'g, T: Word> Steps<'g> for ExchangeWord<T> {
    type Raw = u64;
    type Output = Result<T, T>;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.exchange.at, Access::Writes);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<u64> {
        self.exchange.execute(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        self.exchange.record(parts);
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> u64 {
        done.next()[0]
    }
    #[inline(always)]
    fn results(self, found: u64) -> Result<Result<T, T>> {
        let old = decode_word::<T>(self.exchange.at, found)?;
        Ok(if found == self.exchange.expected { Ok(old) } else { Err(old) })
    }
}

/// A CAS of a link that is declared as `F`.
struct ExchangeLink<'g, F> {
    exchange: Exchange,
    link: PhantomData<fn() -> (F, &'g ())>,
}

impl<'g, F: Exchangeable> Steps<'g> for ExchangeLink<'g, F> {
    type Raw = u64;
    type Output = Exchanged<F::Value<'g>, ()>;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.exchange.at, Access::Writes);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<u64> {
        self.exchange.execute(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        self.exchange.record(parts);
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> u64 {
        done.next()[0]
    }
    #[inline(always)]
    fn results(self, found: u64) -> Result<Self::Output> {
        let current = F::decode(self.exchange.at, bytes(&[found]))?;
        Ok(if found == self.exchange.expected {
            Ok(current)
        } else {
            Err(CompareExchangeError { current, new: () })
        })
    }
}

/// A CAS of a tagged link, and what becomes of the two objects.
struct ReplaceLink<'g, T, G> {
    exchange: Exchange,
    old: Address,
    tail: u64,
    new: Option<Replacement<T, G>>,
    ct: Option<&'g Worker>,
}

impl<'g, T: Remote, G: Tag> Steps<'g> for ReplaceLink<'g, T, G> {
    type Raw = u64;
    type Output = Exchanging<'g, T, G>;
    const SETTLES: bool = true;

    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        if let Some((at, _)) = self.new.as_ref().and_then(Replacement::to_write) {
            each(at, Access::Writes);
        }
        each(self.exchange.at, Access::Writes);
    }
    fn prepare(&mut self, ct: &'g Worker) {
        self.ct = Some(ct);
    }
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<u64> {
        if let Some((at, image)) = self.new.as_ref().and_then(Replacement::to_write) {
            ct.writes_words(image);
            ct.count_write(image.len());
            host.write(at, image)?;
        }
        self.exchange.execute(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        if let Some((at, image)) = self.new.as_ref().and_then(Replacement::to_write) {
            parts.add(at, |part| part.write(at, image));
        }
        self.exchange.record(parts);
    }
    fn is_posted(&mut self, _: bool) {
        if let Some(new) = &mut self.new {
            new.set_published(true);
        }
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> u64 {
        if self.new.as_ref().is_some_and(|new| new.is_new) {
            done.next();
        }
        done.next()[0]
    }
    fn results(self, found: u64) -> Result<Self::Output> {
        let (Some(ct), Some(mut new)) = (self.ct, self.new) else {
            unreachable!("the chain has completed once")
        };
        if found == self.exchange.expected {
            new.set_published(true);
            return Ok(Ok(Replaced { ct, at: self.old, tail: self.tail, object: PhantomData }));
        }
        new.set_published(false);
        new.is_new = false;
        let current = TaggedLink::<T, G>::decode(self.exchange.at, bytes(&[found]))?;
        Ok(Err(CompareExchangeError { current, new }))
    }
    fn abandon(&mut self, settle: &mut Vec<Settle>) {
        let Some(mut new) = self.new.take() else { return };
        let (Exchange { at, expected, new: to }, old, tail) = (self.exchange, self.old, self.tail);
        settle.push(Box::new(move |ct, done| match done.and_then(|done| done.found(at, expected, to)) {
            Some(found) if found != expected => new.set_published(false),
            Some(_) if !old.is_null() => drop(ct.retire_sized::<T>(old, tail)),
            _ => {}
        }));
    }
}

/// A CAS of a tagged link that replaces no object.
struct PublishInLink<'g, T, G>(ReplaceLink<'g, T, G>);

impl<'g, T: Remote, G: Tag> Steps<'g> for PublishInLink<'g, T, G> {
    type Raw = u64;
    type Output = Publishing<'g, T, G>;
    const SETTLES: bool = true;

    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        self.0.visit(each);
    }
    fn prepare(&mut self, ct: &'g Worker) {
        self.0.prepare(ct);
    }
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<u64> {
        self.0.execute(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        self.0.record(parts);
    }
    fn is_posted(&mut self, is_last: bool) {
        self.0.is_posted(is_last);
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> u64 {
        self.0.raw(done)
    }
    fn results(self, found: u64) -> Result<Self::Output> {
        // Nothing is replaced, so nothing is retired.
        Ok(self.0.results(found)?.map(drop))
    }
    fn abandon(&mut self, settle: &mut Vec<Settle>) {
        self.0.abandon(settle);
    }
}

/// An FAA.
struct FetchAdd<T> {
    at: Address,
    addend: u64,
    word: PhantomData<fn() -> T>,
}

impl<'g, T: Word> Steps<'g> for FetchAdd<T> {
    type Raw = u64;
    type Output = T;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.at, Access::Writes);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<u64> {
        ct.accesses();
        ct.count_addition();
        Ok(host.fetch_add(self.at, self.addend)?)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        parts.add(self.at, |part| {
            part.fetch_add(self.at, self.addend);
        });
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> u64 {
        done.next()[0]
    }
    #[inline(always)]
    fn results(self, found: u64) -> Result<T> {
        decode_word(self.at, found)
    }
}

#[inline(always)]
fn decode_word<T: Word>(at: Address, word: u64) -> Result<T> {
    T::from_word(word).ok_or_else(|| farfield_words::invalid_value::<T>(at).into())
}

// ---- locks ---------------------------------------------------------------------------------------------------------

/// A CAS that takes a lock.
pub(super) struct TryLockFrom<'g> {
    at: Address,
    expected: u64,
    /// Exists before the CAS is posted, and undoes it if the outcome is never read.
    guard: Option<LockGuard<'g>>,
}

impl TryLockFrom<'_> {
    #[inline(always)]
    fn exchange(&self) -> Exchange {
        let new = self.guard.as_ref().map_or(0, LockGuard::token);
        Exchange { at: self.at, expected: self.expected, new }
    }
}

impl<'g> Steps<'g> for TryLockFrom<'g> {
    type Raw = u64;
    type Output = Result<LockGuard<'g>, u64>;
    const LOCKS: usize = 1;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.at, Access::Takes);
    }
    #[inline(always)]
    fn prepare(&mut self, ct: &'g Worker) {
        self.guard = Some(LockGuard::in_flight(ct, self.at, ct.token(), self.expected));
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<u64> {
        self.exchange().execute(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        self.exchange().record(parts);
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> u64 {
        done.next()[0]
    }
    #[inline(always)]
    fn settle(&mut self, found: &u64) {
        if let Some(guard) = &mut self.guard {
            if *found == self.expected { guard.confirm() } else { guard.forget() }
        }
    }
    #[inline(always)]
    fn results(self, found: u64) -> Result<Self::Output> {
        Ok(if found == self.expected { self.guard.ok_or(found) } else { Err(found) })
    }
}

/// A CAS that takes a lock if it is free.
struct TryLock<'g>(TryLockFrom<'g>);

impl<'g> Steps<'g> for TryLock<'g> {
    type Raw = u64;
    type Output = Option<LockGuard<'g>>;
    const LOCKS: usize = 1;

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        self.0.visit(each);
    }
    #[inline(always)]
    fn prepare(&mut self, ct: &'g Worker) {
        self.0.prepare(ct);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<u64> {
        self.0.execute(ct, host)
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        self.0.record(parts);
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) -> u64 {
        self.0.raw(done)
    }
    #[inline(always)]
    fn settle(&mut self, found: &u64) {
        self.0.settle(found);
    }
    #[inline(always)]
    fn results(self, found: u64) -> Result<Self::Output> {
        Ok(self.0.results(found)?.ok())
    }
}

/// A WRITE that releases a lock.
struct Release<'g>(LockGuard<'g>);

impl<'g> Steps<'g> for Release<'g> {
    type Raw = ();
    type Output = ();

    #[inline(always)]
    fn visit(&self, each: &mut impl FnMut(Address, Access)) {
        each(self.0.address(), Access::Writes);
    }
    #[inline(always)]
    fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<()> {
        let Acquisition { at, token, .. } = *self.0.acquisition();
        ct.accesses();
        ct.count_write(1);
        host.compare_exchange(at, token, self.0.word_when_free())?;
        Ok(())
    }
    fn record(&self, parts: &mut Parts<'g, Worker>) {
        let Acquisition { at, token, .. } = *self.0.acquisition();
        parts.add(at, |part| part.replace(at, token, self.0.word_when_free()));
    }
    fn is_posted(&mut self, is_last: bool) {
        if is_last {
            self.0.may_be_released();
        }
    }
    fn raw(&self, done: &mut CompletedOperations<'_>) {
        done.next();
    }
    #[inline(always)]
    fn settle(&mut self, (): &()) {
        self.0.is_released();
    }
    #[inline(always)]
    fn results(self, (): ()) -> Result<()> {
        // Settled: there is nothing to release.
        self.0.into_parts();
        Ok(())
    }
    fn detach(&mut self, releases: &ReleasedLocks) {
        releases.add(self.0.take_parts());
    }
}

// ---- several -------------------------------------------------------------------------------------------------------

macro_rules! tuples {
    ($($name:ident $index:tt)*) => {
        impl<'g, $($name: Steps<'g>),*> Steps<'g> for ($($name,)*) {
            type Raw = ($($name::Raw,)*);
            type Output = ($($name::Output,)*);
            const LOCKS: usize = 0 $(+ $name::LOCKS)*;
            const SETTLES: bool = false $(|| $name::SETTLES)*;

            #[inline(always)]
            #[allow(unused_variables)]
            fn visit(&self, each: &mut impl FnMut(Address, Access)) {
                $(self.$index.visit(each);)*
            }
            #[inline(always)]
            #[allow(unused_variables)]
            fn prepare(&mut self, ct: &'g Worker) {
                $(self.$index.prepare(ct);)*
            }
            #[inline(always)]
            #[allow(unused_variables)]
            fn prefetch(&self, host: &Host) {
                $(self.$index.prefetch(host);)*
            }
            #[inline(always)]
            #[allow(unused_variables, clippy::unused_unit)]
            fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<Self::Raw> {
                Ok(($(self.$index.execute(ct, host)?,)*))
            }
            #[allow(unused_variables)]
            fn record(&self, parts: &mut Parts<'g, Worker>) {
                $(self.$index.record(parts);)*
            }
            #[allow(unused_variables)]
            fn is_posted(&mut self, is_last: bool) {
                $(self.$index.is_posted(is_last);)*
            }
            #[allow(unused_variables, clippy::unused_unit)]
            fn raw(&self, done: &mut CompletedOperations<'_>) -> Self::Raw {
                ($(self.$index.raw(done),)*)
            }
            #[inline(always)]
            #[allow(unused_variables)]
            fn settle(&mut self, raw: &Self::Raw) {
                $(self.$index.settle(&raw.$index);)*
            }
            #[inline(always)]
            #[allow(unused_variables)]
            fn results(self, raw: Self::Raw) -> Result<Self::Output> {
                Ok(($(self.$index.results(raw.$index)?,)*))
            }
            #[allow(unused_variables)]
            fn detach(&mut self, releases: &ReleasedLocks) {
                $(self.$index.detach(releases);)*
            }
            #[allow(unused_variables)]
            fn abandon(&mut self, settle: &mut Vec<Settle>) {
                $(self.$index.abandon(settle);)*
            }
        }
    };
}

tuples!();
tuples!(A 0);
tuples!(A 0 B 1);
tuples!(A 0 B 1 C 2);
tuples!(A 0 B 1 C 2 D 3);
tuples!(A 0 B 1 C 2 D 3 E 4);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10);
tuples!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11);

/// Operations in a collection: `$try_map` maps the elements to results, `$map` to values.
macro_rules! collections {
    ($(($($generics:tt)*) $collection:ty, $raw:ty, $results:ty, $try_map:ident, $map:ident;)*) => {$(
        #[allow(for_loops_over_fallibles)] // of an option as of the others
        impl<'g, S: Steps<'g>, $($generics)*> Steps<'g> for $collection {
            type Raw = $raw;
            type Output = $results;
            // Two of its elements may take the same lock.
            const LOCKS: usize = 2 * S::LOCKS;
            const SETTLES: bool = S::SETTLES;

            #[inline]
            fn visit(&self, each: &mut impl FnMut(Address, Access)) {
                for one in self {
 one.visit(each);
}
            }
            #[inline]
            fn prepare(&mut self, ct: &'g Worker) {
                for one in self {
 one.prepare(ct);
}
            }
            #[inline]
            fn prefetch(&self, host: &Host) {
                for one in self {
                    one.prefetch(host);
                }
            }
            #[inline]
            fn execute(&mut self, ct: &'g Worker, host: &Host) -> Result<Self::Raw> {
                // What they read comes from memory at the same time.
                if self.iter().nth(1).is_some() {
                    self.prefetch(host);
                }
                $try_map(self.iter_mut(), |one| one.execute(ct, host))
            }
            fn record(&self, parts: &mut Parts<'g, Worker>) {
                for one in self {
 one.record(parts);
}
            }
            fn is_posted(&mut self, is_last: bool) {
                for one in self {
 one.is_posted(is_last);
}
            }
            fn raw(&self, done: &mut CompletedOperations<'_>) -> Self::Raw {
                $map(self.iter(), |one| one.raw(done))
            }
            #[inline]
            fn settle(&mut self, raw: &Self::Raw) {
                for (one, raw) in self.iter_mut().zip(raw) {
 one.settle(raw);
}
            }
            #[inline]
            fn results(self, raw: Self::Raw) -> Result<Self::Output> {
                $try_map(self.into_iter().zip(raw), |(one, raw)| one.results(raw))
            }
            fn detach(&mut self, releases: &ReleasedLocks) {
                for one in self {
 one.detach(releases);
}
            }
            fn abandon(&mut self, settle: &mut Vec<Settle>) {
                for one in self {
 one.abandon(settle);
}
            }
        }
    )*};
}

collections! {
    () Option<S>, Option<S::Raw>, Option<S::Output>, try_map_option, map_option;
    () Vec<S>, Vec<S::Raw>, Vec<S::Output>, try_map_vec, map_vec;
    (const N: usize) [S; N], [S::Raw; N], [S::Output; N], try_map_array, map_array;
}

fn try_map_option<T, R>(
    mut values: impl Iterator<Item = T>,
    f: impl FnMut(T) -> Result<R>,
) -> Result<Option<R>> {
    values.next().map(f).transpose()
}

fn map_option<T, R>(mut values: impl Iterator<Item = T>, f: impl FnMut(T) -> R) -> Option<R> {
    values.next().map(f)
}

fn try_map_vec<T, R>(values: impl Iterator<Item = T>, f: impl FnMut(T) -> Result<R>) -> Result<Vec<R>> {
    values.map(f).collect()
}

fn map_vec<T, R>(values: impl Iterator<Item = T>, f: impl FnMut(T) -> R) -> Vec<R> {
    values.map(f).collect()
}

fn try_map_array<T, R, const N: usize>(
    mut values: impl Iterator<Item = T>,
    mut f: impl FnMut(T) -> Result<R>,
) -> Result<[R; N]> {
    try_array(|_| f(values.next().expect("there are N")))
}

fn map_array<T, R, const N: usize>(mut values: impl Iterator<Item = T>, mut f: impl FnMut(T) -> R) -> [R; N] {
    std::array::from_fn(|_| f(values.next().expect("there are N")))
}
