//! A thread's I/O: single operations and chains.
//!
//! An [`Io`] is the part of a compute thread that posts operations and finds their completions. It knows fabrics, tokens and local epochs, and
//! nothing about memory, members or sweeps. Those act around operations through the hooks of [`Thread`], which the layer above implements for the
//! type that contains the `Io`: a posted chain counts towards an epoch's step, a sweep sees written links, and a yielding thread serves requests.
//!
//! Cost: an operation on the host fabric is the access itself, a counter, and for a write one predictable branch (is memory swept?). An operation on
//! any other fabric is a chain, in reused buffers.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Poll, Waker};
use std::time::Duration;

use farfield_fabric::chain::{Counts, RawChain};
use farfield_fabric::host::{Host, Window};
use farfield_fabric::stall::{DescribeWait, Waits};
use farfield_fabric::{Posted, Ticket};
use farfield_sim::{Plant, Sim};
use farfield_words::{Address, Geometry, ThreadId};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::compensation::DueExchange;
use super::deferred::DeferredErrors;
use super::detached::{Detached, Detaching};
use super::endpoint::Endpoint;
use super::identities::Identities;
use super::idle::{Idle, Sleepers};
use super::metrics::{Counters, count};
use super::retry::Retry;
use super::single::ReadWords;
use super::submit::Submitted;
use super::task_stack::TaskStack;
use super::tokens::{Tokens, failed_write};
use super::waits::Purpose;
use super::word::{AddToWord, ExchangeWord, WordOperation, WriteWord, WriteWords};
use crate::epoch::{Participant, Pin};
use crate::error::Result;

/// The maximum number of empty chains that a thread keeps for their buffers.
const MOST_CHAINS: usize = 64;

/// A compute thread as its I/O sees it: the hooks of the layers above.
pub(crate) trait Thread: Sized + 'static {
    /// The thread's I/O.
    fn io(&self) -> &Io<Self>;

    /// The thread is about to write words. A sweep must see those that may be links.
    fn writes_words(&self, words: &[u64]);

    /// Like [`writes_words`](Self::writes_words), for all words that a chain writes.
    fn writes_chain(&self, chain: &RawChain);

    /// The thread is about to access far memory without writing links.
    fn accesses(&self);

    /// A chain is about to be posted.
    fn posts_chain(&self);

    /// Returns whether the hooks of an operation, which are [`writes_words`](Self::writes_words), [`accesses`](Self::accesses) and
    /// [`posts_chain`](Self::posts_chain), would do no more than [`counts_chain`](Self::counts_chain).
    fn is_quiet(&self) -> bool;

    /// A chain is posted, while the thread [is quiet](Self::is_quiet).
    fn counts_chain(&self);

    /// The thread is about to wait for this many round trips.
    fn waits_for_round_trips(&self, round_trips: u64);

    /// The thread yields or is about to pin a guard: it serves requests of other threads and processes.
    fn serves_requests(&self);

    /// Returns whether other threads may have work for this one, or answers, which only polling finds.
    fn attends(&self) -> bool;

    /// Sleeps for `most` at most, until other threads have work or answers, or the thread is woken. Returns `false` if it can not.
    fn sleeps_for_others(&self, most: Option<Duration>) -> bool;

    /// Serves requests of other threads for work. Returns whether there were any.
    fn serves_others(&self) -> bool;

    /// Polls the thread's background operations.
    fn drives_background(&self);

    /// Pins the oldest epoch that a guard of the thread is in, until [`unprotects`](Self::unprotects).
    fn protects(&self) -> Pin;

    /// Unpins it.
    fn unprotects(&self, pin: Pin);

    /// Returns a function that describes the purpose of a wait, if a stall is reported.
    fn describes(&self, purpose: Purpose<'_>) -> DescribeWait;
}

/// The I/O of a compute thread of type `T`.
pub(crate) struct Io<T: Thread> {
    pub(crate) endpoint: Endpoint,
    /// The memory that is read without the endpoint.
    window: Window,
    pub(crate) counters: Counters,
    /// The thread's slot in its process's epochs.
    pub(crate) epoch: Participant,
    /// Empty chains, kept for their buffers.
    chains: RefCell<Vec<RawChain>>,
    /// Detached chains in flight.
    pub(super) detached: RefCell<Vec<Detached<T>>>,
    /// Failed exchanges, which are to be posted again.
    pub(super) due: RefCell<Vec<DueExchange>>,
    /// True once the thread ends: failed exchanges are not posted again.
    pub(super) gives_up_compensations: Cell<bool>,
    pub(super) deferred_errors: DeferredErrors,
    /// False if there is neither a detached chain, nor a due exchange, nor a deferred error: what an operation need not look at one by one.
    pub(super) has_backlog: Cell<bool>,
    rng: RefCell<SmallRng>,
    pub(crate) tokens: Tokens,
    identities: Arc<Identities>,
    /// The running task, or the one that ran last.
    task: Rc<Cell<u32>>,
    /// The number of tasks, in sets, that have not ended.
    pub(super) running_tasks: Cell<usize>,
    /// The tasks on the call stack, and the locks that they hold.
    pub(crate) task_stack: TaskStack,
    id: ThreadId,
    /// The number of threads that may wait for the same event: those of the run.
    contenders: usize,
    pub(crate) geometry: Geometry,
    /// Its waits, if stalls are reported.
    pub(crate) stalls: Option<Arc<Waits>>,
    /// Its waker and timers, unless the simulator polls the thread.
    idle: OnceCell<Idle>,
    sleepers: Arc<Sleepers>,
}

/// The parts of a thread's I/O.
pub(crate) struct IoParts {
    pub(crate) endpoint: Endpoint,
    pub(crate) epoch: Participant,
    pub(crate) identities: Arc<Identities>,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) stalls: Option<Arc<Waits>>,
    pub(crate) task: Rc<Cell<u32>>,
    pub(crate) id: ThreadId,
    pub(crate) geometry: Geometry,
    pub(crate) seed: u64,
    /// The number of threads of the run.
    pub(crate) contenders: usize,
}

impl<T: Thread> Io<T> {
    pub(crate) fn new(parts: IoParts) -> Self {
        let IoParts { endpoint, epoch, identities, sleepers, stalls, task, id, geometry, seed, contenders } =
            parts;
        Self {
            window: endpoint.immediate().map_or(const { Window::none() }, Host::window),
            endpoint,
            counters: Counters::default(),
            epoch,
            chains: RefCell::default(),
            detached: RefCell::default(),
            due: RefCell::default(),
            gives_up_compensations: Cell::default(),
            deferred_errors: DeferredErrors::default(),
            has_backlog: Cell::new(false),
            rng: RefCell::new(SmallRng::seed_from_u64(seed)),
            tokens: Tokens::new(id),
            identities,
            task,
            running_tasks: Cell::new(0),
            task_stack: TaskStack::default(),
            id,
            contenders,
            geometry,
            stalls,
            idle: OnceCell::new(),
            sleepers,
        }
    }
}

impl<T: Thread> Io<T> {
    /// Returns the number of detached chains in flight.
    pub(crate) fn detached_chains(&self) -> usize {
        self.detached.borrow().len()
    }
}

/// The operations of a thread's I/O, for every layer above.
pub(crate) trait Operations: Thread {
    // ---- the thread --------------------------------------------------------------------------------------------

    /// Returns the thread's identity.
    fn id(&self) -> ThreadId {
        self.io().id
    }

    /// Returns the number of the running task; 0 outside of tasks.
    #[inline]
    fn task_number(&self) -> u32 {
        self.io().task.get()
    }

    /// Sets the number of the running task. Returns the previous one.
    #[inline]
    fn enter_task(&self, task: u32) -> u32 {
        self.io().task.replace(task)
    }

    /// Returns whether the thread has at most one task.
    #[inline]
    fn has_one_task(&self) -> bool {
        self.io().running_tasks.get() <= 1
    }

    /// Returns whether the process has no other compute thread.
    fn is_only_thread(&self) -> bool {
        self.io().identities.has_at_most_one()
    }

    /// Returns the number of threads of the run.
    fn contenders(&self) -> usize {
        self.io().contenders
    }

    /// Returns the memory node of an address.
    fn node_of(&self, address: Address) -> u16 {
        self.io().geometry.node_of(address.segment())
    }

    /// Returns the thread's random generator.
    fn rng(&self) -> RefMut<'_, SmallRng> {
        self.io().rng.borrow_mut()
    }

    /// Returns the time since the cluster was connected.
    fn time(&self) -> std::time::Duration {
        if let Some(sim) = self.io().endpoint.virtual_time() {
            sim.reads_clock();
        }
        self.io().endpoint.now()
    }

    /// Returns the estimated round-trip time on a real network, in nanoseconds; at least 1.
    fn round_trip(&self) -> Option<u64> {
        self.io().endpoint.round_trip()
    }

    /// Returns whether this bug is planted, which only a simulator does.
    #[inline]
    fn has(&self, plant: Plant) -> bool {
        self.io().endpoint.virtual_time().is_some_and(|sim| sim.has(plant))
    }

    /// Wakes the thread if this is its waker. Returns whether it is.
    #[inline]
    fn wakes_itself(&self, waker: &Waker) -> bool {
        self.io().idle.get().is_some_and(|idle| idle.wake_here(waker))
    }

    /// Returns whether this is the thread's waker.
    #[inline]
    fn has_waker(&self, waker: &Waker) -> bool {
        self.io().idle.get().is_some_and(|idle| idle.waker().will_wake(waker))
    }

    /// Returns the thread's waker and timers.
    fn idle_state(&self) -> &Idle {
        let io = self.io();
        io.idle.get_or_init(|| Idle::new(io.id, &io.sleepers))
    }

    /// Returns an odd word that names this thread. No other acquisition in the cluster has the same word until it is
    /// [settled](Self::settle_token). See [`tokens`](super::tokens).
    #[inline]
    fn token(&self) -> u64 {
        let io = self.io();
        let token = io.tokens.issue(|| io.identities.begin(1).ok().map(ThreadId::new));
        if self.has(Plant::SameToken) { failed_write(token) | 1 } else { token }
    }

    /// Allows a token to be issued again: its attempt has failed, or its release or compensation has taken effect.
    #[inline]
    fn settle_token(&self, token: u64) {
        if !self.has(Plant::SameToken) {
            self.io().tokens.settle(token);
        }
    }

    // ---- single operations -------------------------------------------------------------------------------------

    /// Returns the words of a READ, if it need not be a chain, and counts it. On the host fabric only READs of a segment's last words and of
    /// invalid addresses are chains.
    #[inline]
    fn words_for_read(&self, at: Address, words: usize) -> Option<&[AtomicU64]> {
        let io = self.io();
        let found = if words <= Window::MOST_WORDS {
            io.window.words(at, words)?
        } else {
            io.endpoint.immediate()?.words(at, words).ok()?
        };
        self.count_read(words);
        Some(found)
    }

    /// Returns a word on an immediate fabric. `None` on another one, and if there is no such word.
    #[inline]
    fn word_here(&self, at: Address) -> Option<&AtomicU64> {
        match self.io().window.words(at, 1) {
            Some([word]) => Some(word),
            _ => self.word_out_of_view(at),
        }
    }

    /// Returns a word that is not in view: one of a segment's last ones.
    #[cold]
    #[inline(never)]
    fn word_out_of_view(&self, at: Address) -> Option<&AtomicU64> {
        self.io().endpoint.immediate()?.words(at, 1).ok()?.first()
    }

    /// Called before a cached copy of an object is used in place of a READ: the simulator checks that the object is allocated.
    #[inline]
    fn check_cached(&self, at: Address, words: usize) -> Result<()> {
        match self.io().endpoint.virtual_time() {
            Some(sim) => Ok(sim.check_cached(at, words, self.task_number())?),
            None => Ok(()),
        }
    }

    /// One READ of `words` words at `at`.
    async fn read_words<R>(
        &self,
        at: Address,
        words: usize,
        decode: impl FnOnce(&[u64]) -> Result<R>,
    ) -> Result<R> {
        let mut chain = self.empty_chain();
        let slot = chain.read(at, words);
        let done = self.submit(chain).await?;
        decode(done.words(slot))
    }

    /// One READ of a few words.
    async fn read_array<const N: usize>(&self, at: Address) -> Result<[u64; N]> {
        self.read_words(at, N, |words| Ok(std::array::from_fn(|word| words[word]))).await
    }

    /// One READ of 8 bytes.
    #[inline]
    fn read_word(&self, at: Address) -> WordOperation<'_, Self, ReadWords> {
        WordOperation::new(self, at, ReadWords(1))
    }

    /// One WRITE of 8 bytes.
    #[inline]
    fn write_word(&self, at: Address, word: u64) -> WordOperation<'_, Self, WriteWord> {
        WordOperation::new(self, at, WriteWord(word))
    }

    /// One WRITE.
    #[inline]
    fn write_words<'w>(&'w self, at: Address, words: &'w [u64]) -> WordOperation<'w, Self, WriteWords<'w>> {
        WordOperation::new(self, at, WriteWords(words))
    }

    /// One WRITE, on an immediate fabric.
    #[inline(always)]
    #[allow(clippy::inline_always)] // the number of words is often a constant of a type
    fn write_here(&self, host: &Host, at: Address, words: &[u64]) -> Result<()> {
        self.writes_words(words);
        self.count_write(words.len());
        Ok(host.write(at, words)?)
    }

    /// One CAS. Returns the previous word.
    #[inline]
    fn compare_exchange_word(
        &self,
        at: Address,
        expected: u64,
        new: u64,
    ) -> WordOperation<'_, Self, ExchangeWord> {
        WordOperation::new(self, at, ExchangeWord { expected, new })
    }

    /// [Replaces](RawChain::replace) a word of this thread, on an immediate fabric. The address is valid: the thread has written the word.
    #[inline]
    fn replace_here(&self, host: &Host, at: Address, own: u64, new: u64) {
        self.accesses();
        self.count_write(1);
        self.posts_chain();
        let replaced = host.compare_exchange(at, own, new);
        debug_assert!(replaced.is_ok(), "the thread has written this word");
    }

    /// One FAA. Returns the previous word.
    #[inline]
    fn fetch_add_word(&self, at: Address, addend: u64) -> WordOperation<'_, Self, AddToWord> {
        WordOperation::new(self, at, AddToWord(addend))
    }

    #[inline]
    fn count_read(&self, words: usize) {
        self.io().counters.reads.add(words);
    }

    #[inline]
    fn count_write(&self, words: usize) {
        self.io().counters.writes.add(words);
    }

    /// Counts a CAS.
    #[inline]
    fn count_exchange(&self, has_failed: bool) {
        self.io().counters.exchanges.add(usize::from(has_failed));
    }

    /// Counts an FAA.
    #[inline]
    fn count_addition(&self) {
        count(&self.io().counters.faa, 1);
    }

    /// Counts operations that are not the first of their chain.
    #[inline]
    fn count_chained(&self, operations: u64) {
        count(&self.io().counters.chained, operations);
    }

    // ---- chains ------------------------------------------------------------------------------------------------

    /// Returns an empty chain, with reused buffers.
    fn empty_chain(&self) -> RawChain {
        self.io().chains.borrow_mut().pop().unwrap_or_default()
    }

    /// Counts a chain's operations.
    #[inline]
    fn count_chain(&self, chain: &RawChain) {
        debug_assert!(
            chain.ops().windows(2).all(|two| self.node_of(two[0].at()) == self.node_of(two[1].at())),
            "a chain goes to one memory node"
        );
        let counters = &self.io().counters;
        let Counts { reads, read_words, writes, write_words, cas, faa } = *chain.counts();
        counters.reads.add_all(reads, read_words);
        counters.writes.add_all(writes, write_words);
        count(&counters.cas, u64::from(cas));
        count(&counters.faa, u64::from(faa));
        count(&counters.chained, (chain.ops().len() as u64).saturating_sub(1));
    }

    /// Posts a chain before it returns. The future completes when the chain has; the chain takes effect even if the future is dropped.
    fn submit(&self, chain: RawChain) -> Submitted<'_, Self> {
        self.count_chain(&chain);
        self.writes_chain(&chain);
        self.poll_detached();
        self.posts_chain();
        let posted = Some(self.io().endpoint.post(chain, self.task_number()));
        Submitted { ct: self, posted, touches_memory: true }
    }

    /// Starts a timer of the simulator; `None` on other fabrics.
    fn timer(&self, start: impl FnOnce(&Sim, u32) -> Ticket) -> Option<Submitted<'_, Self>> {
        let ticket = start(self.io().endpoint.virtual_time()?, self.task_number());
        Some(Submitted { ct: self, posted: Some(Posted::InFlight(ticket)), touches_memory: false })
    }

    /// Polls a chain that was posted without a future.
    fn poll_posted(&self, ticket: Ticket) -> Poll<(RawChain, farfield_fabric::Result<()>)> {
        self.io().endpoint.poll(ticket)
    }

    /// Stops polling a chain that was posted without a future.
    fn forget_posted(&self, ticket: Ticket) {
        self.io().endpoint.forget(ticket);
    }

    /// Returns the backoff of a retry loop.
    fn retry(&self) -> Retry<'_, Self> {
        Retry::new(self)
    }

    /// Keeps a completed chain for its buffers.
    fn recycle(&self, mut chain: RawChain) {
        let mut chains = self.io().chains.borrow_mut();
        if chains.len() < MOST_CHAINS && chain.is_worth_keeping() {
            chain.clear();
            chains.push(chain);
        }
    }
}

impl<T: Thread> Operations for T {}
