//! The work of a thread's delegation that waits: for far memory, for time, and for others at the thread's end.

use std::any::Any;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::caller::{Caller, State};
use super::desk::{BELLS, DESK_WORDS, Desk, DeskPlaces, tell};
use super::mirror::{read_answers, read_desk, read_last_words};
use super::slots::{ALL_WORDS, CLIENTS_WORDS, Here, MAPPED_WORDS, Notice, Slots, head};
use super::state::{Delegation, Job};
use crate::cell::op::Staged;
use crate::cell::{Atomic, Blob, Link, op};
use crate::error::{Error, Result};
use crate::io::operations::*;
use crate::pointer::RemotePtr;
use crate::session::ComputeThread;
use farfield_fabric::program;
use farfield_macros::remote;
use farfield_sim::Plant;
use farfield_words::{Address, Remote as _, ThreadId, WORD_BYTES};

/// The root of all desks.
const ROOT: &str = "farfield desks";
/// The time between two looks whether other threads live. In the simulator, in round trips.
const WATCH: Duration = Duration::from_millis(20);
const WATCH_RTTS: u32 = 100;
/// After so many looks without a request a pair gives its slots back: a second.
const IDLE_LOOKS: u32 = 50;
/// After so many looks without a notice of a dead trustee a pair's words are given up.
const NOTICE_LOOKS: u32 = 5;
/// The looks at a dead thread whose line has a connection: a second. If its process has ended, the connection is closed at once, after the last note.
const LAST_NOTES_LOOKS: u32 = 50;
/// How often words in far memory are accessed for a request, if a link is cut.
const ATTEMPTS: u32 = 8;
/// The time for which a thread that ends waits for trustees that live. In the simulator, in round trips.
const PATIENCE: Duration = Duration::from_secs(8);
const PATIENCE_RTTS: u32 = 10_000;
/// How often a thread's main future is polled again because there was work, before timers and other threads get their turn.
const MOST_AT_ONCE: u32 = 64;

/// All desks of a cluster. They are used again, and never freed.
#[remote(crate = crate)]
struct Desks {
    first: Link<DeskObject>,
}

/// A desk: see [`super::desk`].
#[remote(crate = crate, align = 64)]
struct DeskObject {
    next: RemotePtr<DeskObject>,
    owner: Atomic<u64>,
    hellos: Atomic<u64>,
    rung: Atomic<u64>,
    asleep: Atomic<u64>,
    bells: [Atomic<u64>; BELLS],
}

/// The words of a pair where answers lie in the slots of their requests.
#[remote(crate = crate, align = 64)]
struct MappedPair {
    words: [Atomic<u64>; MAPPED_WORDS],
}

/// The words of a pair.
#[remote(crate = crate, align = 64)]
struct Pair {
    words: [Atomic<u64>; ALL_WORDS],
}

/// A job, or the end of the thread.
type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs a thread's body, and beside it the thread's delegation, if it has one.
#[inline]
pub(crate) fn attend<B: Future>(ct: &ComputeThread, body: B) -> Attend<'_, B> {
    Attend { body, beside: Beside { ct, output: None, jobs: Vec::new(), ending: None, woken: None } }
}

pin_project! {
    /// The future of a thread's body. Without delegation, each poll is one of the body and a look for delegation.
    pub(crate) struct Attend<'a, B: Future> {
        #[pin]
        body: B,
        beside: Beside<'a, B::Output>,
    }
}

impl<B: Future> Future for Attend<'_, B> {
    type Output = B::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<B::Output> {
        let mut this = self.project();
        if this.beside.output.is_none() {
            let polled = this.body.as_mut().poll(context);
            if this.beside.ct.worker().service.get().is_none() {
                return polled;
            }
            if let Poll::Ready(output) = polled {
                this.beside.output = Some(output);
            }
        }
        this.beside.work(this.body, context)
    }
}

/// What is done beside a thread's body.
struct Beside<'a, R> {
    ct: &'a ComputeThread,
    /// What the body has returned.
    output: Option<R>,
    jobs: Vec<Work<'a>>,
    ending: Option<Work<'a>>,
    woken: Option<Arc<Woken>>,
}

impl<R> Beside<'_, R> {
    /// Works, after a poll of the body, which is polled again if there was work.
    #[inline(never)]
    fn work(
        &mut self,
        mut body: Pin<&mut impl Future<Output = R>>,
        context: &mut TaskContext<'_>,
    ) -> Poll<R> {
        let ct = self.ct;
        let Some(delegation) = existing(ct) else { return Poll::Pending };
        let is_simulated = ct.io.endpoint.virtual_time().is_some();
        // Elsewhere, a chain that completes does not wake the job that waits for it.
        let polls_jobs = ct.io.endpoint.is_asynchronous();
        delegation.set_waker(context.waker());
        let mut rounds = 0;
        loop {
            if self.output.is_some() {
                let ending = self
                    .ending
                    .get_or_insert_with(|| Box::pin(ct.in_service(finish(ct, Rc::clone(&delegation)))));
                if ending.as_mut().poll(context).is_ready() {
                    return self.output.take().map_or(Poll::Pending, Poll::Ready);
                }
            }
            let mut has_worked = delegation.go_round(ct.worker());
            let before = self.jobs.len();
            for job in delegation.take_jobs() {
                self.jobs.push(Box::pin(ct.in_service(do_job(ct, Rc::clone(&delegation), job))));
            }
            let woken = self.woken.get_or_insert_with(|| Woken::of(context.waker()));
            if woken.has_been() || self.jobs.len() > before || polls_jobs {
                let before = self.jobs.len();
                let waker = Waker::from(Arc::clone(woken));
                let mut context = TaskContext::from_waker(&waker);
                self.jobs.retain_mut(|job| job.as_mut().poll(&mut context).is_pending());
                delegation.stir();
                has_worked |= self.jobs.len() < before;
                // The body is polled next, and takes the answers that the jobs have brought.
                has_worked |= delegation.takes_told();
            }
            if !has_worked {
                return Poll::Pending;
            }
            rounds += 1;
            if rounds == MOST_AT_ONCE && !is_simulated {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.output.is_none()
                && let Poll::Ready(output) = body.as_mut().poll(context)
            {
                self.output = Some(output);
            }
        }
    }
}

/// The waker of jobs where memory is mapped. A thread that serves many requests polls its jobs only if one was woken: the one that watches others sleeps nearly always, and a poll of a
/// timer reads the clock.
struct Woken {
    has_been: AtomicBool,
    thread: Waker,
}

impl Woken {
    fn of(thread: &Waker) -> Arc<Self> {
        Arc::new(Self { has_been: AtomicBool::new(false), thread: thread.clone() })
    }

    fn has_been(&self) -> bool {
        self.has_been.load(Ordering::Relaxed) && self.has_been.swap(false, Ordering::Acquire)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_been.store(true, Ordering::Release);
        self.thread.wake_by_ref();
    }
}

fn existing(ct: &ComputeThread) -> Option<Rc<Delegation>> {
    Delegation::of_service(ct.worker().service.get()?)
}

async fn do_job(ct: &ComputeThread, delegation: Rc<Delegation>, job: Job) {
    let here = Here::of(ct.worker());
    match job {
        Job::Open(caller) => open(ct, here, &delegation, &caller).await,
        Job::Fetch(pair) => {
            let Some(desk) = delegation.desk() else { return };
            let mut fetched = Vec::new();
            for (at, words) in desk.to_fetch(pair) {
                let fits = words <= (Blob::MAX_BYTES / WORD_BYTES) as u64;
                fetched.push(if fits { peek_patiently(ct, at, words as usize).await.ok() } else { None });
            }
            desk.fetched(&delegation, ct.worker(), here, pair, fetched);
        }
        Job::Store(pair) => {
            let Some(desk) = delegation.desk() else { return };
            let Some((near, large)) = desk.large_results(pair) else { return };
            for (at, words) in large {
                let mut stored = store(ct, near, &words).await;
                for _ in 1..ATTEMPTS {
                    if !matches!(stored, Err(Error::NodeUnreachable(_))) {
                        break;
                    }
                    stored = store(ct, near, &words).await;
                }
                let stored = stored.ok();
                desk.stored(pair, at, stored);
            }
        }
        Job::Read { at, words, then } => {
            then(&delegation, read_patiently(ct, at, words).await.ok());
        }
        Job::Watch => watch(ct, here, &delegation).await,
        Job::Serve => read_desk(ct, &delegation).await,
        Job::Await => read_answers(ct, &delegation).await,
    }
}

/// Reads words, again and again if a link is cut: whoever waits for them can not.
pub(super) async fn read_patiently(ct: &ComputeThread, at: Address, words: usize) -> Result<Vec<u64>> {
    let mut attempts = 1;
    loop {
        match ct.in_service(ct.read_words(at, words, |words| Ok(words.to_vec()))).await {
            Err(Error::NodeUnreachable(_)) if attempts < ATTEMPTS => attempts += 1,
            read => return read,
        }
    }
}

/// The same for arguments, which the client may have freed, if it was told that this trustee has gone: then they are not used.
pub(super) async fn peek_patiently(ct: &ComputeThread, at: Address, words: usize) -> Result<Vec<u64>> {
    let mut attempts = 1;
    loop {
        let mut chain = ct.empty_chain();
        let slot = chain.peek(at, words);
        match ct.in_service(ct.submit(chain)).await {
            Ok(done) => return Ok(done.words(slot).to_vec()),
            Err(Error::NodeUnreachable(_)) if attempts < ATTEMPTS => attempts += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Words in far memory, which are freed when this is dropped.
pub(super) struct Stored {
    blob: Staged<Blob>,
    words: usize,
}

impl Stored {
    /// Returns the address of the words, and their number.
    pub(super) fn place(&self) -> [u64; 2] {
        let at = self.blob.as_ptr().address().add(WORD_BYTES as u64);
        [at.bits(), self.words as u64]
    }
}

/// Writes words to far memory, on the memory node of an address. Nothing is lost if the future is dropped.
pub(super) async fn store(ct: &ComputeThread, near: Address, words: &[u64]) -> Result<Stored> {
    let near = RemotePtr::<Blob>::from_address(near);
    let mut blob = Blob::zeroed_in(ct.near(near), words.len() * WORD_BYTES).await?;
    Blob::bytes_mut(&mut blob).copy_from_slice(bytemuck::cast_slice(words));
    let blob = ct.pin().chain(op::stage(blob)).submit().await?;
    Ok(Stored { blob, words: words.len() })
}

/// The time between two looks whether other threads live.
fn pause(ct: &ComputeThread) -> Duration {
    ct.cluster().simulation().map_or(WATCH, |simulation| simulation.rtt() * WATCH_RTTS)
}

/// Looks from time to time whether the threads live that this one deals with.
async fn watch(ct: &ComputeThread, here: Here<'_>, delegation: &Rc<Delegation>) {
    // The looks at threads that are not live, and whose lines have a connection.
    let mut lingering = HashMap::new();
    let mut lingers = |thread: ThreadId, is_linked: bool| {
        is_linked && {
            let looks: &mut u32 = lingering.entry(thread).or_default();
            *looks += 1;
            *looks < LAST_NOTES_LOOKS
        }
    };
    loop {
        ct.sleep_for(pause(ct)).await;
        if let Some(desk) = delegation.desk() {
            desk.forget_lost_lines(ct.worker(), here);
            for thread in desk.others() {
                if matches!(ct.is_live(thread).await, Ok(false)) {
                    if delegation.has(Plant::LateLastWords) {
                        desk.count_out(thread);
                    }
                    // What it has sent before its end is executed, and its answers are taken: there may be handles in both.
                    let last_words = || {
                        let mut mailboxes = desk.mailboxes_of(thread);
                        let callers = delegation.callers();
                        let answers = callers.iter().filter(|caller| caller.trustee == thread);
                        mailboxes.extend(answers.flat_map(|caller| caller.mailboxes()));
                        mailboxes
                    };
                    if !read_last_words(ct, here, last_words).await {
                        continue;
                    }
                    #[cfg(target_os = "linux")]
                    Delegation::look_at_lines(ct.worker());
                    delegation.stir();
                    delegation.go_round(ct.worker());
                    let callers = delegation.callers();
                    let mut of_thread = callers.iter().filter(|caller| caller.trustee == thread);
                    if lingers(
                        thread,
                        desk.is_linked_with(thread) || of_thread.any(|caller| caller.is_linked()),
                    ) {
                        continue;
                    }
                    if callers.iter().any(|caller| caller.trustee == thread && caller.has_undecoded()) {
                        continue;
                    }
                    desk.thread_ended(ct.worker(), here, thread);
                }
            }
        }
        for caller in delegation.callers() {
            let state = caller.state.get();
            if caller.is_retired.get() && caller.is_over() {
                delegation.forget(&caller);
                continue;
            }
            // A result in far memory is the pair's until it was read.
            if state == State::Open && !caller.has_undecoded() && caller.looks_idle() >= IDLE_LOOKS {
                caller.is_retired.set(true);
                caller.close(ct.worker(), here);
                continue;
            }
            if caller.has_lost_line() && state != State::Ended {
                // What was not answered may have been executed.
                caller.abandon(delegation);
                delegation.forget(&caller);
                continue;
            }
            let is_concerned = caller.is_waiting() || caller.has_failed.get();
            if state == State::Ended || !is_concerned || caller.is_greeting.get() {
                continue;
            }
            if !matches!(ct.is_live(caller.trustee).await, Ok(false)) {
                continue;
            }
            // Its last answers may have arrived.
            if !read_last_words(ct, here, || caller.mailboxes()).await {
                continue;
            }
            #[cfg(target_os = "linux")]
            if caller.has_line() {
                Delegation::look_at_lines(ct.worker());
                delegation.stir();
                delegation.go_round(ct.worker());
            }
            if lingers(caller.trustee, caller.is_linked()) {
                continue;
            }
            caller.take_answers(delegation, here);
            if caller.state.get() == State::Opening {
                // The thread that has taken its hello reads its words before it tells it; but it may have died, or the desk can not be reached.
                let _ = refuse_hellos(ct, here, caller.desk).await;
                if caller.state.get() == State::Opening && caller.misses_notice() >= NOTICE_LOOKS {
                    caller.abandon(delegation);
                }
                continue;
            }
            caller.trustee_died(delegation);
        }
    }
}

// ---- pairs -----------------------------------------------------------------------------------------------------

/// Opens a pair. If the trustee can not be reached, its requests are refused; but those that it must know of as long as it lives wait for another attempt.
async fn open(ct: &ComputeThread, here: Here<'_>, delegation: &Rc<Delegation>, caller: &Rc<Caller>) {
    // What a trustee writes that has found the pair is not looked at before.
    caller.is_greeting.set(true);
    while greet(ct, here, delegation, caller).await.is_err() {
        caller.refuse_waiting(delegation);
        let may_live = match ct.is_live(caller.trustee).await {
            Ok(is_live) => is_live,
            // A link of the simulator is restored.
            Err(_) => ct.cluster().simulation().is_some(),
        };
        if !may_live || !caller.has_to_tell() {
            caller.abandon(delegation);
            // A later request may reach it.
            delegation.forget(caller);
            return;
        }
        // The trustee may know these words, or find them later.
        caller.abandon_words(delegation);
        ct.sleep_for(pause(ct)).await;
    }
    caller.is_greeting.set(false);
}

/// Allocates a pair's words, and announces them to the trustee.
async fn greet(
    ct: &ComputeThread,
    here: Here<'_>,
    delegation: &Rc<Delegation>,
    caller: &Rc<Caller>,
) -> Result<()> {
    if here.is_mapped() {
        // It may sleep on it.
        take_desk(ct, delegation).await?;
    }
    let own = delegation.desk().map_or(0, |desk| desk.places.0.bits());
    let desk = RemotePtr::<DeskObject>::from_address(caller.desk.0);
    let [low, high] = program::build();
    let is_mapped = u64::from(here.is_mapped());
    let words = [0, caller.trustee.number().get(), ct.id().number().get(), low, high, own, is_mapped];
    // Each is freed when the pair has ended.
    let (block, words_of_pair): (Address, Box<dyn Any>) = if here.is_mapped() {
        let mut pair = MappedPair::new_in(ct.near(desk), MappedPair::init()).await?;
        for (index, word) in words.into_iter().enumerate() {
            pair.set(|pair| pair.words().at(index), word);
        }
        let pair = ct.pin().chain(op::stage(pair)).submit().await?;
        (pair.as_ptr().address(), Box::new(pair))
    } else {
        let mut pair = Pair::new_in(ct.near(desk), Pair::init()).await?;
        for (index, word) in words.into_iter().enumerate() {
            pair.set(|pair| pair.words().at(index), word);
        }
        let pair = ct.pin().chain(op::stage(pair)).submit().await?;
        (pair.as_ptr().address(), Box::new(pair))
    };
    let slots = Slots::new(block, here.is_mapped());
    #[cfg(target_os = "linux")]
    caller.may_call.set(ct.io.endpoint.peers().is_some());
    here.host(slots.notice(), CLIENTS_WORDS, &[]);
    // Before the hello, after which the trustee writes there.
    here.watch(ct.worker(), slots.notice());
    caller.slots.set(Some(slots));
    *caller.block.borrow_mut() = Some(words_of_pair);
    loop {
        let first = ct.read_word(caller.desk.hellos()).await?;
        ct.write_word(slots.head(head::NEXT), first).await?;
        let mut chain = ct.empty_chain();
        let exchanged = chain.compare_exchange(caller.desk.hellos(), first, block.bits());
        let owner = chain.read(caller.desk.owner(), 1);
        if here.is_mirrored() && ct.cluster().simulation().is_none() {
            // Perhaps the trustee maps the memory, and sleeps.
            caller.desk.wake_by(&mut chain);
        }
        let done = ct.submit(chain).await?;
        if done.word(exchanged) != first {
            continue;
        }
        let owner = done.words(owner)[0];
        drop(done);
        here.fence();
        caller.desk.wake(here);
        if owner != caller.trustee.number().get() {
            refuse_hellos(ct, here, caller.desk).await?;
        }
        return Ok(());
    }
}

/// Takes the pairs that have greeted a desk without a live owner, and tells their clients that the trustee has gone. Meanwhile this thread owns the desk: so no other
/// thread takes it, whose clients would be told the same. A live owner takes the pairs itself, and tells those of other trustees.
pub(super) async fn refuse_hellos(ct: &ComputeThread, here: Here<'_>, desk: DeskPlaces) -> Result<()> {
    let me = ct.id().number().get();
    loop {
        let [owner, first] = ct.read_words(desk.owner(), 2, |words| Ok([words[0], words[1]])).await?;
        let is_owned = match ThreadId::of_word(owner) {
            None => false,
            Some(owner) => ct.is_live(owner).await?,
        };
        if first == 0 || is_owned {
            return Ok(());
        }
        if ct.compare_exchange_word(desk.owner(), owner, me).await? == owner {
            let refused = refuse_all(ct, here, desk).await;
            give_up(ct, desk).await?;
            refused?;
        }
        // A pair that has found this owner has relied on it.
    }
}

async fn refuse_all(ct: &ComputeThread, here: Here<'_>, desk: DeskPlaces) -> Result<()> {
    let mut first = ct.read_word(desk.hellos()).await?;
    loop {
        match ct.compare_exchange_word(desk.hellos(), first, 0).await? {
            found if found == first => break,
            found => first = found,
        }
    }
    let mut at = Address::from_bits(first);
    while !at.is_null() {
        // These words have the same place in all pairs.
        let slots = Slots::new(at, here.is_mapped());
        let next = ct.read_word(slots.head(head::NEXT)).await?;
        // Its client may sleep, until it looks whether the trustee lives.
        tell(ct.worker(), here, slots, DeskPlaces(Address::NULL), Notice::Gone(0), None);
        at = Address::from_bits(next);
    }
    Ok(())
}

/// Gives up a desk, unless it is another thread's already.
async fn give_up(ct: &ComputeThread, desk: DeskPlaces) -> Result<()> {
    let mut attempts = 1;
    loop {
        match ct.in_service(ct.compare_exchange_word(desk.owner(), ct.id().number().get(), 0)).await {
            Err(Error::NodeUnreachable(_)) if attempts < ATTEMPTS => attempts += 1,
            given_up => return given_up.map(drop),
        }
    }
}

/// Leaves the thread's desk to others. Clients find that it has no owner, and those that have found one are told.
async fn leave_desk(ct: &ComputeThread, here: Here<'_>, desk: &Desk) -> Result<()> {
    let places = desk.places;
    if here.is_mirrored() {
        give_up(ct, places).await?;
        return refuse_hellos(ct, here, places).await;
    }
    here.store(places.owner(), 0);
    here.fence();
    if here.load(places.hellos()) != 0 { refuse_hellos(ct, here, places).await } else { Ok(()) }
}

// ---- desks -----------------------------------------------------------------------------------------------------

impl ComputeThread {
    /// Returns the bytes of all desks, which are never freed: for tests that look for lost memory. One round trip for each.
    #[doc(hidden)]
    pub async fn desk_bytes(&self) -> Result<u64> {
        let root = all_desks(self).await?;
        let mut at = root.first().load(&self.pin()).await?.as_ptr().address();
        let mut bytes = Desks::SIZE.max(2 * WORD_BYTES) as u64;
        while !at.is_null() {
            bytes += DeskObject::SIZE as u64;
            at = Address::from_bits(self.read_word(DeskPlaces(at).next()).await?);
        }
        Ok(bytes)
    }
}

#[cfg(target_os = "linux")]
impl ComputeThread {
    /// Closes the connections to clients and trustees as if the network had: for tests.
    #[doc(hidden)]
    pub fn cut_direct_lines(&self) {
        if let Some(peers) = self.io.endpoint.peers() {
            peers.cut();
        }
    }
}

/// Gives the thread a desk, unless it has one.
pub(super) async fn take_desk(ct: &ComputeThread, delegation: &Rc<Delegation>) -> Result<()> {
    if delegation.desk().is_some() {
        return Ok(());
    }
    let here = Here::of(ct.worker());
    let desk = find_desk(ct).await?;
    let read = if here.is_mirrored() { read_patiently(ct, desk.0, DESK_WORDS).await } else { Ok(Vec::new()) };
    // Else another task was faster. Nothing is waited for between this look and `set_desk`.
    if let (Ok(words), None) = (&read, delegation.desk()) {
        here.host(desk.0, DESK_WORDS, words);
        delegation.set_desk(Desk::new(desk, here));
        if here.is_mirrored() {
            delegation.begin(Job::Serve);
        }
        return Ok(());
    }
    give_up(ct, desk).await?;
    refuse_hellos(ct, here, desk).await?;
    read.map(drop)
}

async fn all_desks(ct: &ComputeThread) -> Result<RemotePtr<Desks>> {
    ct.root_or_init(ROOT, async || Desks::new_in(ct, Desks::init()).await?.write(ct).await).await
}

/// Finds a desk without an owner, or makes one. It is the thread's.
async fn find_desk(ct: &ComputeThread) -> Result<DeskPlaces> {
    let root = all_desks(ct).await?;
    let me = ct.id().number().get();
    let mut first = root.first().load(&ct.pin()).await?.as_ptr();
    let mut desk = first;
    while !desk.is_null() {
        let places = DeskPlaces(desk.address());
        match ct.in_service(take_if_free(ct, places, me)).await {
            Ok(Some(next)) => desk = RemotePtr::from_address(next),
            Ok(None) => return Ok(places),
            // It is in the memory of a compute node that is dead. Those behind it are not found.
            Err(Error::NodeUnreachable(_)) => break,
            Err(error) => return Err(error),
        }
    }
    let mut new = DeskObject::new_in(ct, DeskObject::init(first)).await?;
    new.set(|desk| desk.owner(), me);
    let g = &ct.pin();
    loop {
        match root.first().compare_exchange(g, first, new).await? {
            Ok(stored) => return Ok(DeskPlaces(stored.address())),
            Err(refused) => {
                first = refused.current.as_ptr();
                new = refused.new;
                new.set(|desk| desk.next(), first);
            }
        }
    }
}

/// Takes a desk whose owner is not alive. Returns the next one if it is.
async fn take_if_free(ct: &ComputeThread, desk: DeskPlaces, me: u64) -> Result<Option<Address>> {
    let owner = ct.read_word(desk.owner()).await?;
    let is_free = match ThreadId::of_word(owner) {
        None => true,
        Some(owner) => !ct.is_live(owner).await?,
    };
    if is_free && ct.compare_exchange_word(desk.owner(), owner, me).await? == owner {
        return Ok(None);
    }
    Ok(Some(Address::from_bits(ct.read_word(desk.next()).await?)))
}

// ---- the end ---------------------------------------------------------------------------------------------------

/// Ends the thread's delegation: its clients are told, its requests answered, and its pairs closed.
async fn finish(ct: &ComputeThread, delegation: Rc<Delegation>) {
    let delegation = &delegation;
    let here = Here::of(ct.worker());
    let is_quiet = |caller: &Rc<Caller>| match caller.state.get() {
        State::Ended => true,
        State::Open => !caller.is_busy(),
        State::Opening | State::Closing => false,
    };
    // A trustee that lives, and does not answer, is stopped, or computes.
    let patience = ct.cluster().simulation().map_or(PATIENCE, |simulation| simulation.rtt() * PATIENCE_RTTS);
    let until = ct.io.endpoint.now().saturating_add(patience);
    let is_late = || ct.io.endpoint.now() >= until;
    if let Some(desk) = delegation.desk() {
        desk.greets_no_more();
        wait_until(ct, || !desk.is_greeting() || is_late()).await;
        // If this fails, the desk is free once the thread is not live, and its clients look for that.
        let _ = leave_desk(ct, here, desk).await;
        desk.close(ct.worker(), here);
    }
    // Each look of this one is followed by a whole round: there is nothing else to do.
    let all_quiet = || {
        delegation.stir();
        delegation.has_nothing_to_send() && delegation.callers().iter().all(is_quiet)
    };
    wait_until(ct, || all_quiet() || is_late()).await;
    delegation.callers().iter().for_each(|caller| caller.close(ct.worker(), here));
    let all_over = || {
        delegation.stir();
        delegation.callers().iter().all(|caller| caller.is_over())
    };
    wait_until(ct, || all_over() || is_late()).await;
    for caller in delegation.callers() {
        if !caller.is_over() {
            tracing::warn!(trustee = %caller.trustee, "a trustee does not answer: the words of its pair are lost");
            caller.abandon(delegation);
        }
    }
    delegation.end(ct.worker());
}

/// Waits until the thread's rounds have made something true.
pub(super) async fn wait_until(ct: &ComputeThread, mut is_true: impl FnMut() -> bool) {
    poll_fn(|context| {
        if is_true() {
            return Poll::Ready(());
        }
        ct.io().task_stack.makes_step();
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
