//! `Trust<T>`: a counted handle of a value that one thread has.

#![allow(clippy::inline_always)] // the steps of a request are as many instructions as the calls between them

use std::any::{Any, type_name};
use std::fmt;
use std::future::Future;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use super::attend::{read_patiently, store, take_desk, wait_until};
use super::caller::{Blocked, Caller, Outcome, Undecoded, Unnamed, Waiter};
use super::context::{Context, Reaction};
use super::desk::discard;
use super::function::{Delegated, Method, Naming, by_position, with_context_by_position};
use super::slots::{Here, MAIN, Refusal, RequestHead, Status, number};
use super::state::{Delegation, Job};
use super::way::{Give, HANDLE_WORDS, Hold, Way, Whereabouts};
use crate::cell::Blob;
use crate::error::{self, Error, Result};
use crate::io::operations::*;
use crate::pointer::RemotePtr;
use crate::pointer::counted::STORED_HANDLE;
use crate::session::ComputeThread;
use farfield_fabric::host::{Host, first_line};
use farfield_fabric::stall::Waiting;
use farfield_macros::remote;
use farfield_sim::Plant;
use farfield_words::fingerprint;
use farfield_words::fingerprint_of;
use farfield_words::{Message, Reader, ThreadId, WORD_BYTES, Writer};

/// A handle of a value that belongs to one compute thread, its *trustee*, which executes what others request of it.
///
/// Made by [`ComputeThread::entrust`]. A handle can be cloned, sent to the trustee of another value as an argument, returned as a result, and
/// [stored](Self::store) in far memory. The value is dropped, at its trustee, when the last handle is gone. None of these needs a message but the last,
/// and a handle that is sent to a third thread.
///
/// ```
/// use farfield::prelude::*;
///
/// # fn main() -> farfield::Result<()> {
/// Cluster::connect("local:")?.run(2, async |ct| {
///     let root = ct.root_or_init("words", async || ct.entrust(Vec::<String>::new()).await?.store(ct).await).await?;
///     let words = Trust::open(root, ct).await?;
///     let count = words.apply(ct, ct.index().to_string(), |words, word| {
///         words.push(word);
///         words.len() as u64
///     });
///     assert!(count.await? <= 2);
///     ct.barrier("both have added a word").await
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// Requests of one task to one trustee take effect in the order in which they are made.
///
/// # Errors of requests
/// [`Error::TrusteeGone`] if the trustee has ended, or dies: it says whether the function may have been called. [`Error::DelegatedPanicked`] if the
/// function panicked; the value stays as the function left it. [`Error::DelegationRefused`] if the function was not called, or its result can
/// not be decoded.
pub struct Trust<T> {
    hold: Rc<Hold>,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Trust<T> {
    fn clone(&self) -> Self {
        Self { hold: Rc::clone(&self.hold), value: PhantomData }
    }
}

impl<T> fmt::Debug for Trust<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Whereabouts { trustee, object, .. } = self.hold.of;
        write!(f, "Trust<{}>({object} of thread {trustee})", type_name::<T>())
    }
}

impl<T: 'static> Message for Trust<T> {
    const FINGERPRINT: u64 = fingerprint::name("Trust");

    /// # Panics
    /// Outside of a request or its answer.
    fn write(self, to: &mut Writer<'_>) {
        let way = to.context().downcast_ref::<Way>().expect("a handle is sent with a request or its answer");
        way.send(self.hold, to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let way = from.context().downcast_ref::<Way>()?;
        Some(Self { hold: way.receive(from)?, value: PhantomData })
    }
}

/// A handle in far memory, made by [`Trust::store`]. It counts until it is [taken](Trust::take) out. If its object is freed before, that is reported as a `tracing` event: the value
/// is then not dropped before its trustee ends.
#[remote(crate = crate)]
pub struct StoredTrust<T: 'static> {
    words: [u64; HANDLE_WORDS],
    #[local]
    value: PhantomData<fn() -> T>,
}

const _: () = assert!(fingerprint_of::<StoredTrust<()>>() == STORED_HANDLE, "see `pointer::counted`");

impl ComputeThread {
    /// Gives a value to this thread, its trustee, and returns the first handle of it. The thread executes the requests of others while it waits for
    /// anything, and whenever it pins a guard. Without requests it sleeps, if far memory is mapped, or its memory nodes forward what arrives (`tcp:`). On `rdma:` it reads its mailboxes again and again, while it awaits
    /// something.
    ///
    /// No round trip, but for the first value of a thread: then one for each desk of an ended trustee, or four to make one.
    ///
    /// # Errors
    /// Those of an allocation. [`Error::InvalidArgument`] if the thread has 2^20 values.
    pub async fn entrust<T: 'static>(&self, value: T) -> Result<Trust<T>> {
        self.entrust_with(value, &[]).await
    }

    /// Like [`entrust`](Self::entrust), for a type with a `#[delegated]` impl, whose methods clients of other builds may call.
    #[doc(hidden)]
    pub async fn entrust_delegated<T: Delegated>(&self, value: T) -> Result<Trust<T>> {
        self.entrust_with(value, T::METHODS).await
    }

    async fn entrust_with<T: 'static>(&self, value: T, methods: &'static [Method]) -> Result<Trust<T>> {
        let delegation = Delegation::of(self.worker());
        take_desk(self, &delegation).await?;
        Trust::of_own(&delegation, Box::new(value), methods)
    }
}

/// Arguments that do not fit into a request, and have to be stored first. If the request is never made, the handles in them are taken back.
struct Unsent<A: Message> {
    words: Vec<u64>,
    caller: Rc<Caller>,
    /// What other trustees must know before the request is sent; `None` once they were told.
    gives: Option<Vec<Give>>,
    args: PhantomData<fn() -> A>,
}

/// A request that was begun.
enum Begun<A: Message, W> {
    /// The number of its waiter.
    InQueue(u32),
    /// It was asked directly, and its answer was there.
    Answered(Outcome),
    /// It has no waiter before its arguments are stored: its pair may be another one then.
    Large(Unsent<A>, W),
}

/// Sends what other trustees must know of a message before it is sent.
#[cold]
fn tell_others(delegation: &Rc<Delegation>, gives: Vec<Give>) -> Option<Blocked> {
    let blocked = Blocked::default();
    for give in gives {
        delegation.tell_of(give, &blocked);
    }
    Some(blocked).filter(|_| !delegation.has(Plant::LateGive))
}

impl<A: Message> Drop for Unsent<A> {
    fn drop(&mut self) {
        if self.gives.is_some() {
            drop(A::read(&mut Reader::new(&self.words, &self.caller.way)));
        }
    }
}

impl<T: 'static> Trust<T> {
    /// Adds a value to those of a thread with a desk.
    pub(super) fn of_own(
        delegation: &Rc<Delegation>,
        value: Box<dyn Any>,
        methods: &'static [Method],
    ) -> Result<Self> {
        let invalid = |reason| {
            let value = type_name::<T>().into();
            Error::from(error::InvalidArgument { argument: "value", value, reason })
        };
        let desk = delegation.desk().ok_or_else(|| invalid("the thread has ended"))?;
        let edge = delegation.fresh_edge();
        let object = desk.objects.borrow_mut().add(value, methods, edge);
        let object = object.ok_or_else(|| invalid("a thread is the trustee of 2^20 values at most"))?;
        let of = Whereabouts { trustee: delegation.me(), desk: desk.places, object };
        Ok(Self { hold: delegation.hold(of, edge), value: PhantomData })
    }

    /// Returns the thread that has the value.
    pub fn trustee(&self) -> ThreadId {
        self.hold.of.trustee
    }

    /// Applies a function to the value, at its trustee, and returns its result. One round trip; where requests lie in mailboxes two, on `tcp:`, and three on average on `rdma:`;
    /// none if this thread is the trustee.
    ///
    /// The function captures nothing: what it needs are its arguments. It is named by its position in the program, so the trustee runs the same build; for
    /// others there are methods of a `#[delegated]` impl. It must return soon: meanwhile its trustee serves nobody else.
    ///
    /// Arguments or results of more than 320 bytes lie in far memory: one more round trip for each.
    ///
    /// If the future is dropped before it was polled, nothing is requested. Later, the function is called or not, as if the future had been awaited, and its
    /// result is dropped. So it is with a [deadline](ComputeThread::within).
    ///
    /// # Errors
    /// See [`Trust`]. [`Error::InvalidArgument`] if the function is one of a shared library, or the handle is another thread's.
    #[track_caller]
    pub fn apply<'a, A: Message, R: Message>(
        &'a self,
        ct: &'a ComputeThread,
        args: A,
        function: fn(&mut T, A) -> R,
    ) -> impl Future<Output = Result<R>> + 'a {
        let given_at = Location::caller();
        self.call(
            ct,
            args,
            move || by_position(function, given_at),
            move |value: &mut T, _: &Context<'_>, args| function(value, args),
        )
    }

    /// Like [`apply`](Self::apply), for a function that takes a [`Context`], through which it can make requests of its own.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    #[track_caller]
    pub fn apply_with<'a, A: Message, R: Message>(
        &'a self,
        ct: &'a ComputeThread,
        args: A,
        function: fn(&mut T, &Context<'_>, A) -> R,
    ) -> impl Future<Output = Result<R>> + 'a {
        let given_at = Location::caller();
        self.call(ct, args, move || with_context_by_position(function, given_at), function)
    }

    /// Calls a method of a `#[delegated]` impl.
    pub(super) fn call_method<'a, A: Message, R: Message>(
        &'a self,
        ct: &'a ComputeThread,
        method: &'static Method,
        args: A,
        here: impl FnOnce(&mut T, &Context<'_>, A) -> R + 'static,
    ) -> impl Future<Output = Result<R>> + 'a {
        self.call(ct, args, move || Naming::Method(method), here)
    }

    /// Requests that the trustee applies a function, and waits only until the request is in the queue. Its result is dropped, and so is
    /// [its error](Trust). No round trip, unless the arguments are large.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply) that are known at once.
    #[track_caller]
    pub fn post<A: Message, R: Message>(
        &self,
        ct: &ComputeThread,
        args: A,
        function: fn(&mut T, A) -> R,
    ) -> impl Future<Output = Result<()>> {
        let given_at = Location::caller();
        async move { self.post_then(ct, args, function, given_at, |_| ()).await }
    }

    /// Like [`post`](Self::post), and calls `then` with the result, on this thread, between the polls of its tasks.
    ///
    /// # Errors
    /// Those of [`post`](Self::post). `then` receives those that are known later.
    #[track_caller]
    pub fn apply_then<A: Message, R: Message>(
        &self,
        ct: &ComputeThread,
        args: A,
        function: fn(&mut T, A) -> R,
        then: impl FnOnce(Result<R>) + 'static,
    ) -> impl Future<Output = Result<()>> {
        let given_at = Location::caller();
        async move { self.post_then(ct, args, function, given_at, then).await }
    }

    async fn post_then<A: Message, R: Message>(
        &self,
        ct: &ComputeThread,
        args: A,
        function: fn(&mut T, A) -> R,
        given_at: &'static Location<'static>,
        then: impl FnOnce(Result<R>) + 'static,
    ) -> Result<()> {
        let delegation = self.delegation(ct)?;
        let naming = by_position(function, given_at);
        if self.trustee() == ct.id() {
            let call = |value: &mut T, _: &Context<'_>, args| function(value, args);
            then(self.call_here(delegation, &naming, args, call));
            return Ok(());
        }
        let (mut caller, mut number) = self.named(delegation, &naming)?;
        if caller.is_full() {
            wait_until(ct, || !caller.is_full()).await;
            (caller, number) = self.still(delegation, &naming, caller, number)?;
        }
        let waiter = Self::then(naming, then);
        if let Begun::Large(unsent, waiter) = self.begin(None, delegation, &caller, number, args, waiter) {
            self.send_large(ct, delegation, &naming, (caller, number), unsent, waiter).await?;
        }
        ct.serves_requests();
        Ok(())
    }

    /// The same for delegated code, which can not wait.
    pub(super) fn request<A: Message, R: Message>(
        &self,
        delegation: &Rc<Delegation>,
        naming: Naming,
        args: A,
        here: impl FnOnce(&mut T, &Context<'_>, A) -> R + 'static,
        then: impl FnOnce(Result<R>, &Reaction<'_>) + 'static,
    ) -> Result<()> {
        if self.trustee() == delegation.me() {
            return self.request_own(delegation, naming, args, here, then);
        }
        let (caller, number) = self.named(delegation, &naming)?;
        let this = Rc::clone(delegation);
        let then = move |result| then(result, &Reaction::new(&this));
        let waiter = Self::then(naming, then);
        match self.begin(None, delegation, &caller, number, args, waiter) {
            Begun::InQueue(_) | Begun::Answered(_) => Ok(()),
            Begun::Large(unsent, _) => Err(too_large(unsent.words.len())),
        }
    }

    /// A request of delegated code to its own thread: called after it has returned.
    fn request_own<A: Message, R: Message>(
        &self,
        delegation: &Rc<Delegation>,
        naming: Naming,
        args: A,
        here: impl FnOnce(&mut T, &Context<'_>, A) -> R + 'static,
        then: impl FnOnce(Result<R>, &Reaction<'_>) + 'static,
    ) -> Result<()> {
        if !naming.is_named() {
            return Err(in_library(&naming));
        }
        let trust = self.clone();
        delegation.call_later(Box::new(move |delegation| {
            let result = trust.call_here(delegation, &naming, args, here);
            then(result, &Reaction::new(delegation));
        }));
        Ok(())
    }

    // ---- the steps of a request --------------------------------------------------------------------------------

    /// Returns the delegation of the thread, which must be the handle's.
    fn delegation(&self, ct: &ComputeThread) -> Result<&Rc<Delegation>> {
        let delegation = &self.hold.delegation;
        if delegation.me() != ct.id() || delegation.is_closed.get() {
            let value = format!("{self:?}").into();
            let reason = "the handle is that of another thread, or of a run that has ended: send it as an argument, or store it";
            return Err(Error::from(error::InvalidArgument { argument: "self", value, reason }));
        }
        Ok(delegation)
    }

    /// Returns the pair with the trustee, and the function's number in it.
    #[inline(always)]
    fn named(&self, delegation: &Rc<Delegation>, naming: &Naming) -> Result<(Rc<Caller>, u16)> {
        let caller = delegation.caller_at(&self.hold.of, &self.hold.caller);
        let number =
            caller.function(delegation, naming).map_err(|unnamed| has_no_number(naming, &unnamed))?;
        Ok((caller, number))
    }

    /// Returns a pair and a function's number in it, or those of another pair if this one was closed during a wait.
    fn still(
        &self,
        delegation: &Rc<Delegation>,
        naming: &Naming,
        caller: Rc<Caller>,
        number: u16,
    ) -> Result<(Rc<Caller>, u16)> {
        if caller.is_retired.get() { self.named(delegation, naming) } else { Ok((caller, number)) }
    }

    /// Puts a request into the queue, unless its arguments are too large. `waiter` makes its waiter, for the pair in whose queue it is. One that is awaited by the only task of a thread
    /// is asked directly, in the memory that `alone` maps.
    #[inline(always)]
    fn begin<A: Message, W: FnOnce(&Rc<Caller>) -> Waiter>(
        &self,
        alone: Option<&Host>,
        delegation: &Rc<Delegation>,
        caller: &Rc<Caller>,
        function: u16,
        args: A,
        waiter: W,
    ) -> Begun<A, W> {
        let head = RequestHead { function, object: self.hold.of.object, words: 0, is_far: false };
        match caller.write_request(head, |words| args.write(&mut Writer::new(words, &caller.way))) {
            Ok(words) => {
                let has_gives = caller.way.has_gives();
                let blocked = if has_gives { tell_others(delegation, caller.way.take_gives()) } else { None };
                let Some((host, slots)) = alone.filter(|_| blocked.is_none()).zip(caller.direct()) else {
                    let waiter = waiter(caller);
                    return Begun::InQueue(caller.enqueue_written(delegation, MAIN, words, blocked, waiter));
                };
                match caller.ask_directly(host, slots, words) {
                    Ok(outcome) => Begun::Answered(outcome),
                    Err(waiter) => {
                        delegation.stir();
                        Begun::InQueue(waiter)
                    }
                }
            }
            Err(words) => {
                let (caller, gives) = (Rc::clone(caller), Some(caller.way.take_gives()));
                Begun::Large(Unsent { words, caller, gives, args: PhantomData }, waiter)
            }
        }
    }

    /// Stores the arguments of a request in far memory, and puts it into the queue. Returns its pair and its waiter.
    async fn send_large<A: Message>(
        &self,
        ct: &ComputeThread,
        delegation: &Rc<Delegation>,
        naming: &Naming,
        (caller, number): (Rc<Caller>, u16),
        mut unsent: Unsent<A>,
        waiter: impl FnOnce(&Rc<Caller>) -> Waiter,
    ) -> Result<(Rc<Caller>, u32)> {
        if unsent.words.len() * WORD_BYTES > Blob::MAX_BYTES {
            return Err(too_large(unsent.words.len()));
        }
        let stored = store(ct, self.hold.of.desk.0, &unsent.words).await?;
        let (caller, function) = self.still(delegation, naming, caller, number)?;
        let gives = unsent.gives.take().filter(|gives| !gives.is_empty());
        let blocked = gives.and_then(|gives| tell_others(delegation, gives));
        let place = stored.place();
        let object = self.hold.of.object;
        let head = RequestHead { function, object, words: place.len() as u8, is_far: true };
        let waiter = caller.enqueue(delegation, head, &place, blocked, waiter(&caller));
        caller.keep(waiter, Some(stored));
        Ok((caller, waiter))
    }

    /// Makes the waiter of a request whose result `then` receives.
    fn then<R: Message>(
        naming: Naming,
        then: impl FnOnce(Result<R>) + 'static,
    ) -> impl FnOnce(&Rc<Caller>) -> Waiter + 'static {
        move |caller| {
            let caller = Rc::clone(caller);
            let then = move |delegation: &Rc<Delegation>, outcome: Outcome| {
                receive(delegation, &caller, move || naming, outcome, then);
            };
            Waiter::Then(Box::new(then))
        }
    }

    /// Reads a result that lies in far memory.
    async fn read_far<R: Message>(
        &self,
        ct: &ComputeThread,
        caller: &Rc<Caller>,
        naming: impl FnOnce() -> Naming,
        place: &[u64],
    ) -> Result<R> {
        let (at, words) = read_place(place);
        let _undecoded = Undecoded::of(caller);
        let read = read_patiently(ct, at, words).await;
        release(&self.hold.delegation, &self.hold.of, at);
        decode(caller, naming, read.ok().as_deref())
    }

    /// Calls a function of this thread's own value.
    #[inline(never)]
    fn call_here<A, R>(
        &self,
        delegation: &Rc<Delegation>,
        naming: &Naming,
        args: A,
        call: impl FnOnce(&mut T, &Context<'_>, A) -> R,
    ) -> Result<R> {
        let refused = |reason| Err(refused(naming, delegation.me(), reason));
        let object = self.hold.of.object;
        let Some(desk) = delegation.desk() else { return refused("the thread has ended") };
        let taken = desk.objects.borrow_mut().take(object);
        let mut value = match taken {
            Ok((value, _)) => value,
            Err(refusal) => return refused(refusal.reason()),
        };
        let called = match value.downcast_mut::<T>() {
            None => None,
            Some(value) => {
                let context = Context::new(delegation, delegation.me());
                Some(catch_unwind(AssertUnwindSafe(|| call(value, &context, args))))
            }
        };
        let unwanted = desk.objects.borrow_mut().put(object, value);
        discard(unwanted);
        match called {
            None => refused(Refusal::OtherType.reason()),
            Some(Ok(result)) => Ok(result),
            Some(Err(panic)) => Err(panicked(naming, delegation.me(), first_line(panic))),
        }
    }

    /// Uses a value of this thread's own; `None` if it is not, or is in use.
    pub(super) fn with_own<R>(&self, delegation: &Rc<Delegation>, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let desk = delegation.desk().filter(|_| self.trustee() == delegation.me())?;
        let (mut value, _) = desk.objects.borrow_mut().take(self.hold.of.object).ok()?;
        let result = value.downcast_mut::<T>().map(f);
        let unwanted = desk.objects.borrow_mut().put(self.hold.of.object, value);
        discard(unwanted);
        result
    }

    /// Makes a request, which is awaited.
    #[inline]
    fn call<'a, A: Message, R: Message, N, H>(
        &'a self,
        ct: &'a ComputeThread,
        args: A,
        naming: N,
        here: H,
    ) -> Call<'a, T, A, R, N, H>
    where
        N: Fn() -> Naming + Copy + 'static,
        H: FnOnce(&mut T, &Context<'_>, A) -> R + 'static,
    {
        Call { trust: self, ct, naming, step: Step::New(Some((args, here))) }
    }

    // ---- far memory --------------------------------------------------------------------------------------------

    /// Stores the handle in far memory, where it counts until it is [taken](Self::take) out. The object can be linked and published like any other. A sweep
    /// spares the value's desk, not the value: if its trustee ends, the stored handle leads to [`Error::TrusteeGone`].
    ///
    /// One round trip; two if the value is another thread's.
    ///
    /// # Errors
    /// Those of an allocation and of a WRITE.
    pub async fn store(self, ct: &ComputeThread) -> Result<RemotePtr<StoredTrust<T>>> {
        let delegation = Rc::clone(self.delegation(ct)?);
        let of = self.hold.of;
        let edge = self.hold.detach();
        if of.trustee != delegation.me() {
            let blocked = Blocked::default();
            let give = Give { of, from: Some(delegation.me()), to: None, edge };
            delegation.tell_of(give, &blocked);
            wait_until(ct, || blocked.get() == 0).await;
        }
        let stored = StoredTrust::new_in(ct, StoredTrust::init(of.to_words(edge))).await;
        match stored {
            Ok(stored) => stored.write(ct).await,
            Err(error) => {
                drop(delegation.hold(of, edge));
                Err(error)
            }
        }
    }

    /// Makes a handle of one that is stored in far memory. Two round trips.
    ///
    /// # Errors
    /// [`Error::TrusteeGone`] if the trustee has ended; [`Error::DelegationRefused`] if no such value is stored any more; [`Error::InvalidValue`] if no
    /// handle is stored there; those of a READ.
    pub async fn open(stored: RemotePtr<StoredTrust<T>>, ct: &ComputeThread) -> Result<Self> {
        let delegation = Delegation::of(ct.worker());
        let (of, _) = read_stored(stored, ct).await?;
        let edge = delegation.fresh_edge();
        if of.trustee == delegation.me() {
            let Some(desk) = delegation.desk() else { return Err(no_handle(stored)) };
            if !desk.objects.borrow_mut().has(of.object) {
                return Err(no_handle(stored));
            }
            desk.objects.borrow_mut().add_edge(of.object, edge);
            return Ok(Self { hold: delegation.hold(of, edge), value: PhantomData });
        }
        let args = [edge as u64, (edge >> 64) as u64];
        let (caller, waiter) = delegation.ask(&of, number::JOIN, &args, Waiter::Future(None));
        let naming = || Naming::Method(const { &Method::new("Trust::open", 0, |_, _, _, _| Ok(())) });
        // If this future is dropped, the trustee has an edge that the thread does not know: it is the thread's share, and ends with it.
        let outcome = Answer::<(), _>::new(ct, Rc::clone(&caller), naming, waiter).await;
        settle::<()>(&caller, naming, outcome)?;
        Ok(Self { hold: delegation.hold(of, edge), value: PhantomData })
    }

    /// Takes a handle out of far memory, and frees the object. No other thread may use the object any more. Two round trips.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub async fn take(stored: RemotePtr<StoredTrust<T>>, ct: &ComputeThread) -> Result<Self> {
        let delegation = Delegation::of(ct.worker());
        let (of, edge) = read_stored(stored, ct).await?;
        if of.trustee != delegation.me() {
            let blocked = Blocked::default();
            let give = Give { of, from: None, to: Some(delegation.me()), edge };
            delegation.tell_of(give, &blocked);
            wait_until(ct, || blocked.get() == 0).await;
        }
        let trust = Self { hold: delegation.hold(of, edge), value: PhantomData };
        ct.delete_unreported::<StoredTrust<T>>(stored.address()).await?;
        Ok(trust)
    }
}

async fn read_stored<T: 'static>(
    stored: RemotePtr<StoredTrust<T>>,
    ct: &ComputeThread,
) -> Result<(Whereabouts, u128)> {
    let words = stored.read(&ct.pin()).await?.words;
    Whereabouts::of_words(words).ok_or_else(|| no_handle(stored))
}

#[cold]
fn no_handle<T: 'static>(stored: RemotePtr<StoredTrust<T>>) -> Error {
    let value = format!("{stored:?}").into();
    let reason = "no handle of a value that lives is stored there";
    Error::from(error::InvalidArgument { argument: "stored", value, reason })
}

fn read_place(place: &[u64]) -> (farfield_words::Address, usize) {
    let word = |index| place.get(index).copied().unwrap_or(0);
    let most = (Blob::MAX_BYTES / WORD_BYTES) as u64;
    (farfield_words::Address::from_bits(word(0)), word(1).min(most) as usize)
}

/// Tells a trustee that a result in far memory was read.
fn release(delegation: &Rc<Delegation>, of: &Whereabouts, at: farfield_words::Address) {
    delegation.ask(of, number::RELEASE, &[at.bits()], Waiter::Then(Box::new(|_, _| ())));
}

/// Passes a result on that no future awaits.
fn receive<R: Message>(
    delegation: &Rc<Delegation>,
    caller: &Rc<Caller>,
    naming: impl FnOnce() -> Naming + 'static,
    outcome: Outcome,
    then: impl FnOnce(Result<R>) + 'static,
) {
    let Outcome::Answer(Status::Far, place) = outcome else {
        return then(settle(caller, naming, outcome));
    };
    let (at, words) = read_place(&place);
    let of = Whereabouts { trustee: caller.trustee, desk: caller.desk, object: 0 };
    let (caller, undecoded) = (Rc::clone(caller), Undecoded::of(caller));
    let then = move |delegation: &Rc<Delegation>, words: Option<Vec<u64>>| {
        release(delegation, &of, at);
        let result = decode(&caller, naming, words.as_deref());
        drop(undecoded);
        then(result);
    };
    delegation.begin(Job::Read { at, words, then: Box::new(then) });
}

/// Returns the result of an answer that is in a slot.
#[inline(always)]
fn settle<R: Message>(caller: &Caller, naming: impl FnOnce() -> Naming, outcome: Outcome) -> Result<R> {
    match outcome {
        Outcome::Answer(Status::Done, words) => decode(caller, naming, Some(&words)),
        other => Err(failure(caller.trustee, &naming(), other)),
    }
}

/// Returns why there is no result.
#[cold]
fn failure(trustee: ThreadId, naming: &Naming, outcome: Outcome) -> Error {
    match outcome {
        Outcome::Answer(Status::Panicked, words) => {
            let message = String::read(&mut Reader::new(&words, &()));
            panicked(naming, trustee, message.unwrap_or_default())
        }
        Outcome::Answer(Status::Refused(refusal), _) => refused(naming, trustee, refusal.reason()),
        Outcome::Answer(Status::Done | Status::NoRoom | Status::Far, _) => {
            refused(naming, trustee, "it was called, and there is no far memory for its result")
        }
        Outcome::Gone { may_have_run } => {
            Error::from(error::TrusteeGone { trustee, function: naming.describe(), may_have_run })
        }
    }
}

#[inline(always)]
fn decode<R: Message>(caller: &Caller, naming: impl FnOnce() -> Naming, words: Option<&[u64]>) -> Result<R> {
    let result = words.and_then(|words| {
        let mut reader = Reader::new(words, &caller.way);
        R::read(&mut reader).filter(|_| reader.is_empty())
    });
    result
        .ok_or_else(|| refused(&naming(), caller.trustee, "it was called, and its result can not be decoded"))
}

#[cold]
fn refused(naming: &Naming, trustee: ThreadId, reason: &'static str) -> Error {
    Error::from(error::DelegationRefused { function: naming.describe(), trustee, reason })
}

#[cold]
fn panicked(naming: &Naming, trustee: ThreadId, message: impl Into<Box<str>>) -> Error {
    let (function, message) = (naming.describe(), message.into());
    Error::from(error::DelegatedPanicked { function, trustee, message })
}

#[cold]
fn has_no_number(naming: &Naming, unnamed: &Unnamed) -> Error {
    match unnamed {
        Unnamed::InLibrary => in_library(naming),
        Unnamed::TooMany => {
            let value = naming.describe();
            let reason = "a thread names 65,520 functions to a trustee at most";
            Error::from(error::InvalidArgument { argument: "function", value, reason })
        }
    }
}

#[cold]
fn in_library(naming: &Naming) -> Error {
    let reason = "it, or code that was generated for it, is in a shared library, where it has no position in the program: use a `#[delegated]` impl";
    Error::from(error::InvalidArgument { argument: "function", value: naming.describe(), reason })
}

#[cold]
fn too_large(words: usize) -> Error {
    let value = format!("{} bytes", words * WORD_BYTES).into();
    let reason = "a request carries 1 MiB at most, and one of delegated code 320 bytes: store what is larger in far memory, and send a pointer to it";
    Error::from(error::InvalidArgument { argument: "args", value, reason })
}

/// A request, and the wait for its answer. It is no async function: the request and its answer are most of what a client's processor does for it, and are passed on in few copies.
struct Call<'a, T, A: Message, R: Message, N: Fn() -> Naming + Copy + 'static, H> {
    trust: &'a Trust<T>,
    ct: &'a ComputeThread,
    naming: N,
    step: Step<'a, A, R, N, H>,
}

enum Step<'a, A: Message, R: Message, N: Fn() -> Naming + Copy + 'static, H> {
    /// The arguments, and what is called if the value is the thread's own.
    New(Option<(A, H)>),
    Waits(Answer<'a, R, N>),
    /// It waits for something else first, or last.
    Slow(Pin<Box<dyn Future<Output = Result<R>> + 'a>>),
}

// The future in its box is pinned, and nothing else is polled in place.
impl<T, A: Message, R: Message, N: Fn() -> Naming + Copy, H> Unpin for Call<'_, T, A, R, N, H> {}

impl<'a, T: 'static, A: Message, R: Message, N, H> Call<'a, T, A, R, N, H>
where
    N: Fn() -> Naming + Copy + 'static,
    H: FnOnce(&mut T, &Context<'_>, A) -> R + 'static,
{
    #[inline]
    fn begin(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<R>> {
        let Self { trust, ct, naming, ref mut step } = *self;
        let Step::New(begun) = step else { panic!("not polled after completion") };
        let Some((args, here)) = begun.take() else { panic!("not polled after completion") };
        let delegation = trust.delegation(ct)?;
        let function = naming();
        if trust.trustee() == ct.id() {
            return Poll::Ready(trust.call_here(delegation, &function, args, here));
        }
        let (caller, number) = trust.named(delegation, &function)?;
        let worker = ct.worker();
        let is_alone = ct.has_one_task();
        let alone = worker.io.endpoint.mapped().filter(|_| is_alone && delegation.serves_nobody());
        // A round finds the answer, and wakes the waker.
        let waker = Some(context.waker()).filter(|waker| !worker.has_waker(waker)).cloned();
        match trust.begin(alone, delegation, &caller, number, args, |_| Waiter::Future(waker)) {
            Begun::Answered(outcome) => Poll::Ready(settle(&caller, naming, outcome)),
            Begun::InQueue(waiter) => {
                caller.flush_early(worker);
                // Of all others the answer can not be there.
                let is_to_poll = is_alone || caller.has_ended();
                self.step = Step::Waits(Answer::new(ct, caller, naming, waiter));
                if is_to_poll {
                    return self.poll_answer(context);
                }
                ct.io().task_stack.makes_step();
                Poll::Pending
            }
            Begun::Large(unsent, makes) => self.goes_on_with(context, async move {
                let (caller, waiter) =
                    trust.send_large(ct, delegation, &function, (caller, number), unsent, makes).await?;
                caller.flush_early(ct.worker());
                let outcome = Answer::<R, N>::new(ct, Rc::clone(&caller), naming, waiter).await;
                match outcome {
                    Outcome::Answer(Status::Far, place) => trust.read_far(ct, &caller, naming, &place).await,
                    outcome => settle(&caller, naming, outcome),
                }
            }),
        }
    }

    #[inline(always)]
    fn poll_answer(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<R>> {
        let Step::Waits(answer) = &mut self.step else { panic!("not polled after completion") };
        let Some(outcome) = answer.take(context) else { return Poll::Pending };
        let Self { trust, ct, naming, .. } = *self;
        if let Outcome::Answer(Status::Far, place) = outcome {
            let caller = Rc::clone(&answer.caller);
            return self
                .goes_on_with(context, async move { trust.read_far(ct, &caller, naming, &place).await });
        }
        Poll::Ready(settle(&answer.caller, naming, outcome))
    }

    #[cold]
    fn goes_on_with(
        &mut self,
        context: &mut TaskContext<'_>,
        what: impl Future<Output = Result<R>> + 'a,
    ) -> Poll<Result<R>> {
        self.step = Step::Slow(Box::pin(what));
        Pin::new(self).poll(context)
    }
}

impl<T: 'static, A: Message, R: Message, N, H> Future for Call<'_, T, A, R, N, H>
where
    N: Fn() -> Naming + Copy + 'static,
    H: FnOnce(&mut T, &Context<'_>, A) -> R + 'static,
{
    type Output = Result<R>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Result<R>> {
        let this = self.get_mut();
        match &mut this.step {
            Step::Waits(_) => this.poll_answer(context),
            Step::New(..) => this.begin(context),
            Step::Slow(what) => what.as_mut().poll(context),
        }
    }
}

/// How often a thread with one task looks for an answer before it does anything else: less than a microsecond.
const LOOKS: u32 = 32;

/// The answer to a request that is awaited.
struct Answer<'a, R: Message, N: Fn() -> Naming + Copy + 'static> {
    ct: &'a ComputeThread,
    caller: Rc<Caller>,
    naming: N,
    /// `None` once it was taken.
    waiter: Option<u32>,
    /// For reports of stalls.
    _waiting: Option<Waiting>,
    result: PhantomData<fn() -> R>,
}

impl<R: Message, N: Fn() -> Naming + Copy> Unpin for Answer<'_, R, N> {}

impl<'a, R: Message, N: Fn() -> Naming + Copy> Answer<'a, R, N> {
    #[inline(always)]
    fn new(ct: &'a ComputeThread, caller: Rc<Caller>, naming: N, waiter: u32) -> Self {
        let trustee = caller.trustee;
        let waiting = ct.waits_for(|| {
            format!("the answer of the trustee, thread {trustee}, to `{}`", naming().describe())
        });
        Self { ct, caller, naming, waiter: Some(waiter), _waiting: waiting, result: PhantomData }
    }

    /// Returns the answer if it is there. Else the waker is woken when it is.
    #[inline(always)]
    fn take(&mut self, context: &mut TaskContext<'_>) -> Option<Outcome> {
        let Some(waiter) = self.waiter else { panic!("not polled after completion") };
        let outcome = self.caller.poll_waiter(waiter).or_else(|| self.look_again(waiter, context))?;
        self.waiter = None;
        Some(outcome)
    }

    #[inline(never)]
    fn look_again(&self, waiter: u32, context: &mut TaskContext<'_>) -> Option<Outcome> {
        self.ct.io().task_stack.makes_step();
        if self.ct.has_one_task()
            && let Some(outcome) = self.look_closely(waiter)
        {
            return Some(outcome);
        }
        // A round finds the answer, and wakes the waker.
        let waker = Some(context.waker()).filter(|waker| !self.ct.worker().has_waker(waker));
        self.caller.set_waker(waiter, waker);
        None
    }

    /// Sends the request, and looks for its answer for about as long as it takes where memory is mapped. The thread has no other task, whose request could share the
    /// batch.
    fn look_closely(&self, waiter: u32) -> Option<Outcome> {
        let worker = self.ct.worker();
        let here @ Here::Mapped(_) = Here::of(worker) else { return None };
        let delegation = Delegation::of_service(worker.service.get()?)?;
        self.caller.flush(worker, here);
        for look in 0..LOOKS {
            if self.caller.take_answers(&delegation, here)
                && let Some(outcome) = self.caller.poll_waiter(waiter)
            {
                delegation.heeds_one();
                return Some(outcome);
            }
            if look % 8 == 7 {
                // The trustee may wait for this thread.
                worker.serves_others();
            }
            spin_loop();
        }
        None
    }
}

impl<R: Message, N: Fn() -> Naming + Copy> Future for Answer<'_, R, N> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Outcome> {
        self.take(context).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<R: Message, N: Fn() -> Naming + Copy + 'static> Drop for Answer<'_, R, N> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.abandon(waiter);
        }
    }
}

impl<R: Message, N: Fn() -> Naming + Copy> Answer<'_, R, N> {
    #[cold]
    fn abandon(&self, waiter: u32) {
        let (caller, naming) = (Rc::clone(&self.caller), self.naming);
        let delegation = Delegation::of(self.ct.worker());
        let unwanted = move |delegation: &Rc<Delegation>, outcome: Outcome| {
            receive::<R>(delegation, &caller, naming, outcome, drop);
        };
        self.caller.abandon_waiter(waiter, &delegation, Box::new(unwanted));
    }
}
