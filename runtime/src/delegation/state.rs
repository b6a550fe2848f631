//! The state of a thread's delegation: its desk, its pairs, its handles, and the work that waits for far memory.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::task::Waker;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::caller::{Blocked, Caller, State, Waiter};
use super::desk::{Desk, discard};
use super::looks::{Look, Looks};
use super::mirror::Mirror;
use super::slots::{Here, RequestHead, SLOT_WORDS, number};
use super::way::{Give, Hold, Holds, Whereabouts};
use crate::io::operations::*;
use crate::memory::worker::{Service, Worker};
use farfield_fabric::host::Host;
use farfield_sim::Plant;
use farfield_words::{Address, ThreadId};

/// How long a thread sleeps without a look at anything: a client that dies can not wake it, and one of another process that stops does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How long a thread does not try again to connect to an address.
#[cfg(target_os = "linux")]
const UNREACHABLE: Duration = Duration::from_secs(60);
/// The most lists of words that a thread keeps.
const MOST_SCRATCH: usize = 64;

/// Work of the thread that takes round trips, or time.
pub(super) enum Job {
    /// Says hello to a trustee.
    Open(Rc<Caller>),
    /// Reads the arguments of a pair's batch.
    Fetch(usize),
    /// Stores the results of a pair's batch.
    Store(usize),
    /// Reads a result.
    Read { at: Address, words: usize, then: Then },
    /// Looks whether other threads live.
    Watch,
    /// Reads the mailboxes of the desk.
    Serve,
    /// Reads those of pairs that wait for answers.
    Await,
}

/// Receives the words of a result; `None` if they can not be read.
pub(super) type Then = Box<dyn FnOnce(&Rc<Delegation>, Option<Vec<u64>>)>;

/// A call of a function of this thread's own value, from delegated code.
type OwnCall = Box<dyn FnOnce(&Rc<Delegation>)>;

/// The delegation of a thread.
pub(super) struct Delegation {
    this: Weak<Self>,
    me: ThreadId,
    rng: RefCell<SmallRng>,
    desk: OnceCell<Desk>,
    callers: RefCell<Vec<Rc<Caller>>>,
    holds: RefCell<Holds>,
    /// Edges that the thread has no handles of any more.
    dropped: RefCell<Vec<(Whereabouts, u128)>>,
    jobs: RefCell<Vec<Job>>,
    /// Wakes the future that begins jobs.
    waker: RefCell<Option<Waker>>,
    own_calls: RefCell<VecDeque<OwnCall>>,
    /// Empty lists of words, for requests and answers: so neither allocates.
    scratch: RefCell<Vec<Vec<u64>>>,
    mirror: Mirror,
    looks: Looks,
    /// The answers, since the thread was last woken, for futures that its own waker wakes.
    told: Cell<u32>,
    /// True while a round is under way: delegated code may lead to another one.
    is_serving: Cell<bool>,
    is_watching: Cell<bool>,
    /// True once the thread has ended.
    pub(super) is_closed: Cell<bool>,
    /// The addresses of trustees to which no line could be had, and since when.
    unreachable: RefCell<Vec<(SocketAddr, Duration)>>,
    /// The planted bug.
    plant: Plant,
}

impl Delegation {
    /// Returns the state of a thread, which is made at its first use.
    pub(super) fn of(worker: &Worker) -> Rc<Self> {
        Self::of_service(Self::service(worker)).expect("a thread has no other service")
    }

    /// Returns the copy of a thread's mailboxes.
    pub(super) fn mirror_of(worker: &Worker) -> &Mirror {
        let delegation = Self::service(worker).as_any().downcast_ref::<Self>();
        &delegation.expect("a thread has no other service").mirror
    }

    pub(super) fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns whether a line to this address may be had.
    #[cfg(target_os = "linux")]
    pub(super) fn may_reach(&self, address: SocketAddr, now: Duration) -> bool {
        let mut unreachable = self.unreachable.borrow_mut();
        unreachable.retain(|(_, since)| now.saturating_sub(*since) < UNREACHABLE);
        !unreachable.iter().any(|(other, _)| *other == address)
    }

    /// No line to this address could be had.
    #[cfg(target_os = "linux")]
    pub(super) fn can_not_reach(&self, address: SocketAddr, now: Duration) {
        tracing::info!(%address, "no connection to a trustee: its requests go over a memory node");
        self.unreachable.borrow_mut().push((address, now));
    }

    fn service(worker: &Worker) -> &Rc<dyn Service> {
        worker.service_or(|| {
            let seed = worker.rng().next_u64();
            Rc::new_cyclic(|this| Self {
                this: Weak::clone(this),
                me: worker.id(),
                rng: RefCell::new(SmallRng::seed_from_u64(seed)),
                desk: OnceCell::new(),
                callers: RefCell::default(),
                holds: RefCell::default(),
                dropped: RefCell::default(),
                jobs: RefCell::default(),
                waker: RefCell::default(),
                own_calls: RefCell::default(),
                scratch: RefCell::default(),
                mirror: Mirror::numbered_from(seed),
                looks: Looks::default(),
                told: Cell::default(),
                is_serving: Cell::default(),
                is_watching: Cell::default(),
                is_closed: Cell::default(),
                unreachable: RefCell::default(),
                plant: Plant::ALL.iter().copied().find(|plant| worker.has(*plant)).unwrap_or(Plant::None),
            })
        })
    }

    /// Returns the state of a thread, if it has one.
    pub(super) fn of_service(service: &Rc<dyn Service>) -> Option<Rc<Self>> {
        service.as_any().downcast_ref::<Self>()?.this.upgrade()
    }

    /// Returns whether this bug is planted.
    pub(super) fn has(&self, plant: Plant) -> bool {
        self.plant == plant
    }

    pub(super) fn me(&self) -> ThreadId {
        self.me
    }

    pub(super) fn desk(&self) -> Option<&Desk> {
        self.desk.get()
    }

    pub(super) fn set_desk(&self, desk: Desk) {
        // Only one task takes a desk: see `entrust`.
        let _ = self.desk.set(desk);
        self.stir();
        self.watch();
    }

    /// The thread may have work: see `looks`.
    #[inline]
    pub(super) fn stir(&self) {
        self.looks.stir();
    }

    /// A future has its answer. The next round wakes the thread, once for all of them.
    #[inline]
    pub(super) fn wake(&self) {
        self.told.set(self.told.get() + 1);
        self.stir();
    }

    /// The future that is being polled takes its answer. The thread need not be woken if it is the only one.
    #[inline]
    pub(super) fn heeds_one(&self) {
        if self.told.get() == 1 {
            self.told.set(0);
        }
    }

    /// Returns whether futures have answers of which the thread was not told yet. All of them are polled now.
    pub(super) fn takes_told(&self) -> bool {
        self.told.replace(0) > 0
    }

    pub(super) fn begin(&self, job: Job) {
        self.stir();
        self.jobs.borrow_mut().push(job);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Returns whether no client has sent a request lately.
    #[inline]
    pub(super) fn serves_nobody(&self) -> bool {
        self.desk.get().is_none_or(Desk::is_idle)
    }

    /// Sets the waker of the thread's future, which begins jobs.
    pub(super) fn set_waker(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        match &mut *kept {
            Some(kept) => kept.clone_from(waker),
            None => *kept = Some(waker.clone()),
        }
    }

    pub(super) fn take_jobs(&self) -> Vec<Job> {
        std::mem::take(&mut *self.jobs.borrow_mut())
    }

    /// The thread's own words that begin here are free.
    pub(super) fn removes_mailbox(&self, at: Address) {
        self.mirror.remove(at);
    }

    fn watch(&self) {
        if !self.is_watching.replace(true) {
            self.begin(Job::Watch);
        }
    }

    #[inline]
    pub(super) fn scratch(&self) -> Vec<u64> {
        self.scratch.borrow_mut().pop().unwrap_or_default()
    }

    #[inline]
    pub(super) fn keep_scratch(&self, mut words: Vec<u64>) {
        let mut scratch = self.scratch.borrow_mut();
        if scratch.len() < MOST_SCRATCH && words.capacity() <= SLOT_WORDS {
            words.clear();
            scratch.push(words);
        }
    }

    // ---- pairs -------------------------------------------------------------------------------------------------

    /// As [`caller`](Self::caller). `place` is where it was found last.
    #[allow(clippy::inline_always)] // for each request
    #[inline(always)]
    pub(super) fn caller_at(&self, of: &Whereabouts, place: &Cell<usize>) -> Rc<Caller> {
        let found = self.callers.borrow().get(place.get()).map(Rc::clone);
        match found {
            Some(caller) if caller.trustee == of.trustee && !caller.is_retired.get() => caller,
            _ => self.other_caller(of, place),
        }
    }

    #[cold]
    fn other_caller(&self, of: &Whereabouts, place: &Cell<usize>) -> Rc<Caller> {
        let caller = self.caller(of);
        let found = self.callers.borrow().iter().position(|other| Rc::ptr_eq(other, &caller));
        place.set(found.unwrap_or(0));
        caller
    }

    /// Returns the pair with a trustee. It is opened if there is none.
    pub(super) fn caller(&self, of: &Whereabouts) -> Rc<Caller> {
        let mut callers = self.callers.borrow_mut();
        if let Some(caller) =
            callers.iter().find(|caller| caller.trustee == of.trustee && !caller.is_retired.get())
        {
            return Rc::clone(caller);
        }
        let caller = Rc::new(Caller::new(self.this.clone(), of.trustee, of.desk));
        callers.push(Rc::clone(&caller));
        self.begin(Job::Open(Rc::clone(&caller)));
        self.watch();
        caller
    }

    /// Forgets a pair that could not be opened.
    pub(super) fn forget(&self, caller: &Rc<Caller>) {
        self.callers.borrow_mut().retain(|other| !Rc::ptr_eq(other, caller));
    }

    /// Returns the thread's pairs.
    pub(super) fn callers(&self) -> Vec<Rc<Caller>> {
        self.callers.borrow().clone()
    }

    /// Adds a call of a value of this thread's own, for when no delegated code runs.
    pub(super) fn call_later(&self, call: OwnCall) {
        self.stir();
        self.own_calls.borrow_mut().push_back(call);
    }

    // ---- handles -----------------------------------------------------------------------------------------------

    pub(super) fn fresh_edge(&self) -> u128 {
        let mut rng = self.rng.borrow_mut();
        loop {
            let edge = u128::from(rng.next_u64()) | u128::from(rng.next_u64()) << 64;
            if edge != 0 {
                return edge;
            }
        }
    }

    /// Adds an edge to the thread's handles of a value.
    pub(super) fn hold(&self, of: Whereabouts, edge: u128) -> Rc<Hold> {
        let mut holds = self.holds.borrow_mut();
        if let Some(hold) = holds.get(&(of.trustee, of.object)).and_then(Weak::upgrade) {
            hold.edge.set(hold.edge.get() ^ edge);
            return hold;
        }
        let delegation = self.this.upgrade().expect("it is in use");
        let hold = Rc::new(Hold { of, edge: Cell::new(edge), caller: Cell::new(0), delegation });
        holds.insert((of.trustee, of.object), Rc::downgrade(&hold));
        hold
    }

    /// The thread's last handle of a value was dropped.
    pub(super) fn dropped(&self, of: Whereabouts, edge: u128) {
        if !self.is_closed.get() {
            self.stir();
            self.dropped.borrow_mut().push((of, edge));
        }
    }

    /// An edge of a value of this thread's own passes from thread to thread.
    pub(super) fn gives_own(&self, give: Give) {
        if let Some(desk) = self.desk.get() {
            let unwanted = desk.objects.borrow_mut().give(give.of.object, give.from, give.to, give.edge);
            discard(unwanted);
        }
    }

    /// Tells another trustee of an edge that passes. `blocked` counts until it is answered.
    pub(super) fn tell_of(&self, give: Give, blocked: &Blocked) {
        blocked.set(blocked.get() + 1);
        let blocked = Rc::clone(blocked);
        let thread = |thread: Option<ThreadId>| thread.map_or(0, |thread| thread.number().get());
        let args = [thread(give.from), thread(give.to), give.edge as u64, (give.edge >> 64) as u64];
        // If the trustee has gone, so has the value.
        let told = move |_: &Rc<Self>, _| blocked.set(blocked.get() - 1);
        self.ask(&give.of, number::GIVE, &args, Waiter::Then(Box::new(told)));
    }

    /// Sends a request to a trustee itself. Returns its pair, and the number of the waiter.
    pub(super) fn ask(
        &self,
        of: &Whereabouts,
        function: u16,
        args: &[u64],
        waiter: Waiter,
    ) -> (Rc<Caller>, u32) {
        let caller = self.caller(of);
        let head = RequestHead { function, object: of.object, words: args.len() as u8, is_far: false };
        let waiter = self.this.upgrade().map_or(0, |this| caller.enqueue(&this, head, args, None, waiter));
        (caller, waiter)
    }

    /// Tells trustees of values of which the thread has no handle any more.
    fn send_dropped(&self) -> bool {
        let dropped = std::mem::take(&mut *self.dropped.borrow_mut());
        for &(of, edge) in &dropped {
            {
                let mut holds = self.holds.borrow_mut();
                if holds.get(&(of.trustee, of.object)).is_some_and(|hold| hold.strong_count() == 0) {
                    holds.remove(&(of.trustee, of.object));
                }
            }
            if of.trustee != self.me {
                let args = [edge as u64, (edge >> 64) as u64];
                self.ask(&of, number::DROP, &args, Waiter::Then(Box::new(|_, _| ())));
            } else if let Some(desk) = self.desk.get() {
                let unwanted = desk.objects.borrow_mut().drop_edge(of.object, None, edge);
                discard(unwanted);
            }
        }
        !dropped.is_empty()
    }

    // ---- rounds ------------------------------------------------------------------------------------------------

    /// Executes requests of others, passes on answers, and sends what waits. Returns whether there was anything.
    pub(super) fn go_round(&self, worker: &Worker) -> bool {
        let mut has_changes = self.mirror.take_changes(worker);
        #[cfg(target_os = "linux")]
        if !self.is_serving.get() {
            // Otherwise a pair is being served, and not found.
            has_changes |= self.take_notes(worker);
        }
        if has_changes {
            self.stir();
        }
        let look = self.looks.look();
        if look == Look::Nothing || self.is_closed.get() || self.is_serving.replace(true) {
            return has_changes;
        }
        let has_served = match look {
            Look::Slot { pair, index } => self.serve_slot(worker, pair, index),
            Look::Nothing | Look::Something => false,
        };
        let done = has_served || self.serve_once(worker);
        self.is_serving.set(false);
        done | has_changes
    }

    /// Serves a pair in whose slot a look has found a batch. Returns whether that was all.
    #[inline]
    fn serve_slot(&self, worker: &Worker, pair: usize, index: usize) -> bool {
        let (Some(this), Some(desk)) = (self.this.upgrade(), self.desk.get()) else { return false };
        let next = desk.serve_slot(&this, worker, Here::of(worker), pair);
        match next {
            Some(next) => self.looks.served(index, next),
            None => self.stir(),
        }
        next.is_some()
    }

    fn serve_once(&self, worker: &Worker) -> bool {
        let (Some(this), here) = (self.this.upgrade(), Here::of(worker)) else { return false };
        if let Some(sim) = worker.io.endpoint.virtual_time()
            && sim.is_dead()
        {
            return false;
        }
        let mut has_worked = false;
        if worker.io.endpoint.is_asynchronous() {
            // A chain that has completed may have kept a pair's words from being free.
            let before = worker.io.detached_chains();
            worker.poll_detached();
            has_worked = worker.io.detached_chains() < before;
        }
        if let Some(desk) = self.desk.get() {
            has_worked |= desk.serve(&this, worker, here);
            loop {
                let call = self.own_calls.borrow_mut().pop_front();
                let Some(call) = call else { break };
                call(&this);
                has_worked = true;
            }
        }
        let mut place = 0;
        loop {
            let caller = self.callers.borrow().get(place).cloned();
            let Some(caller) = caller else { break };
            if caller.is_waiting() || caller.has_line() {
                has_worked |= caller.take_answers(&this, here);
            }
            #[cfg(target_os = "linux")]
            if caller.is_called() {
                has_worked |= caller.connect(&this, worker);
            }
            place += 1;
        }
        // After the answers, whose callbacks may have dropped handles and added requests.
        if !self.dropped.borrow().is_empty() {
            has_worked |= self.send_dropped();
        }
        for caller in &*self.callers.borrow() {
            if caller.state.get() == State::Open && caller.is_busy() {
                has_worked |= caller.flush(worker, here);
            }
        }
        if let Here::Mirrored(mirror) = here
            && self.callers.borrow().iter().any(|caller| caller.awaits_mail())
            && mirror.awaits_answers()
        {
            self.begin(Job::Await);
        }
        has_worked |= !self.jobs.borrow().is_empty();
        if self.told.replace(0) > 0 {
            worker.idle_state().waker().wake_by_ref();
            has_worked = true;
        }
        if let Here::Mirrored(mirror) = here {
            mirror.unwatch_removed(worker);
        }
        if !has_worked {
            match worker.io.endpoint.immediate() {
                Some(host) => self.rest(host),
                None if worker.io.endpoint.is_watching() => self.looks.rest_until_stirred(),
                None => {}
            }
        }
        has_worked
    }

    /// There is no work.
    fn rest(&self, host: &Host) {
        if self.desk.get().is_some_and(|desk| desk.is_answering()) {
            return;
        }
        self.looks.rest(host, |words| {
            if let Some(desk) = self.desk.get() {
                desk.awaited(words);
            }
            self.callers
                .borrow()
                .iter()
                .filter(|caller| caller.is_waiting())
                .for_each(|caller| caller.awaited(words));
        });
    }

    /// Returns whether a request or an answer may arrive. A thread with a desk may be greeted at any time.
    pub(super) fn may_be_needed(&self) -> bool {
        !self.is_closed.get()
            && (self.desk.get().is_some() || self.callers.borrow().iter().any(|caller| caller.is_waiting()))
    }

    /// Returns whether there is nothing that would become a request.
    pub(super) fn has_nothing_to_send(&self) -> bool {
        self.dropped.borrow().is_empty() && self.jobs.borrow().is_empty()
    }

    /// Ends all pairs: the thread ends.
    pub(super) fn end(&self, worker: &Worker) {
        self.is_closed.set(true);
        let Some(this) = self.this.upgrade() else { return };
        match (self.desk.get(), Here::of(worker)) {
            (Some(desk), here) if here.is_mapped() => desk.close(worker, here),
            // A simulated thread that is dropped without an orderly end is dead.
            (Some(desk), _) => desk.drop_values(),
            (None, _) => {}
        }
        for caller in self.callers.take() {
            caller.trustee_died(&this);
        }
        self.jobs.take();
        self.own_calls.take();
        self.dropped.take();
    }
}

impl Service for Delegation {
    fn round(&self, worker: &Worker) -> bool {
        self.go_round(worker)
    }

    fn attends(&self) -> bool {
        self.may_be_needed()
    }

    fn sleeps(&self, worker: &Worker, most: Option<Duration>) -> bool {
        let (Some(desk), Here::Mapped(host)) = (self.desk.get(), Here::of(worker)) else {
            return false;
        };
        let (here, asleep) = (Here::Mapped(host), desk.places.asleep());
        here.store(asleep, Host::ASLEEP);
        here.fence();
        // What has arrived before this round is found by it; whoever comes later sees the word.
        self.stir();
        if !self.go_round(worker) {
            let waking = host.clone();
            let wake = move || {
                let _ = waking.write(asleep, &[Host::AWAKE]);
                waking.wake(asleep);
            };
            let most = most.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
            worker.idle_state().sleep_elsewhere(wake, || host.sleep_on(asleep, most));
        }
        here.store(asleep, Host::AWAKE);
        true
    }

    fn ends(&self, worker: &Worker) {
        self.end(worker);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
