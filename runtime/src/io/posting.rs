//! A thread's I/O: single operations, chains, and what a thread does around them.
//!
//! An [`Io`] is the part of a compute thread that posts operations and finds their completions. It knows fabrics, tokens and local epochs; it
//! knows nothing of memory, members or sweeps. What those do around an operation they do through [`Thread`], which the layer above
//! implements for the type that has an `Io` in it: a chain that is posted counts towards an epoch's step, a word that is written may be one that a
//! sweep must hear of, and a thread that gives way looks whether it is asked for something.
//!
//! Costs: an operation on the host fabric is the access itself, a counter, and for writes one predictable branch, whether memory is swept. An
//! operation on any other fabric is a chain, in buffers that are used again.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use farfield_fabric::chain::{Chain, Op};
use farfield_fabric::host::Host;
use farfield_fabric::stall::{DescribeWait, Waits};
use farfield_fabric::{Posted, Ticket};
use farfield_sim::{Plant, Sim};
use farfield_words::{Address, Geometry, ThreadId, WORD_BYTES};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::compensation::DueExchange;
use super::detached::{Detached, Detaching};
use super::endpoint::Endpoint;
use super::identities::Identities;
use super::idle::{Idle, Sleepers};
use super::metrics::{Counters, count};
use super::retry::Retry;
use super::submit::Submitted;
use super::task_stack::TaskStack;
use super::tokens::{Tokens, failed_write};
use super::waits::Purpose;
use crate::epoch::{Participant, Pin};
use crate::error::{Error, Result};

/// The most chains that a thread keeps for their buffers.
const MOST_CHAINS: usize = 64;

/// A compute thread as its I/O sees it: what the layers above do around operations.
pub(crate) trait Thread: Sized + 'static {
    /// The thread's I/O.
    fn io(&self) -> &Io<Self>;

    /// The thread is about to write words: a sweep must hear of those that may be links.
    fn writes_words(&self, words: &[u64]);

    /// As [`writes_words`](Self::writes_words), of all that a chain writes.
    fn writes_chain(&self, chain: &Chain);

    /// The thread is about to access far memory without writing links.
    fn accesses(&self);

    /// A chain is about to be posted.
    fn posts_chain(&self);

    /// The thread is about to wait for so many round trips.
    fn waits_for_round_trips(&self, round_trips: u64);

    /// The thread gives way, or is about to pin a guard: it does what it has been asked for.
    fn serves_requests(&self);

    /// Goes on with what the thread does in the background and has posted.
    fn drives_background(&self);

    /// Protects what guards of the thread protect, until [`unprotects`](Self::unprotects).
    fn protects(&self) -> Pin;

    /// The protection is over.
    fn unprotects(&self, pin: Pin);

    /// What a wait is for, as a function that says so when a report is made.
    fn describes(&self, purpose: Purpose<'_>) -> DescribeWait;
}

/// The I/O of a compute thread of type `T`.
pub(crate) struct Io<T: Thread> {
    pub(crate) endpoint: Endpoint,
    pub(crate) counters: Counters,
    /// The thread's slot in its process's epochs.
    pub(crate) epoch: Participant,
    /// Chains that are not in use, kept for their buffers.
    chains: RefCell<Vec<Chain>>,
    /// Chains in flight that no future waits for.
    pub(super) detached: RefCell<Vec<Detached<T>>>,
    /// Exchanges that are to be posted again, and whether that is over because the thread ends.
    pub(super) due: RefCell<Vec<DueExchange>>,
    pub(super) gives_up_compensations: Cell<bool>,
    /// The first error of an operation without a future, which the next operation returns.
    pub(super) deferred_error: Cell<Option<Error>>,
    rng: RefCell<SmallRng>,
    pub(crate) tokens: Tokens,
    identities: Arc<Identities>,
    /// The task that runs, or ran last.
    task: Rc<Cell<u32>>,
    /// The tasks on the call stack, and the locks that tasks hold.
    pub(crate) task_stack: TaskStack,
    id: ThreadId,
    /// The threads that may wait for the same thing: those of the run.
    contenders: usize,
    pub(crate) geometry: Geometry,
    /// Its waits, where stalls are reported.
    pub(crate) stalls: Option<Arc<Waits>>,
    /// Its waker and its timers, where it polls its tasks itself.
    idle: OnceCell<Idle>,
    sleepers: Arc<Sleepers>,
}

/// What a thread's I/O is made of.
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
    /// The threads of the run.
    pub(crate) contenders: usize,
}

impl<T: Thread> Io<T> {
    pub(crate) fn new(parts: IoParts) -> Self {
        let IoParts { endpoint, epoch, identities, sleepers, stalls, task, id, geometry, seed, contenders } =
            parts;
        Self {
            endpoint,
            counters: Counters::default(),
            epoch,
            chains: RefCell::default(),
            detached: RefCell::default(),
            due: RefCell::default(),
            gives_up_compensations: Cell::default(),
            deferred_error: Cell::new(None),
            rng: RefCell::new(SmallRng::seed_from_u64(seed)),
            tokens: Tokens::new(id),
            identities,
            task,
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

/// What every layer above does with a thread's I/O.
pub(crate) trait Operations: Thread {
    // ---- the thread --------------------------------------------------------------------------------------------

    /// The thread's identity.
    fn id(&self) -> ThreadId {
        self.io().id
    }

    /// The number of the task that runs; 0 outside of tasks.
    #[inline]
    fn task_number(&self) -> u32 {
        self.io().task.get()
    }

    /// Says which task runs; returns which one did.
    #[inline]
    fn enter_task(&self, task: u32) -> u32 {
        self.io().task.replace(task)
    }

    /// True if the process has no other compute thread.
    fn is_only_thread(&self) -> bool {
        self.io().identities.has_at_most_one()
    }

    /// The threads of the run.
    fn contenders(&self) -> usize {
        self.io().contenders
    }

    /// The memory node that an address is on, if it is on any.
    fn node_of(&self, address: Address) -> u16 {
        self.io().geometry.node_of(address.segment())
    }

    /// The thread's random generator.
    fn rng(&self) -> RefMut<'_, SmallRng> {
        self.io().rng.borrow_mut()
    }

    /// The time since the cluster was connected.
    fn time(&self) -> std::time::Duration {
        if let Some(sim) = self.io().endpoint.virtual_time() {
            sim.reads_clock();
        }
        self.io().endpoint.now()
    }

    /// About how long a round trip takes where it is a real one, in nanoseconds; at least one.
    fn round_trip(&self) -> Option<u64> {
        self.io().endpoint.round_trip()
    }

    /// True if a bug of the library's is planted, which only simulators do.
    #[inline]
    fn has(&self, plant: Plant) -> bool {
        self.io().endpoint.virtual_time().is_some_and(|sim| sim.has(plant))
    }

    /// What the thread sleeps with.
    fn idle_state(&self) -> &Idle {
        let io = self.io();
        io.idle.get_or_init(|| Idle::new(io.id, &io.sleepers))
    }

    /// An odd word that names this thread, and that no other acquisition of the cluster uses until it is
    /// [settled](Self::settle_token). See [`tokens`](super::tokens).
    #[inline]
    fn token(&self) -> u64 {
        let io = self.io();
        let token = io.tokens.issue(|| io.identities.begin(1).ok().map(ThreadId::new));
        if self.has(Plant::SameToken) { failed_write(token) | 1 } else { token }
    }

    /// A token may be issued again: its attempt has failed, or what ends or undoes it has taken effect.
    #[inline]
    fn settle_token(&self, token: u64) {
        if !self.has(Plant::SameToken) {
            self.io().tokens.settle(token);
        }
    }

    // ---- single operations -------------------------------------------------------------------------------------

    /// The host fabric, if this is it, with a READ of `words` words counted.
    #[inline]
    fn host_for_read(&self, words: usize) -> Option<&Host> {
        let host = self.io().endpoint.immediate()?;
        self.count_read(words);
        Some(host)
    }

    /// A cached copy of an object is about to be used in place of a READ: the simulator looks whether the object lives.
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
        decode(done.words(&slot))
    }

    /// One READ of a few words.
    async fn read_array<const N: usize>(&self, at: Address) -> Result<[u64; N]> {
        self.read_words(at, N, |words| Ok(std::array::from_fn(|word| words[word]))).await
    }

    /// One READ of 8 bytes.
    #[inline]
    async fn read_word(&self, at: Address) -> Result<u64> {
        if let Some(host) = self.host_for_read(1) {
            return Ok(host.read_word(at)?);
        }
        self.read_words(at, 1, |words| Ok(words[0])).await
    }

    /// One WRITE of 8 bytes.
    #[inline]
    async fn write_word(&self, at: Address, word: u64) -> Result<()> {
        self.write_words(at, &[word]).await
    }

    /// One WRITE.
    #[inline]
    async fn write_words(&self, at: Address, words: &[u64]) -> Result<()> {
        if let Some(host) = self.io().endpoint.immediate() {
            self.writes_words(words);
            self.count_write(words.len());
            return Ok(host.write(at, words)?);
        }
        let mut chain = self.empty_chain();
        chain.write(at, words);
        self.submit(chain).await.map(drop)
    }

    /// One CAS; returns what was there before.
    #[inline]
    async fn compare_exchange_word(&self, at: Address, expected: u64, new: u64) -> Result<u64> {
        if let Some(host) = self.io().endpoint.immediate() {
            self.writes_words(&[new]);
            count(&self.io().counters.cas, 1);
            let old = host.compare_exchange(at, expected, new)?;
            count(&self.io().counters.cas_failed, u64::from(old != expected));
            return Ok(old);
        }
        let mut chain = self.empty_chain();
        let slot = chain.compare_exchange(at, expected, new);
        Ok(self.submit(chain).await?.word(&slot))
    }

    /// One FAA; returns what was there before.
    #[inline]
    async fn fetch_add_word(&self, at: Address, addend: u64) -> Result<u64> {
        if let Some(host) = self.io().endpoint.immediate() {
            self.accesses();
            count(&self.io().counters.faa, 1);
            return Ok(host.fetch_add(at, addend)?);
        }
        let mut chain = self.empty_chain();
        let slot = chain.fetch_add(at, addend);
        Ok(self.submit(chain).await?.word(&slot))
    }

    #[inline]
    fn count_read(&self, words: usize) {
        let counters = &self.io().counters;
        count(&counters.reads, 1);
        count(&counters.read_bytes, (words * WORD_BYTES) as u64);
    }

    #[inline]
    fn count_write(&self, words: usize) {
        let counters = &self.io().counters;
        count(&counters.writes, 1);
        count(&counters.write_bytes, (words * WORD_BYTES) as u64);
    }

    // ---- chains ------------------------------------------------------------------------------------------------

    /// An empty chain, with the buffers of one that is done.
    fn empty_chain(&self) -> Chain {
        self.io().chains.borrow_mut().pop().unwrap_or_default()
    }

    /// Posts a chain, in this call; the future waits for it. What is posted takes effect, also if the future is dropped.
    fn submit(&self, chain: Chain) -> Submitted<'_, Self> {
        debug_assert!(
            chain.ops().windows(2).all(|two| self.node_of(two[0].at()) == self.node_of(two[1].at())),
            "a chain goes to one memory node"
        );
        let counters = &self.io().counters;
        for op in chain.ops() {
            match op {
                Op::Read { slot, .. } => self.count_read(slot.len()),
                Op::Write { slot, .. } => self.count_write(slot.len()),
                Op::CompareExchange { .. } => count(&counters.cas, 1),
                Op::FetchAdd { .. } => count(&counters.faa, 1),
            }
        }
        count(&counters.chained, (chain.ops().len() as u64).saturating_sub(1));
        self.writes_chain(&chain);
        self.poll_detached();
        self.posts_chain();
        let posted = Some(self.io().endpoint.post(chain, self.task_number()));
        Submitted { ct: self, posted, touches_memory: true }
    }

    /// Waits until a timer of the simulator; `None` where time is real.
    fn timer(&self, start: impl FnOnce(&Sim, u32) -> Ticket) -> Option<Submitted<'_, Self>> {
        let ticket = start(self.io().endpoint.virtual_time()?, self.task_number());
        Some(Submitted { ct: self, posted: Some(Posted::InFlight(ticket)), touches_memory: false })
    }

    /// Looks whether a chain has completed that was posted without a future.
    fn poll_posted(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
        self.io().endpoint.poll(ticket).map(|(chain, result)| (chain, result.map_err(Error::from)))
    }

    /// Gives up looking at one.
    fn forget_posted(&self, ticket: Ticket) {
        self.io().endpoint.forget(ticket);
    }

    /// What to wait with between attempts of a retry loop.
    fn retry(&self) -> Retry<'_, Self> {
        Retry::new(self)
    }

    /// Keeps a chain for its buffers.
    fn recycle(&self, mut chain: Chain) {
        let mut chains = self.io().chains.borrow_mut();
        if chains.len() < MOST_CHAINS && chain.is_worth_keeping() {
            chain.clear();
            chains.push(chain);
        }
    }
}

impl<T: Thread> Operations for T {}
