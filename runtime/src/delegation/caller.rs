//! The client's side of a pair: requests that wait, batches in flight, and who awaits their answers.
//!
//! Invariants, for each lane:
//! 1. Batches are numbered from 1. `answered <= sent <= answered + window`; batch `n` is written when `answered >= n - window`.
//! 2. A request is in the queue, in one batch in flight, or answered; and its waiter is answered once. If the trustee has gone, those in flight may have been
//!    executed up to the batch that its notice names, and those in the queue were not.
//! 3. Requests leave the queue in their order, so those of a task to a trustee take effect in order. One that waits until another trustee knows of
//!    a handle in its arguments keeps back all behind it.
//! 4. While a pair can not be opened, requests are refused; but those that tell of dropped or passed handles, and of results that were read, wait in the queue as
//!    long as the trustee may live.
//! 5. The bell rings after a batch has been written: a batch that was written again may have missed the first one.
//! 6. A request that is *asked directly*, where memory is mapped, is the only one of its lane. It is in flight, and has a waiter, once its task stops looking for the answer: before that nothing
//!    else on this thread runs.

use std::any::Any;
use std::cell::{Cell, Ref, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hint::spin_loop;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use super::attend::Stored;
use super::desk::DeskPlaces;
#[cfg(target_os = "linux")]
use super::direct::PATIENCE;
use super::direct::{ADDRESS_WORDS, Line, address_of};
use super::function::Naming;
use super::looks::{Awaited, Words};
use super::mirror::Mailbox;
use super::slots::{
    BATCH_WORDS, EXPRESS, Header, Here, Kind, LANES, MAIN, MOST_INLINE, MOST_REQUESTS, Notice, RequestHead,
    SLOT_WORDS, Slots, Status, WINDOWS, head, insist, number,
};
use super::state::Delegation;
use super::way::Way;
use crate::io::operations::*;
use crate::memory::worker::Worker;
use farfield_fabric::host::Host;
use farfield_fabric::program;
use farfield_sim::Plant;
use farfield_words::{Address, Message as _, ThreadId, WORD_BYTES, Writer};

/// The answer to a request.
pub(super) enum Outcome {
    Answer(Status, AnswerWords),
    /// The trustee has gone.
    Gone {
        may_have_run: bool,
    },
}

impl Outcome {
    /// Decodes the first answer of a batch, and returns the words of the others. Words that are no answer were overwritten: the request may have been executed.
    #[inline]
    fn first_of(words: &[u64]) -> (Self, &[u64]) {
        if let Some((first, rest)) = words.split_first()
            && let Some((status, count)) = Status::of(*first)
            && let Some((answer, rest)) = rest.split_at_checked(count)
        {
            return (Self::Answer(status, AnswerWords::of(answer)), rest);
        }
        (Self::Gone { may_have_run: true }, &[])
    }
}

/// The words of an answer. Few of them need no allocation.
pub(super) enum AnswerWords {
    Few([u64; FEW], usize),
    Many(Box<[u64]>),
}

/// The most words of an answer that are kept in place.
const FEW: usize = 3;

impl AnswerWords {
    #[inline]
    fn of(words: &[u64]) -> Self {
        if words.len() > FEW {
            return Self::Many(words.into());
        }
        let word = |index| words.get(index).copied().unwrap_or(0);
        Self::Few([word(0), word(1), word(2)], words.len())
    }
}

impl std::ops::Deref for AnswerWords {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match self {
            Self::Few(words, count) => words.get(..*count).unwrap_or_default(),
            Self::Many(words) => words,
        }
    }
}

/// Receives an answer.
pub(super) type Callback = Box<dyn FnOnce(&Rc<Delegation>, Outcome)>;

/// Who is told of an answer.
pub(super) enum Waiter {
    /// A future. Its waker is kept unless it is the thread's.
    Future(Option<Waker>),
    Answered(Outcome),
    /// Called with the answer. Not for futures that were dropped: what their result owns must be released, too.
    Then(Callback),
    /// Free, and the next free one.
    Free(u32),
}

/// Puts a waiter in place of one that owns nothing: it is not dropped.
#[inline]
fn replace_empty(place: &mut Waiter, new: Waiter) {
    debug_assert!(matches!(place, Waiter::Free(_) | Waiter::Future(None)), "it owns something");
    std::mem::forget(std::mem::replace(place, new));
}

/// A count of requests to third trustees that must be answered first.
pub(super) type Blocked = Rc<Cell<usize>>;

/// A request in the queue.
struct Queued {
    words: usize,
    waiter: u32,
    blocked: Option<Blocked>,
}

/// The state of a pair, seen by its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The trustee does not know of it yet.
    Opening,
    Open,
    /// The client has sent the last batch.
    Closing,
    /// The trustee has gone, or has acknowledged the last batch: it does not access the pair's words any more.
    Ended,
}

/// The requests of a lane.
#[derive(Default)]
struct Lane {
    sent: Cell<u32>,
    answered: Cell<u32>,
    /// The words of the requests in the queue, in order, from `begin` on.
    words: RefCell<Vec<u64>>,
    begin: Cell<usize>,
    queue: RefCell<VecDeque<Queued>>,
    /// The waiters of the batches in flight.
    in_flight: RefCell<VecDeque<Vec<u32>>>,
    /// Lists for further ones.
    spare: RefCell<Vec<Vec<u32>>>,
}

impl Lane {
    #[inline]
    fn is_in_flight(&self) -> bool {
        self.sent.get() != self.answered.get()
    }

    /// Takes the requests of the next batch out of the queue. Returns their number, and that of their words, which are the [first](Self::first_words) ones.
    fn take_batch(&self) -> Option<(usize, usize)> {
        let mut queue = self.queue.borrow_mut();
        let mut waiters = self.spare.borrow_mut().pop().unwrap_or_default();
        let (mut count, mut used) = (0, 0);
        for next in queue.iter().take(MOST_REQUESTS) {
            let is_blocked = next.blocked.as_ref().is_some_and(|blocked| blocked.get() > 0);
            if is_blocked || used + next.words > BATCH_WORDS {
                break;
            }
            used += next.words;
            count += 1;
        }
        waiters.extend(queue.drain(..count).map(|request| request.waiter));
        if count == 0 {
            self.spare.borrow_mut().push(waiters);
            return None;
        }
        self.in_flight.borrow_mut().push_back(waiters);
        Some((count, used))
    }

    fn first_words(&self, count: usize) -> Ref<'_, [u64]> {
        let begin = self.begin.get();
        Ref::map(self.words.borrow(), |words| words.get(begin..begin + count).unwrap_or_default())
    }

    /// Removes the first words.
    fn remove_words(&self, count: usize) {
        let (mut words, begin) = (self.words.borrow_mut(), self.begin.get() + count);
        if begin >= words.len() {
            words.clear();
            self.begin.set(0);
        } else if begin >= MOST_REMOVED {
            words.drain(..begin);
            self.begin.set(0);
        } else {
            self.begin.set(begin);
        }
    }
}

/// The words of sent requests that a lane keeps in front of those in the queue.
const MOST_REMOVED: usize = 1 << 16;

/// The client's side of a pair.
pub(super) struct Caller {
    pub(super) trustee: ThreadId,
    pub(super) way: Way,
    pub(super) desk: DeskPlaces,
    pub(super) state: Cell<State>,
    pub(super) slots: Cell<Option<Slots>>,
    /// What the pair's words belong to, until it has ended.
    pub(super) block: RefCell<Option<Box<dyn Any>>>,
    /// The group of the trustee's bells.
    pub(super) bell: Cell<usize>,
    /// True if the trustee maps the memory.
    is_trustee_mapped: Cell<bool>,
    lanes: [Lane; LANES],
    waiters: RefCell<Vec<Waiter>>,
    free_waiter: Cell<u32>,
    /// Arguments in far memory, by the number of the waiter: the trustee may read them until it has answered.
    arguments: RefCell<HashMap<u32, Stored>>,
    /// The numbers of the functions that the pair has named.
    functions: RefCell<HashMap<[usize; 2], u16>>,
    /// The key and the number of the one that was last used.
    last_function: Cell<([usize; 2], u16)>,
    /// True while the pair is announced to the trustee.
    pub(super) is_greeting: Cell<bool>,
    /// Answers that have arrived, and whose handles this thread does not know of yet: see [`Undecoded`].
    undecoded: Cell<u32>,
    /// The chains in flight that write the pair's words.
    chains: Cell<u32>,
    /// True once the pair is closed because it was idle: further requests open another.
    pub(super) is_retired: Cell<bool>,
    /// The number of the last batch at the last look, and the looks in a row that have found no other.
    idle: Cell<(u32, u32)>,
    /// A chain to the trustee has failed: it may be dead.
    pub(super) has_failed: Cell<bool>,
    /// The looks since the trustee is dead that have found no notice.
    missed: Cell<u32>,
    /// True if the thread's network has [direct lines](super::direct).
    pub(super) may_call: Cell<bool>,
    /// Where the trustee listens, while the line is being made.
    called: Cell<Option<(SocketAddr, Duration)>>,
    line: RefCell<Option<Line>>,
}

/// Why a function has no number in a pair.
pub(super) enum Unnamed {
    /// It, or code that was generated for it, is in a shared library.
    InLibrary,
    TooMany,
}

/// Returns whether a trustee must know of a request to itself as long as it lives: a value, or a result, would be dropped too early or never.
fn is_to_tell(function: u16) -> bool {
    matches!(function, number::DROP | number::GIVE | number::RELEASE)
}

const NO_WAITER: u32 = u32::MAX;

/// The requests of a pair from which on tasks wait before they add one.
const MOST_QUEUED: usize = 4096;
/// How often a thread looks for the answer to a direct request before it does anything else: about a microsecond.
const LOOKS: u32 = 64;
/// The requests that are sent before a round.
const EARLY: usize = 8;

/// An answer whose words have not been decoded yet. A handle in it is still its sender's share; so the sender's end must not be dealt with before.
pub(super) struct Undecoded(Rc<Caller>);

impl Undecoded {
    pub(super) fn of(caller: &Rc<Caller>) -> Self {
        caller.undecoded.set(caller.undecoded.get() + 1);
        Self(Rc::clone(caller))
    }
}

impl Drop for Undecoded {
    fn drop(&mut self) {
        self.0.undecoded.set(self.0.undecoded.get() - 1);
    }
}

impl Caller {
    pub(super) fn new(delegation: Weak<Delegation>, trustee: ThreadId, desk: DeskPlaces) -> Self {
        Self {
            trustee,
            way: Way::new(delegation, trustee),
            desk,
            state: Cell::new(State::Opening),
            slots: Cell::new(None),
            block: RefCell::default(),
            bell: Cell::new(0),
            is_trustee_mapped: Cell::default(),
            lanes: Default::default(),
            waiters: RefCell::default(),
            free_waiter: Cell::new(NO_WAITER),
            arguments: RefCell::default(),
            functions: RefCell::default(),
            // No function has this key.
            last_function: Cell::new(([1; 2], 0)),
            is_greeting: Cell::default(),
            undecoded: Cell::default(),
            chains: Cell::default(),
            is_retired: Cell::default(),
            idle: Cell::default(),
            has_failed: Cell::default(),
            missed: Cell::default(),
            may_call: Cell::default(),
            called: Cell::default(),
            line: RefCell::default(),
        }
    }

    /// Returns whether a request is in the queue or in flight.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_in_flight() || !lane.queue.borrow().is_empty())
    }

    /// Returns whether requests are refused at once.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state.get(), State::Closing | State::Ended)
    }

    /// Returns whether batches are in flight.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.lanes.iter().any(Lane::is_in_flight)
            || (self.state.get() == State::Opening && !self.is_greeting.get())
    }

    /// Returns whether what the trustee writes may not be forwarded, to a thread that does not map the memory.
    pub(super) fn is_unforwarded(&self) -> bool {
        self.state.get() == State::Opening || self.is_trustee_mapped.get()
    }

    // ---- its line ----------------------------------------------------------------------------------------------

    #[inline]
    pub(super) fn has_line(&self) -> bool {
        self.line.borrow().is_some()
    }

    /// Returns whether batches are in flight, and answers, or the notice, may be in mailboxes.
    #[inline]
    pub(super) fn awaits_mail(&self) -> bool {
        self.is_waiting() && (self.state.get() == State::Opening || !self.is_linked())
    }

    /// Returns whether there is a line, with a connection.
    pub(super) fn is_linked(&self) -> bool {
        self.line.borrow().as_ref().is_some_and(Line::is_linked)
    }

    /// Returns whether the pair's line has ended.
    pub(super) fn has_lost_line(&self) -> bool {
        self.state.get() != State::Opening && self.line.borrow().as_ref().is_some_and(Line::has_ended)
    }

    /// Returns whether the line is being made.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(super) fn is_called(&self) -> bool {
        self.called.get().is_some()
    }

    /// Makes the line. The pair is open once it is linked, or can not be. Returns whether it is.
    #[cfg(target_os = "linux")]
    pub(super) fn connect(&self, delegation: &Delegation, worker: &Worker) -> bool {
        let (Some((address, since)), Some(slots)) = (self.called.get(), self.slots.get()) else {
            return false;
        };
        let (mut line, now) = (self.line.borrow_mut(), worker.io.endpoint.now());
        if line.is_none() && delegation.may_reach(address, now) {
            *line = delegation.calls(worker, address, self.trustee, slots);
            self.called.set(Some((address, now)));
            return line.is_none() && self.opens();
        }
        match &*line {
            Some(line) if line.is_linked() => {}
            Some(line) if !line.has_ended() && now.saturating_sub(since) < PATIENCE => return false,
            other => {
                if other.is_some() {
                    delegation.can_not_reach(address, now);
                }
                *line = None;
            }
        }
        self.opens()
    }

    /// The pair is open. Returns `true`.
    #[cfg(target_os = "linux")]
    fn opens(&self) -> bool {
        self.called.set(None);
        self.state.set(State::Open);
        true
    }

    /// Counts a look at the pair. Returns how many in a row have found no request.
    pub(super) fn looks_idle(&self) -> u32 {
        let sent = self.lanes[MAIN].sent.get();
        let (last, looks) = self.idle.get();
        let looks = if last == sent && !self.is_busy() { looks + 1 } else { 0 };
        self.idle.set((sent, looks));
        looks
    }

    /// Counts a look that has found no notice, although the trustee is dead.
    pub(super) fn misses_notice(&self) -> u32 {
        self.missed.set(self.missed.get() + 1);
        self.missed.get()
    }

    /// Returns whether so many requests wait that a task with another one should wait, too.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.lanes[MAIN].queue.borrow().len() >= MOST_QUEUED
    }

    /// Keeps arguments in far memory until their request is answered.
    pub(super) fn keep(&self, waiter: u32, arguments: Option<Stored>) {
        if let Some(arguments) = arguments
            && matches!(self.state.get(), State::Opening | State::Open)
        {
            self.arguments.borrow_mut().insert(waiter, arguments);
        }
    }

    /// Gives up the pair's words: the trustee may still access them.
    pub(super) fn abandon_words(&self, delegation: &Rc<Delegation>) {
        self.called.set(None);
        self.line.take();
        std::mem::forget(self.block.borrow_mut().take());
        if let Some(slots) = self.slots.take() {
            delegation.removes_mailbox(slots.notice());
        }
    }

    /// Gives up the pair, its words, and arguments.
    pub(super) fn abandon(&self, delegation: &Rc<Delegation>) {
        self.abandon_words(delegation);
        std::mem::forget(self.arguments.take());
        self.trustee_died(delegation);
    }

    // ---- waiters -----------------------------------------------------------------------------------------------

    #[allow(clippy::inline_always)] // for each request
    #[inline(always)]
    fn add_waiter(&self, waiter: Waiter) -> u32 {
        let mut waiters = self.waiters.borrow_mut();
        let free = self.free_waiter.get();
        if free == NO_WAITER {
            waiters.push(waiter);
            return waiters.len() as u32 - 1;
        }
        let place = &mut waiters[free as usize];
        if let Waiter::Free(next) = *place {
            self.free_waiter.set(next);
        }
        replace_empty(place, waiter);
        free
    }

    fn take_waiter(&self, number: u32) -> Waiter {
        let free = Waiter::Free(self.free_waiter.replace(number));
        std::mem::replace(&mut self.waiters.borrow_mut()[number as usize], free)
    }

    /// Takes the answer of a future.
    #[allow(clippy::inline_always)] // for each request
    #[inline(always)]
    pub(super) fn poll_waiter(&self, number: u32) -> Option<Outcome> {
        let place = &mut self.waiters.borrow_mut()[number as usize];
        if !matches!(place, Waiter::Answered(_)) {
            return None;
        }
        let free = Waiter::Free(self.free_waiter.replace(number));
        let Waiter::Answered(outcome) = std::mem::replace(place, free) else {
            unreachable!("it is answered")
        };
        self.undecoded.set(self.undecoded.get() - 1);
        Some(outcome)
    }

    /// Keeps the waker of a future, if it is not the thread's.
    #[inline]
    pub(super) fn set_waker(&self, number: u32, waker: Option<&Waker>) {
        if let Waiter::Future(kept) = &mut self.waiters.borrow_mut()[number as usize] {
            match (&mut *kept, waker) {
                (None, None) => {}
                (Some(kept), Some(waker)) => kept.clone_from(waker),
                (_, waker) => *kept = waker.cloned(),
            }
        }
    }

    /// Returns whether an answer of the trustee has arrived that is not decoded.
    pub(super) fn has_undecoded(&self) -> bool {
        self.undecoded.get() > 0
    }

    /// A future is dropped: `then` receives its answer.
    pub(super) fn abandon_waiter(&self, number: u32, delegation: &Rc<Delegation>, then: Callback) {
        let is_answered = matches!(self.waiters.borrow()[number as usize], Waiter::Answered(_));
        if is_answered {
            if let Some(outcome) = self.poll_waiter(number) {
                then(delegation, outcome);
            }
        } else {
            self.waiters.borrow_mut()[number as usize] = Waiter::Then(then);
        }
    }

    /// Tells a waiter of its answer.
    #[inline]
    fn tell(&self, delegation: &Rc<Delegation>, number: u32, outcome: Outcome) {
        if !self.arguments.borrow().is_empty() {
            let read = self.arguments.borrow_mut().remove(&number);
            drop(read);
        }
        let mut waiters = self.waiters.borrow_mut();
        let waiter = &mut waiters[number as usize];
        match waiter {
            Waiter::Future(waker) => {
                let waker = waker.take();
                replace_empty(waiter, Waiter::Answered(outcome));
                self.undecoded.set(self.undecoded.get() + 1);
                drop(waiters);
                match waker {
                    Some(waker) => waker.wake(),
                    None => delegation.wake(),
                }
            }
            Waiter::Then(_) => {
                drop(waiters);
                if let Waiter::Then(then) = self.take_waiter(number) {
                    then(delegation, outcome);
                }
            }
            Waiter::Answered(_) | Waiter::Free(_) => {}
        }
    }

    // ---- requests ----------------------------------------------------------------------------------------------

    /// Adds a request to the queue. Returns the number of its waiter. If the trustee has gone, it is answered at once.
    pub(super) fn enqueue(
        &self,
        delegation: &Rc<Delegation>,
        head: RequestHead,
        args: &[u64],
        blocked: Option<Blocked>,
        waiter: Waiter,
    ) -> u32 {
        let lane = if head.function == number::GIVE { EXPRESS } else { MAIN };
        let count = {
            let mut words = self.lanes[lane].words.borrow_mut();
            words.push(head.to_word());
            words.extend_from_slice(args);
            1 + args.len()
        };
        self.enqueue_written(delegation, lane, count, blocked, waiter)
    }

    /// Appends the words of a request whose arguments `write` appends. Returns their number, to be passed to [`enqueue_written`](Self::enqueue_written); or the words of
    /// the arguments, if these do not fit into a request.
    #[inline]
    pub(super) fn write_request(
        &self,
        head: RequestHead,
        write: impl FnOnce(&mut Vec<u64>),
    ) -> Result<usize, Vec<u64>> {
        let mut words = self.lanes[MAIN].words.borrow_mut();
        let start = words.len();
        words.push(0);
        write(&mut words);
        let count = words.len() - start - 1;
        if count > MOST_INLINE {
            let args = words.split_off(start + 1);
            words.truncate(start);
            return Err(args);
        }
        words[start] = RequestHead { words: count as u8, ..head }.to_word();
        Ok(1 + count)
    }

    /// Adds a request to the queue, of which the last words of the lane are. Returns the number of its waiter.
    #[inline]
    pub(super) fn enqueue_written(
        &self,
        delegation: &Rc<Delegation>,
        lane: usize,
        words: usize,
        blocked: Option<Blocked>,
        waiter: Waiter,
    ) -> u32 {
        delegation.stir();
        let (waiter, lane) = (self.add_waiter(waiter), &self.lanes[lane]);
        if self.has_ended() {
            let mut written = lane.words.borrow_mut();
            let rest = written.len() - words;
            written.truncate(rest);
            drop(written);
            self.tell(delegation, waiter, Outcome::Gone { may_have_run: false });
            return waiter;
        }
        lane.queue.borrow_mut().push_back(Queued { words, waiter, blocked });
        waiter
    }

    /// The trustee can not be reached. Refuses the requests in the queue, except those that it [must know of](is_to_tell), and names of functions.
    pub(super) fn refuse_waiting(&self, delegation: &Rc<Delegation>) {
        let mut refused = Vec::new();
        for lane in &self.lanes {
            let mut at = lane.begin.replace(0);
            let mut words = lane.words.borrow_mut();
            let mut kept = Vec::new();
            lane.queue.borrow_mut().retain(|queued| {
                let request = &words[at..at + queued.words];
                at += queued.words;
                let function = RequestHead::of(request[0]).function;
                let is_kept = function == number::BIND || is_to_tell(function);
                if is_kept {
                    kept.extend_from_slice(request);
                } else {
                    refused.push(queued.waiter);
                }
                is_kept
            });
            *words = kept;
        }
        for waiter in refused {
            self.tell(delegation, waiter, Outcome::Gone { may_have_run: false });
        }
    }

    /// Returns whether a request is in the queue that the trustee [must know of](is_to_tell).
    pub(super) fn has_to_tell(&self) -> bool {
        self.lanes.iter().any(|lane| {
            let (words, mut at) = (lane.words.borrow(), lane.begin.get());
            lane.queue.borrow().iter().any(|queued| {
                let head = words[at];
                at += queued.words;
                is_to_tell(RequestHead::of(head).function)
            })
        })
    }

    /// Returns the number of a function in this pair, which the trustee is told of if it is new.
    #[inline]
    pub(super) fn function(&self, delegation: &Rc<Delegation>, naming: &Naming) -> Result<u16, Unnamed> {
        let (last, number) = self.last_function.get();
        if last == naming.key() { Ok(number) } else { self.other_function(delegation, naming) }
    }

    #[cold]
    fn other_function(&self, delegation: &Rc<Delegation>, naming: &Naming) -> Result<u16, Unnamed> {
        let key = naming.key();
        let known = self.functions.borrow().get(&key).copied();
        let function = match known {
            Some(function) => function,
            None => self.name_function(delegation, naming)?,
        };
        self.last_function.set((key, function));
        Ok(function)
    }

    fn name_function(&self, delegation: &Rc<Delegation>, naming: &Naming) -> Result<u16, Unnamed> {
        let known = u16::try_from(self.functions.borrow().len()).ok();
        let function = known.and_then(|known| known.checked_add(number::FIRST)).ok_or(Unnamed::TooMany)?;
        let mut args = vec![u64::from(function)];
        match naming {
            Naming::Position { .. } => {
                let name = naming.position().ok_or(Unnamed::InLibrary)?;
                args.extend([0, name.signature, name.function, name.tag]);
            }
            Naming::Method(method) => args.extend([1, method.fingerprint, 0, 0]),
        }
        args.extend(program::build());
        let mut described = String::from(naming.describe());
        // As much as a request may have.
        while described.len() > 160 {
            described.pop();
        }
        described.write(&mut Writer::new(&mut args, &()));
        let head = RequestHead { function: number::BIND, object: 0, words: args.len() as u8, is_far: false };
        self.enqueue(delegation, head, &args, None, Waiter::Then(Box::new(|_, _| ())));
        self.functions.borrow_mut().insert(naming.key(), function);
        Ok(function)
    }

    /// Sends batches as long as requests wait and the window is open. Returns whether it sent one.
    pub(super) fn flush(self: &Rc<Self>, worker: &Worker, here: Here<'_>) -> bool {
        let mut has_sent = false;
        for (number, lane) in self.lanes.iter().enumerate() {
            let window = WINDOWS[number] + u32::from(worker.has(Plant::WideWindow));
            while !lane.queue.borrow().is_empty()
                && self.state.get() == State::Open
                && lane.sent.get().wrapping_sub(lane.answered.get()) < window
            {
                let Some((count, used)) = lane.take_batch() else { break };
                self.send(worker, here, number, Kind::Requests, &lane.first_words(used), count);
                lane.remove_words(used);
                has_sent = true;
            }
        }
        has_sent
    }

    /// Sends a batch before the thread's next round, where the trustee can execute it meanwhile: on a network a larger batch is better.
    #[inline]
    pub(super) fn flush_early(self: &Rc<Self>, worker: &Worker) {
        if self.lanes[MAIN].queue.borrow().len() >= EARLY
            && let here @ Here::Mapped(_) = Here::of(worker)
        {
            self.flush(worker, here);
        }
    }

    /// Writes a batch, and rings if the trustee does not look.
    fn send(
        self: &Rc<Self>,
        worker: &Worker,
        here: Here<'_>,
        number: usize,
        kind: Kind,
        words: &[u64],
        count: usize,
    ) {
        let Some(slots) = self.slots.get() else { return };
        let lane = &self.lanes[number];
        let batch = lane.sent.get().wrapping_add(1);
        lane.sent.set(batch);
        let header = Header { batch, count: count as u8, words: words.len() as u8, kind };
        let slot = slots.request(number, batch);
        match here {
            Here::Mapped(host) => self.write_mapped(host, slots, slot, words, header),
            Here::Mirrored(_) if self.has_line() => {
                if let Some(line) = &*self.line.borrow() {
                    line.send_batch(slot, header, words);
                }
            }
            Here::Hosted(_) | Here::Mirrored(_) => {
                let (is_header_first, words) = (worker.has(Plant::HeaderFirst), words.to_vec());
                let is_resent = worker.has(Plant::ResentBatch).then(|| Cell::new(false));
                let is_silent = worker.has(Plant::SilentBatch) && batch.wrapping_sub(lane.answered.get()) > 1;
                let bell = Some(self.desk.bell(self.bell.get())).filter(|_| !is_silent);
                // The trustee of hosted memory looks when the batch has changed it, and need not wait for the bell: a request takes 1.13 round trips; with both in
                // one chain it is 1.24.
                let is_same_chain = here.is_mirrored() && self.desk.0.segment() == slot.segment();
                let again = slots.request(number, batch.wrapping_add(1));
                let apart = Some(self.desk).filter(|_| self.is_trustee_mapped.get());
                let (joined, separate) = if is_same_chain { (bell, None) } else { (None, bell) };
                let write = move |worker: &Worker| {
                    let mut chain = worker.empty_chain();
                    // The words first: a header is a later WRITE of the same chain.
                    if is_header_first {
                        chain.write(slot, &[header.to_word()]);
                    }
                    if !words.is_empty() {
                        chain.write(slot.add(8), &words);
                    }
                    if !is_header_first {
                        chain.write(slot, &[header.to_word()]);
                    }
                    if let Some(bell) = joined {
                        chain.fetch_add(bell, 1);
                    }
                    if let Some(desk) = apart {
                        chain.fetch_add(desk.rung(), 1);
                        desk.wake_by(&mut chain);
                    }
                    if is_resent.as_ref().is_some_and(|is_resent| is_resent.replace(true)) {
                        chain.write(again.add(8), &words);
                        chain.write(again, &[Header { batch: batch.wrapping_add(1), ..header }.to_word()]);
                    }
                    chain
                };
                // The trustee executes a batch once, however often it is written; and the next batch of the slot follows on the same connection.
                self.chains.set(self.chains.get() + 1);
                let (asking, ending) = (Rc::clone(self), Rc::clone(self));
                let ends = move |worker: &Worker, failures| {
                    // The first bell may have rung before the batch was there.
                    if let Some(bell) = separate.filter(|_| failures > 0) {
                        ending.ring(worker, number, batch, bell);
                    }
                    ending.chains.set(ending.chains.get() - 1);
                    ending.free_if_unused();
                };
                insist(worker, write, move || asking.awaits(number, batch), ends);
                if let Some(bell) = separate {
                    self.ring(worker, number, batch, bell);
                }
            }
        }
    }

    /// Writes a batch to mapped memory, and rings if the trustee does not look.
    #[inline]
    fn write_mapped(&self, host: &Host, slots: Slots, slot: Address, words: &[u64], header: Header) {
        let here = Here::Mapped(host);
        Here::write_batch(host, slot, words, header);
        if here.load(slots.head(head::ASLEEP)) != 0 || !self.is_trustee_mapped.get() {
            let _ = host.fetch_add(self.desk.bell(self.bell.get()), 1);
            let _ = host.fetch_add(self.desk.rung(), 1);
        }
        self.desk.wake(here);
    }

    /// Returns the slots by which the thread's next request can be [asked directly](Self::ask_directly): the trustee maps the memory, and no other request is in the queue or in flight.
    #[inline]
    pub(super) fn direct(&self) -> Option<Slots> {
        let main = &self.lanes[MAIN];
        let is_open = self.state.get() == State::Open && self.is_trustee_mapped.get();
        let is_direct = is_open && !main.is_in_flight() && main.queue.borrow().is_empty();
        self.slots.get().filter(|_| is_direct)
    }

    /// Sends the request whose words are the only ones of the main lane, and looks for its answer for about as long as it takes. Neither the queue nor a waiter is needed for that. Else
    /// its waiter is returned: there is no answer yet, or it lies in far memory.
    #[inline]
    pub(super) fn ask_directly(&self, host: &Host, slots: Slots, words: usize) -> Result<Outcome, u32> {
        let lane = &self.lanes[MAIN];
        let batch = lane.sent.get().wrapping_add(1);
        let slot = slots.request(MAIN, batch);
        let header = Header { batch, count: 1, words: words as u8, kind: Kind::Requests };
        self.write_mapped(host, slots, slot, &lane.first_words(words), header);
        lane.remove_words(words);
        lane.sent.set(batch);
        if let Ok([first]) = host.words(slot, 1) {
            for _ in 0..LOOKS {
                let word = first.load(Ordering::Acquire);
                if word != header.to_word()
                    && let Some(header) =
                        Header::of(word, batch).filter(|header| header.kind == Kind::Answers)
                {
                    lane.answered.set(batch);
                    let (mut few, mut many) = ([0; 1 + FEW], Vec::new());
                    let count = usize::from(header.words);
                    let answer = few.get_mut(..count).unwrap_or_else(|| {
                        many.resize(count, 0);
                        &mut many
                    });
                    Here::Mapped(host).copy(slot.add(WORD_BYTES as u64), answer);
                    return match Outcome::first_of(answer).0 {
                        // It is still to be read: there may be handles in it.
                        far @ Outcome::Answer(Status::Far, _) => {
                            self.undecoded.set(self.undecoded.get() + 1);
                            Err(self.add_waiter(Waiter::Answered(far)))
                        }
                        outcome => Ok(outcome),
                    };
                }
                spin_loop();
            }
        }
        let waiter = self.add_waiter(Waiter::Future(None));
        let mut waiters = lane.spare.borrow_mut().pop().unwrap_or_default();
        waiters.push(waiter);
        lane.in_flight.borrow_mut().push_back(waiters);
        Err(waiter)
    }

    /// Rings for a batch.
    fn ring(self: &Rc<Self>, worker: &Worker, lane: usize, batch: u32, bell: Address) {
        let ring = move |worker: &Worker| {
            let mut chain = worker.empty_chain();
            chain.fetch_add(bell, 1);
            chain
        };
        let asking = Rc::clone(self);
        insist(worker, ring, move || asking.awaits(lane, batch), |_, _| ());
    }

    /// A chain with a batch, or its bell, has failed. Returns whether the batch is still to be answered.
    fn awaits(&self, lane: usize, batch: u32) -> bool {
        self.has_failed.set(true);
        let lane = &self.lanes[lane];
        self.state.get() != State::Ended && batch.wrapping_sub(lane.answered.get()).cast_signed() > 0
    }

    /// Tells the trustee that no request will follow.
    pub(super) fn close(self: &Rc<Self>, worker: &Worker, here: Here<'_>) {
        if self.state.get() == State::Open && !self.is_busy() {
            self.lanes[MAIN].in_flight.borrow_mut().push_back(Vec::new());
            self.send(worker, here, MAIN, Kind::Close, &[], 0);
            self.state.set(State::Closing);
        }
    }

    // ---- answers -----------------------------------------------------------------------------------------------

    /// Takes the answers that have arrived, and passes them on. Returns whether there were any.
    pub(super) fn take_answers(&self, delegation: &Rc<Delegation>, here: Here<'_>) -> bool {
        let Some(slots) = self.slots.get() else { return false };
        let mut has_taken = false;
        for (number, lane) in self.lanes.iter().enumerate() {
            while lane.is_in_flight() {
                let batch = lane.answered.get().wrapping_add(1);
                let slot = slots.answer(number, batch);
                let header = Header::of(here.load(slot), batch).filter(|header| header.kind == Kind::Answers);
                let Some(header) = header else { break };
                let mut words = [0; SLOT_WORDS];
                let words = &mut words[..usize::from(header.words)];
                here.copy(slot.add(8), words);
                lane.answered.set(batch);
                if self.state.get() == State::Closing {
                    self.end(delegation, batch);
                    return true;
                }
                self.distribute(delegation, lane, words);
                has_taken = true;
                if self.slots.get().is_none() {
                    return true;
                }
            }
        }
        if has_taken {
            return true;
        }
        self.look_at_notice(delegation, here, slots)
    }

    /// Adds the words in which the trustee answers.
    pub(super) fn awaited(&self, words: &mut Words) {
        let Some(slots) = self.slots.get() else { return };
        for (number, lane) in self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_in_flight()) {
            let batch = lane.answered.get().wrapping_add(1);
            words.push(Header::awaited(slots.answer(number, batch), batch, Some(Kind::Answers)));
        }
        let seen = match self.state.get() {
            State::Opening => Notice::None,
            _ => Notice::Open { pair: self.bell.get() as u32, is_mapped: self.is_trustee_mapped.get() },
        };
        words.push(Awaited::Changes { at: slots.notice(), from: seen.to_word() });
    }

    /// Returns what is to be read of the pair's mailboxes.
    pub(super) fn mailboxes(&self) -> Vec<Mailbox> {
        let Some(slots) = self.slots.get() else { return Vec::new() };
        let is_opening = self.state.get() == State::Opening;
        let address = if is_opening && self.may_call.get() { ADDRESS_WORDS } else { 0 };
        let mut mailboxes = vec![Mailbox::Words(slots.notice(), 1 + address)];
        if self.has_line() {
            return mailboxes;
        }
        for (number, lane) in self.lanes.iter().enumerate() {
            let in_flight = lane.sent.get().wrapping_sub(lane.answered.get());
            let batches = (1..=in_flight).map(|ahead| lane.answered.get().wrapping_add(ahead));
            mailboxes.extend(batches.map(|batch| Mailbox::Slot(slots.answer(number, batch))));
        }
        mailboxes
    }

    /// Passes the answers of a batch to their waiters.
    fn distribute(&self, delegation: &Rc<Delegation>, lane: &Lane, mut words: &[u64]) {
        let Some(mut waiters) = lane.in_flight.borrow_mut().pop_front() else { return };
        if delegation.has(Plant::SwappedAnswers) {
            waiters.reverse();
        }
        for waiter in waiters.drain(..) {
            let (outcome, rest) = Outcome::first_of(words);
            words = rest;
            self.tell(delegation, waiter, outcome);
        }
        lane.spare.borrow_mut().push(waiters);
    }

    fn look_at_notice(&self, delegation: &Rc<Delegation>, here: Here<'_>, slots: Slots) -> bool {
        match Notice::of(here.load(slots.notice())) {
            Notice::Open { pair, is_mapped } if self.state.get() == State::Opening => {
                if self.called.get().is_some() {
                    return false;
                }
                self.bell.set(pair as usize);
                self.is_trustee_mapped.set(is_mapped);
                let mut address = [0; ADDRESS_WORDS];
                if self.may_call.get() {
                    here.copy(slots.address(), &mut address);
                }
                match address_of(address) {
                    Some(address) => self.called.set(Some((address, Duration::MAX))),
                    None => self.state.set(State::Open),
                }
                true
            }
            Notice::Gone(last) if self.state.get() != State::Ended => {
                self.end(delegation, last);
                true
            }
            _ => false,
        }
    }

    /// The trustee has ended, and has executed batches of the main lane up to `last` at most.
    pub(super) fn end(&self, delegation: &Rc<Delegation>, last: u32) {
        self.end_with(delegation, |batch| {
            // Numbers that wrap around are a window apart at most.
            let may_have_run = batch.is_some_and(|batch| last.wrapping_sub(batch) <= WINDOWS[MAIN]);
            Outcome::Gone { may_have_run }
        });
    }

    /// The pair has ended. `outcome` is that of the requests of a batch in flight, or of those in the queue.
    fn end_with(&self, delegation: &Rc<Delegation>, outcome: impl Fn(Option<u32>) -> Outcome) {
        self.state.set(State::Ended);
        self.called.set(None);
        self.line.take();
        for lane in &self.lanes {
            loop {
                let Some(waiters) = lane.in_flight.borrow_mut().pop_front() else { break };
                let batch = lane.answered.get().wrapping_add(1);
                lane.answered.set(batch);
                for waiter in waiters {
                    self.tell(delegation, waiter, outcome(Some(batch)));
                }
            }
            lane.answered.set(lane.sent.get());
            lane.words.borrow_mut().clear();
            lane.begin.set(0);
            loop {
                let Some(first) = lane.queue.borrow_mut().pop_front() else { break };
                self.tell(delegation, first.waiter, outcome(None));
            }
        }
        if let Some(slots) = self.slots.take() {
            delegation.removes_mailbox(slots.notice());
        }
        self.free_if_unused();
    }

    /// Frees the pair's words once nobody writes them any more.
    fn free_if_unused(&self) {
        if self.state.get() == State::Ended && self.chains.get() == 0 {
            let block = self.block.borrow_mut().take();
            drop(block);
        }
    }

    /// Returns whether the pair has ended, and its words are free.
    pub(super) fn is_over(&self) -> bool {
        self.state.get() == State::Ended && self.chains.get() == 0
    }

    /// The trustee is dead. What is in flight may have been executed.
    pub(super) fn trustee_died(&self, delegation: &Rc<Delegation>) {
        if self.state.get() != State::Ended {
            let main = &self.lanes[MAIN];
            let is_sure = delegation.has(Plant::SureOfDeath);
            self.end(delegation, if is_sure { main.answered.get() } else { main.sent.get() });
        }
    }
}
