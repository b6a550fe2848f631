//! `ComputeThread`: a thread's identity, its endpoint and everything it keeps to itself.
//!
//! The methods here are the runtime's data path. For a fabric whose operations are ready at once each is straight-line
//! code: check the address, touch the word, count. For any other the operation becomes a chain; the future that waits
//! for it holds a ticket, never a buffer, so it can be dropped at any moment.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::amends::Owed;
use super::left::Left;
use super::metrics::{Counters, count};
use super::run::Run;
use super::submitted::Submitted;
use super::tokens::{Tokens, failed_write};
use super::{Cluster, Metrics};
use crate::epoch::Limbo;
use crate::epoch::{Collector, Participant};
use crate::error::{Error, Result};
use crate::io::Endpoint;
use crate::io::Posted;
use crate::memory::eager::Eager;
use crate::memory::global::Step;
use crate::memory::heap::ThreadHeap;
use crate::memory::held_back::HeldBack;
use crate::memory::process::Process;
use crate::memory::reclaim::RETIRED_PER_ADVANCE;
use crate::place::ResultsPool;
use crate::task::Idle;
use crate::task::lineage::Lineage;
use farfield_fabric::Ticket;
use farfield_fabric::chain::{Chain, Op};
use farfield_fabric::host::Host;
use farfield_fabric::stall::Waits;
use farfield_sim::{Plant, Sim};
use farfield_words::Address;
use farfield_words::ThreadId;
use farfield_words::WORD_BYTES;

/// One thread's access to far memory.
///
/// [`Cluster::run`] makes one for each thread it starts. Everything that reaches far memory takes it, or a
/// [`Guard`](crate::Guard), which dereferences to it. It is not `Sync`: what a thread counts, caches and retires is its
/// own, and costs no synchronisation.
pub struct ComputeThread {
    pub(crate) endpoint: Endpoint,
    pub(crate) counters: Counters,
    pub(crate) epoch: Participant,
    /// What it shares with the threads of its process.
    pub(crate) process: Arc<Process>,
    /// The step that it takes for its process, and how many chains from now it takes the next.
    pub(crate) step: RefCell<Option<Step>>,
    pub(crate) until_step: Cell<u32>,
    heap: Rc<ThreadHeap>,
    /// What it has retired, and how many objects more before the next attempt to advance the epoch.
    pub(crate) limbo: RefCell<Limbo>,
    pub(crate) until_advance: Cell<u64>,
    /// How many retired bytes it may keep, and the epoch in which it had more.
    pub(crate) most_retired: u64,
    pub(crate) held_back: Cell<Option<HeldBack>>,
    /// What advances epochs in the simulator, if it does, and the epoch at which the thread last freed what had expired.
    pub(crate) eager: Option<Arc<Eager>>,
    pub(crate) freed_at: Cell<u64>,
    /// Chains that are not in use, kept for their buffers.
    chains: RefCell<Vec<Chain>>,
    /// Chains in flight that nobody waits for.
    pub(super) left: RefCell<Vec<Left>>,
    /// Exchanges that are to be posted again, and whether that is over because the thread ends.
    pub(super) owed: RefCell<Vec<Owed>>,
    pub(super) gives_up_amends: Cell<bool>,
    /// The first error of one whose errors are owed to the thread.
    pub(super) owed_error: Cell<Option<Error>>,
    /// Places for the results of [`Chain`](crate::Chain)s, in use or not.
    pub(crate) results: ResultsPool,
    rng: RefCell<SmallRng>,
    tokens: Tokens,
    /// True if the other threads of the run, and other processes, have been told that it has ended.
    has_departed: Cell<bool>,
    /// Its waker and its timers, where it polls its tasks itself.
    idle: OnceCell<Idle>,
    /// The task that runs, or ran last.
    task: Rc<Cell<u32>>,
    /// The tasks on the call stack, and the locks that tasks hold.
    pub(crate) lineage: Lineage,
    /// Its number among the threads of the run, and among those of them that are in this process.
    index: usize,
    index_here: usize,
    id: ThreadId,
    pub(crate) run: Arc<Run>,
    cluster: Cluster,
    /// Its waits, where stalls are reported.
    pub(crate) stalls: Option<Arc<Waits>>,
}

impl ComputeThread {
    pub(super) fn new(cluster: &Cluster, run: &Arc<Run>, index: usize) -> Self {
        let shared = &cluster.shared;
        let id = run.id_of(index);
        let process = Arc::clone(run.process_of(index));
        let task = Rc::new(Cell::new(0));
        let seed = shared.config.seed.wrapping_add(id.number().get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let stalls = shared.waits_of(|| {
            let pid = std::process::id();
            if run.is_in_background() {
                format!("the thread in the background ({id}) of pid {pid}")
            } else {
                format!("thread {} ({id}) of pid {pid}", run.threads_before() + index)
            }
        });
        Self {
            endpoint: shared.endpoint(seed, (!run.is_in_background()).then_some(index), stalls.clone()),
            counters: Counters::default(),
            epoch: Collector::register(&process.collector, index),
            process: Arc::clone(&process),
            step: RefCell::default(),
            until_step: Cell::default(),
            heap: Rc::new(ThreadHeap::new(
                Arc::clone(&shared.registry),
                Arc::clone(&process),
                shared.config.geometry,
                shared.config.policy,
                (run.threads_before() + index, run.number_of_process(index)),
                shared.watch(&task),
            )),
            limbo: RefCell::default(),
            until_advance: Cell::new(RETIRED_PER_ADVANCE),
            most_retired: shared.config.most_retired(),
            held_back: Cell::default(),
            eager: run.eager().cloned(),
            freed_at: Cell::default(),
            chains: RefCell::default(),
            left: RefCell::default(),
            owed: RefCell::default(),
            gives_up_amends: Cell::default(),
            owed_error: Cell::new(None),
            results: ResultsPool::default(),
            rng: RefCell::new(SmallRng::seed_from_u64(seed)),
            tokens: Tokens::new(id),
            has_departed: Cell::new(false),
            idle: OnceCell::new(),
            task,
            lineage: Lineage::default(),
            index: run.threads_before() + index,
            index_here: index,
            id,
            run: Arc::clone(run),
            cluster: cluster.clone(),
            stalls,
        }
    }

    /// The thread's number in its run: 0 to [`threads`](Self::threads) - 1.
    pub fn index(&self) -> usize {
        self.index
    }

    /// As [`index`](Self::index), among the threads of the run that are in this process.
    pub(crate) fn index_here(&self) -> usize {
        self.index_here
    }

    /// The number of the task that runs: its index among those of [`tasks`](Self::tasks), 0 outside.
    pub fn task(&self) -> usize {
        self.task.get() as usize
    }

    /// Says which task runs; gives which one did.
    #[inline]
    pub(crate) fn enter_task(&self, task: u32) -> u32 {
        self.task.replace(task)
    }

    /// How many compute threads the run has.
    pub fn threads(&self) -> usize {
        self.run.threads()
    }

    /// How many memory nodes the cluster has.
    pub fn nodes(&self) -> usize {
        usize::from(self.cluster.shared.config.geometry.nodes())
    }

    /// The thread's identity, unique in the cluster for as long as it exists.
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// The cluster that the thread belongs to.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The time since the cluster was connected, by the fabric's clock.
    pub fn now(&self) -> Duration {
        if let Some(sim) = self.endpoint.virtual_time() {
            sim.reads_clock();
        }
        self.endpoint.now()
    }

    /// The thread's random generator, seeded by the cluster's seed and the thread's identity.
    pub(crate) fn rng(&self) -> RefMut<'_, SmallRng> {
        self.rng.borrow_mut()
    }

    /// What this thread has asked of far memory so far.
    pub fn metrics(&self) -> Metrics {
        self.counters.snapshot(self.endpoint.doorbells(), self.heap.allocated.get(), self.heap.freed.get())
    }

    /// An odd word that names this thread, and that no other acquisition of the cluster uses until it is
    /// [settled](Self::settle_token). See [`tokens`](super::tokens).
    #[inline]
    pub(crate) fn token(&self) -> u64 {
        let shared = &self.cluster.shared;
        let token = self.tokens.issue(|| shared.begin_identities(1).ok().map(ThreadId::new));
        if self.has(Plant::SameToken) { failed_write(token) | 1 } else { token }
    }

    /// A token may be issued again: its attempt has failed, or what ends or undoes it has taken effect.
    #[inline]
    pub(crate) fn settle_token(&self, token: u64) {
        if !self.has(Plant::SameToken) {
            self.tokens.settle(token);
        }
    }

    pub(crate) fn heap(&self) -> &Rc<ThreadHeap> {
        &self.heap
    }

    /// The memory node that an address is on, if it is on any.
    pub(crate) fn node_of(&self, address: Address) -> u16 {
        self.cluster.shared.config.geometry.node_of(address.segment())
    }

    /// About how long a round trip takes where it is a real one, in nanoseconds; at least one.
    pub(crate) fn round_trip(&self) -> Option<u64> {
        self.endpoint.round_trip()
    }

    /// Whether a bug of ours is planted, which only simulators do.
    #[inline]
    pub(crate) fn has(&self, plant: Plant) -> bool {
        self.endpoint.virtual_time().is_some_and(|sim| sim.has(plant))
    }

    pub(crate) fn idle(&self) {
        self.endpoint.idle();
    }

    pub(crate) fn idle_state(&self) -> &Idle {
        self.idle.get_or_init(|| Idle::new(self.id, &self.process))
    }

    /// Sleeps: for waiting until somebody does something in another process, when nothing of this thread is under way.
    #[allow(clippy::unused_self)] // whoever has no thread has nothing to sleep with
    pub(crate) fn rest(&self, duration: Duration) {
        farfield_fabric::host::sleep(duration);
    }

    /// Tells the other threads of the run that the thread has ended, unless they have been told.
    pub(super) fn depart(&self) {
        if self.has_departed.replace(true) {
            return;
        }
        self.run.depart();
        if let Some(joint) = self.run.joint() {
            joint.depart(self);
        }
    }

    /// Waits until everything that this thread has posted has been executed. A thread that still writes must not count
    /// as gone.
    pub(super) async fn settle(&self) {
        self.give_up_amends();
        while self.endpoint.is_underway() {
            // Their completions are found by nobody else.
            self.go_on_with_step();
            self.look_after_left();
            self.yield_now().await;
        }
    }

    /// Waits for what a timer of the simulator makes of it: gives nothing where time is real.
    pub(crate) fn timer(&self, start: impl FnOnce(&Sim, u32) -> Ticket) -> Option<Submitted<'_>> {
        let ticket = start(self.endpoint.virtual_time()?, self.task.get());
        Some(Submitted { ct: self, posted: Some(Posted::InFlight(ticket)), touches_memory: false })
    }

    // ---- single operations -------------------------------------------------------------------------------------

    /// The host fabric, if this is it, with a READ of `words` words counted.
    #[inline]
    pub(crate) fn host_for_read(&self, words: usize) -> Option<&Host> {
        let host = self.endpoint.immediate()?;
        self.count_read(words);
        Some(host)
    }

    /// What a handle knew of an object is about to be used in place of a READ: the simulator looks whether it lives.
    #[inline]
    pub(crate) fn check_cached(&self, at: Address, words: usize) -> Result<()> {
        match self.endpoint.virtual_time() {
            Some(sim) => Ok(sim.check_cached(at, words, self.task.get())?),
            None => Ok(()),
        }
    }

    /// One READ of `words` words at `at`.
    pub(crate) async fn read_words<R>(
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
    pub(crate) async fn read_array<const N: usize>(&self, at: Address) -> Result<[u64; N]> {
        self.read_words(at, N, |words| Ok(std::array::from_fn(|word| words[word]))).await
    }

    /// One READ of 8 bytes.
    #[inline]
    pub(crate) async fn read_word(&self, at: Address) -> Result<u64> {
        if let Some(host) = self.host_for_read(1) {
            return Ok(host.read_word(at)?);
        }
        self.read_words(at, 1, |words| Ok(words[0])).await
    }

    /// One WRITE of 8 bytes.
    #[inline]
    pub(crate) async fn write_word(&self, at: Address, word: u64) -> Result<()> {
        self.write_words(at, &[word]).await
    }

    /// One WRITE.
    #[inline]
    pub(crate) async fn write_words(&self, at: Address, words: &[u64]) -> Result<()> {
        if let Some(host) = self.endpoint.immediate() {
            self.veto_words(words);
            self.count_write(words.len());
            return Ok(host.write(at, words)?);
        }
        let mut chain = self.empty_chain();
        chain.write(at, words);
        self.submit(chain).await.map(drop)
    }

    /// One CAS; gives what was there before.
    #[inline]
    pub(crate) async fn compare_exchange_word(&self, at: Address, expected: u64, new: u64) -> Result<u64> {
        if let Some(host) = self.endpoint.immediate() {
            self.veto_words(&[new]);
            count(&self.counters.cas, 1);
            let old = host.compare_exchange(at, expected, new)?;
            count(&self.counters.cas_failed, u64::from(old != expected));
            return Ok(old);
        }
        let mut chain = self.empty_chain();
        let slot = chain.compare_exchange(at, expected, new);
        Ok(self.submit(chain).await?.word(&slot))
    }

    /// One FAA; gives what was there before.
    #[inline]
    pub(crate) async fn fetch_add_word(&self, at: Address, addend: u64) -> Result<u64> {
        if let Some(host) = self.endpoint.immediate() {
            self.hear_of_sweep();
            count(&self.counters.faa, 1);
            return Ok(host.fetch_add(at, addend)?);
        }
        let mut chain = self.empty_chain();
        let slot = chain.fetch_add(at, addend);
        Ok(self.submit(chain).await?.word(&slot))
    }

    #[inline]
    fn count_read(&self, words: usize) {
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, (words * WORD_BYTES) as u64);
    }

    #[inline]
    fn count_write(&self, words: usize) {
        count(&self.counters.writes, 1);
        count(&self.counters.write_bytes, (words * WORD_BYTES) as u64);
    }

    // ---- chains ------------------------------------------------------------------------------------------------

    /// An empty chain, with the buffers of one that is done.
    pub(crate) fn empty_chain(&self) -> Chain {
        self.chains.borrow_mut().pop().unwrap_or_default()
    }

    /// Posts a chain, at once; the future waits for it. What is posted takes effect, also if the future is dropped.
    pub(crate) fn submit(&self, chain: Chain) -> Submitted<'_> {
        debug_assert!(
            chain.ops().windows(2).all(|two| self.node_of(two[0].at()) == self.node_of(two[1].at())),
            "a chain goes to one memory node"
        );
        for op in chain.ops() {
            match op {
                Op::Read { slot, .. } => self.count_read(slot.len()),
                Op::Write { slot, .. } => self.count_write(slot.len()),
                Op::CompareExchange { .. } => count(&self.counters.cas, 1),
                Op::FetchAdd { .. } => count(&self.counters.faa, 1),
            }
        }
        count(&self.counters.riders, (chain.ops().len() as u64).saturating_sub(1));
        self.veto_written(&chain);
        self.look_after_left();
        self.count_towards_step();
        let posted = Some(self.endpoint.post(chain, self.task.get()));
        Submitted { ct: self, posted, touches_memory: true }
    }

    /// Looks whether a chain has completed that was posted without a future.
    pub(crate) fn poll_posted(&self, ticket: Ticket) -> Poll<(Chain, Result<()>)> {
        self.endpoint.poll(ticket)
    }

    /// Gives up looking at one.
    pub(crate) fn forget_posted(&self, ticket: Ticket) {
        self.endpoint.forget(ticket);
    }

    pub(crate) fn recycle(&self, mut chain: Chain) {
        let mut chains = self.chains.borrow_mut();
        if chains.len() < 64 && chain.is_worth_keeping() {
            chain.clear();
            chains.push(chain);
        }
    }
}

impl fmt::Debug for ComputeThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputeThread")
            .field("index", &self.index)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Drop for ComputeThread {
    /// The thread leaves its run: nobody may wait for it any more, and what it had retired is left to the others.
    fn drop(&mut self) {
        self.abandon_step();
        self.give_up_amends();
        for Left { ticket, pin, .. } in self.left.take() {
            self.leave_epoch(pin);
            self.endpoint.forget(ticket);
        }
        self.leave_epochs();
        self.hear_of_sweep();
        if self.endpoint.virtual_time().is_none_or(|sim| !sim.has_lost_memory()) {
            self.cluster.shared.adopt(self.limbo.take());
        }
        self.depart();
        self.run.account(self.index_here, self.metrics());
        for identity in self.tokens.take_further() {
            self.cluster.shared.end_identity(identity);
        }
    }
}
