//! The trustee's side: its desk, the pairs of its clients, and the execution of their batches.
//!
//! A *desk* is an object of 4 lines in far memory, by which clients find their trustee:
//!
//! | word | contents | written by |
//! |---|---|---|
//! | next | the next desk of the cluster | whoever made it |
//! | owner | the trustee's identity, or 0 | the trustee, by CAS |
//! | hellos | the newest pair that the trustee does not know yet; each has the address of the next | clients, by CAS; the trustee takes all |
//! | rung | how often any bell was rung; only if the trustee maps the memory | clients, by FAA |
//! | asleep | 1 while the thread sleeps on this word; only if it maps the memory | the thread; whoever wakes it writes 0 |
//! | bells | 27 counts: pair `n` rings bell `n` modulo 27 | clients, by FAA |
//!
//! So a trustee looks at one line, whoever its clients are. A pair whose client sends batches is *active*: the trustee looks at its slots, too, until it has
//! found them empty for a while. Then it writes `asleep`, and looks once more; the client writes its header, and then reads `asleep`. With a fence between the two
//! on both sides, one of them sees the other's word: no batch is overlooked. Where the memory is not mapped, clients always ring, in the chain after the batch. There
//! the trustee looks at all bells, in four lines, since a second FAA would occupy its NIC for longer.
//!
//! Where memory is mapped, each thread that makes requests has a desk, too, and sleeps on its word when neither requests nor answers have arrived for a while: it writes
//! 1, and looks once more. Whoever has written a batch, or its answers, reads that word of the other. As with `asleep` of a pair, no wake-up is lost.
//!
//! Desks are never freed, but used again. So an old handle of an ended trustee finds a desk without an owner, or with another one. Hellos are taken by the owner only, which
//! tells the pairs of other trustees that theirs has gone. A client reads the owner after its hello, in the same chain. If there is none, or it is dead, the client itself becomes the owner, by CAS;
//! takes the hellos, and gives the desk up again. So no pair is told that its trustee has gone while that trustee owns the desk. A thread that has given a desk up looks for hellos once more,
//! so that none is overlooked.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::attend::Stored;
use super::caller::Blocked;
use super::context::Context;
use super::direct::{self, Line};
use super::function::{Method, Shim};
use super::looks::{Awaited, Words};
use super::mirror::Mailbox;
use super::objects::{Objects, Taken};
use super::slots::{
    BATCH_WORDS, EXPRESS, FAR_WORDS, Header, Here, Kind, LANES, MAIN, MOST_INLINE, Notice, Refusal,
    RequestHead, SLOT_WORDS, Slots, Status, TRUSTEES_WORDS, WINDOWS, head, insist, number,
};
use super::state::{Delegation, Job};
use super::way::Way;
use crate::io::operations::*;
use crate::memory::holdings::Content;
use crate::memory::worker::Worker;
use farfield_fabric::chain::RawChain;
use farfield_fabric::host::{Host, first_line};
use farfield_fabric::program::{self, FunctionName, NamedFunction};
use farfield_sim::{Plant, Work};
use farfield_words::{Address, Message as _, Reader, ThreadId, WORD_BYTES, Writer};

/// The bells of a desk.
pub(super) const BELLS: usize = 27;
/// The words of a desk.
pub(super) const DESK_WORDS: usize = 5 + BELLS;

/// How many rounds find the slots of a pair empty before the trustee waits for the bell. There are 64 looks between two of them, if nothing else is to be done.
const LOOKS: u32 = 2_000;

/// The words of a small batch: those of a line.
const FEW_WORDS: usize = 7;

/// How often the empty slots of a pair are read over a network before the trustee waits for the bell.
const MAILBOX_LOOKS: u32 = 16;

/// The words of a desk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DeskPlaces(pub(super) Address);

impl DeskPlaces {
    fn word(self, index: usize) -> Address {
        self.0.add((index * WORD_BYTES) as u64)
    }
    pub(super) fn next(self) -> Address {
        self.word(0)
    }
    pub(super) fn owner(self) -> Address {
        self.word(1)
    }
    pub(super) fn hellos(self) -> Address {
        self.word(2)
    }
    pub(super) fn rung(self) -> Address {
        self.word(3)
    }
    pub(super) fn asleep(self) -> Address {
        self.word(4)
    }
    pub(super) fn bell(self, pair: usize) -> Address {
        self.word(5 + pair % BELLS)
    }

    /// Wakes the desk's thread if it sleeps.
    #[inline]
    pub(super) fn wake(self, here: Here<'_>) {
        if let Here::Mapped(host) = here
            && !self.0.is_null()
            && here.load(self.asleep()) == Host::ASLEEP
        {
            here.store(self.asleep(), Host::AWAKE);
            host.wake(self.asleep());
        }
    }

    /// The same by a chain, for a desk of a thread that maps the memory.
    pub(super) fn wake_by(self, chain: &mut RawChain) {
        if !self.0.is_null() {
            chain.compare_exchange(self.asleep(), Host::ASLEEP, Host::AWAKE);
        }
    }
}

/// A trustee's desk.
pub(super) struct Desk {
    pub(super) places: DeskPlaces,
    pub(super) objects: RefCell<Objects>,
    pairs: RefCell<Vec<Option<Box<Pair>>>>,
    /// Pairs whose slots are looked at in each round.
    active: RefCell<Vec<usize>>,
    /// Pairs whose last batch is executed, and not answered yet.
    parked: RefCell<Vec<usize>>,
    /// The counts of the bells that the trustee has heard.
    rung: Cell<u64>,
    bells: RefCell<[u64; BELLS]>,
    /// True once the thread leaves the desk: the pairs that have greeted it may be another owner's to take.
    is_left: Cell<bool>,
    /// True while pairs are being taken, over a network.
    is_greeting: Cell<bool>,
    is_closed: Cell<bool>,
}

/// Pairs are being taken while this lives.
pub(super) struct Greeting<'a>(&'a Cell<bool>);

impl Drop for Greeting<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// The trustee's side of a pair.
pub(super) struct Pair {
    slots: Slots,
    pub(super) client: ThreadId,
    /// The desk on whose word the client sleeps; null if it does not sleep on one.
    clients_desk: DeskPlaces,
    /// True if one of client and trustee maps the memory, and the other one does not: see [`slots`](super::slots).
    is_apart: bool,
    build: [u64; 2],
    /// The numbers of the next batches of its lanes.
    next: [u32; LANES],
    functions: Vec<Function>,
    is_active: bool,
    /// How often in a row its slots were empty.
    looks: u32,
    /// False once the pair is forgotten.
    is_open: Rc<Cell<bool>>,
    /// The numbers of the last batches that were answered.
    answered: Rc<[Cell<u32>; LANES]>,
    /// Its place among the objects that a sweep spares.
    held: u32,
    state: PairState,
    /// Results in far memory that the client has not read yet.
    results: Vec<Stored>,
    /// Its line, if the client has connected.
    line: Option<Line>,
}

/// What a pair's next batch waits for.
enum PairState {
    Ready,
    /// Arguments that are being read.
    Fetches(Batch),
    /// Results that are being written, or other trustees that have to know of handles in them.
    Answers(Answers),
}

/// A batch with arguments in far memory.
struct Batch {
    words: Vec<u64>,
    count: usize,
}

/// A result that does not fit: the place of the answer's words, and the result.
type Large = (usize, Vec<u64>);

/// The answers to a batch.
#[derive(Default)]
struct Answers {
    count: usize,
    words: Vec<u64>,
    /// Results that are to be stored in far memory.
    large: Vec<Large>,
    blocked: Option<Blocked>,
}

/// A function that the client has named.
struct Function {
    bound: Bound,
    /// Its description, for reports.
    described: Rc<str>,
}

enum Bound {
    Position { shim: Shim, function: NamedFunction },
    Method { fingerprint: u64 },
    Refused(Refusal),
}

impl Desk {
    pub(super) fn new(places: DeskPlaces, here: Here<'_>) -> Self {
        let bells = std::array::from_fn(|bell| here.load(places.bell(bell)));
        Self {
            places,
            objects: RefCell::default(),
            pairs: RefCell::default(),
            active: RefCell::default(),
            parked: RefCell::default(),
            rung: Cell::new(here.load(places.rung())),
            bells: RefCell::new(bells),
            is_left: Cell::new(false),
            is_greeting: Cell::new(false),
            is_closed: Cell::new(false),
        }
    }

    /// Returns the threads whose death is to be noticed.
    pub(super) fn others(&self) -> Vec<ThreadId> {
        let mut others = self.objects.borrow().sharers();
        others.extend(self.pairs.borrow().iter().flatten().map(|pair| pair.client));
        others.into_iter().collect()
    }

    /// Executes what has arrived. Returns whether there was anything.
    pub(super) fn serve(&self, delegation: &Rc<Delegation>, worker: &Worker, here: Here<'_>) -> bool {
        if self.is_closed.get() {
            return false;
        }
        let mut has_served = false;
        // The pairs of mailboxes are read first: see `read_desk`.
        if !here.is_mirrored() && !self.is_left.get() && here.load(self.places.hellos()) != 0 {
            self.greet(worker, here);
            has_served = true;
        }
        if here.is_mapped() {
            let rung = here.load(self.places.rung());
            if self.rung.replace(rung) != rung {
                self.listen(here);
            }
        } else {
            self.listen(here);
        }
        if !self.parked.borrow().is_empty() {
            has_served |= self.answer_parked(worker, here);
        }
        let mut place = 0;
        loop {
            let Some(number) = self.active.borrow().get(place).copied() else { break };
            // Taken out: delegated code may lead back here.
            let Some(mut pair) = self.pairs.borrow_mut()[number].take() else {
                self.active.borrow_mut().swap_remove(place);
                continue;
            };
            let served = self.serve_pair(delegation, worker, here, number, &mut pair);
            has_served |= served == Served::Some;
            let stays = match served {
                Served::Closed => {
                    pair.forget(worker, here);
                    self.active.borrow_mut().swap_remove(place);
                    has_served = true;
                    continue;
                }
                Served::Some => {
                    pair.looks = 0;
                    true
                }
                Served::None => {
                    pair.looks += u32::from(here.is_mapped());
                    match here {
                        Here::Mapped(_) => pair.looks < LOOKS || !pair.sleeps(here),
                        // All clients ring, and a look costs nothing when they have.
                        Here::Hosted(_) => false,
                        // All clients ring. A look that is taken along with that at the desk saves a round trip: see `rest`.
                        Here::Mirrored(_) => true,
                    }
                }
            };
            pair.is_active = stays;
            self.pairs.borrow_mut()[number] = Some(pair);
            if stays {
                place += 1;
            } else {
                self.active.borrow_mut().swap_remove(place);
            }
        }
        has_served
    }

    /// Executes what has arrived in the main lane of an active pair. Returns where its next batch arrives, if it does not wait for anything else.
    #[inline]
    pub(super) fn serve_slot(
        &self,
        delegation: &Rc<Delegation>,
        worker: &Worker,
        here: Here<'_>,
        number: usize,
    ) -> Option<Awaited> {
        let mut pair = self.pairs.borrow_mut().get_mut(number)?.take()?;
        let served = self.serve_main(delegation, worker, here, number, &mut pair);
        if served == Served::Closed {
            pair.forget(worker, here);
            self.active.borrow_mut().retain(|other| *other != number);
            return None;
        }
        pair.looks = 0;
        let is_ready = served == Served::Some && matches!(pair.state, PairState::Ready);
        let next = is_ready.then(|| pair.awaited(MAIN));
        self.pairs.borrow_mut()[number] = Some(pair);
        next
    }

    /// Takes the pairs that have said hello.
    fn greet(&self, worker: &Worker, here: Here<'_>) {
        let _guard = worker.pinned();
        let mut at = Address::from_bits(here.take(self.places.hellos()));
        while !at.is_null() {
            here.host(at, TRUSTEES_WORDS, &[]);
            let mut words = [0; head::WORDS];
            here.copy(at, &mut words);
            self.admit(worker, here, at, &words);
            at = Address::from_bits(words[head::NEXT]);
        }
    }

    /// Adds a pair, whose head has these words.
    pub(super) fn admit(&self, worker: &Worker, here: Here<'_>, at: Address, words: &[u64; head::WORDS]) {
        let is_mapped = words[head::IS_MAPPED] == 1;
        let slots = Slots::new(at, is_mapped);
        let clients_desk = desk_of(words);
        let client = ThreadId::of_word(words[head::CLIENT]);
        let is_mine = words[head::TRUSTEE] == worker.id().number().get();
        let Some(client) = client.filter(|_| is_mine) else {
            here.unhost(at);
            return tell(worker, here, slots, clients_desk, Notice::Gone(0), None);
        };
        let is_open = Rc::new(Cell::new(true));
        let pair = Pair {
            slots,
            client,
            clients_desk,
            is_apart: is_mapped != here.is_mapped(),
            build: [words[head::BUILD], words[head::BUILD + 1]],
            next: [1; LANES],
            functions: Vec::new(),
            is_active: true,
            is_open: Rc::clone(&is_open),
            answered: Rc::default(),
            looks: 0,
            held: worker.heap().holdings.hold(at, Content::Written),
            state: PairState::Ready,
            results: Vec::new(),
            line: None,
        };
        let may_be_called = here.is_mirrored() && !pair.is_apart;
        let number = {
            let mut pairs = self.pairs.borrow_mut();
            let free = pairs.iter().position(Option::is_none);
            let number = free.unwrap_or_else(|| {
                pairs.push(None);
                pairs.len() - 1
            });
            pairs[number] = Some(Box::new(pair));
            number
        };
        self.active.borrow_mut().push(number);
        #[cfg(target_os = "linux")]
        if let Some(address) = direct::listens(worker).filter(|_| may_be_called) {
            let write = move |worker: &Worker| {
                let mut chain = worker.empty_chain();
                chain.write(slots.address(), &address);
                chain
            };
            // It arrives before the notice.
            insist(worker, write, || false, |_, _| ());
        }
        let notice = Notice::Open { pair: number as u32, is_mapped: here.is_mapped() };
        tell(worker, here, slots, clients_desk, notice, Some(&is_open));
    }

    // ---- mailboxes ---------------------------------------------------------------------------------------------

    /// Returns what is to be read: the desk, and after it the next slots of the active pairs. So a batch whose bell is in what was read of the desk is found in
    /// its slot.
    pub(super) fn mailboxes(&self) -> Vec<Mailbox> {
        let mut mailboxes = vec![Mailbox::Words(self.places.0, DESK_WORDS)];
        let pairs = self.pairs.borrow();
        let active = self.active.borrow();
        let pairs = active.iter().filter_map(|number| pairs.get(*number)?.as_ref());
        mailboxes.extend(pairs.filter(|pair| pair.direct().is_none()).flat_map(|pair| pair.mailboxes()));
        mailboxes
    }

    /// Returns what is to be read of the pairs of a client. They are active then.
    pub(super) fn mailboxes_of(&self, client: ThreadId) -> Vec<Mailbox> {
        let (mut mailboxes, mut active) = (Vec::new(), self.active.borrow_mut());
        for (number, pair) in self.pairs.borrow_mut().iter_mut().enumerate() {
            let Some(pair) = pair.as_mut().filter(|pair| pair.client == client) else { continue };
            if pair.direct().is_none() {
                mailboxes.extend(pair.all_mailboxes());
            }
            pair.looks = 0;
            if !std::mem::replace(&mut pair.is_active, true) {
                active.push(number);
            }
        }
        mailboxes
    }

    // ---- lines -------------------------------------------------------------------------------------------------

    /// Returns the number of a client's pair.
    #[cfg(target_os = "linux")]
    pub(super) fn pair_of(&self, client: u64, at: Address) -> Option<usize> {
        let is_it =
            |pair: &Pair| pair.slots.block() == at && pair.client.number().get() == client && !pair.is_apart;
        self.pairs.borrow().iter().position(|pair| pair.as_deref().is_some_and(is_it))
    }

    /// Calls `f` with a pair's line.
    #[cfg(target_os = "linux")]
    pub(super) fn with_line(&self, number: usize, f: impl FnOnce(&mut Option<Line>)) {
        if let Some(Some(pair)) = self.pairs.borrow_mut().get_mut(number) {
            f(&mut pair.line);
        }
    }

    /// A note has arrived on a pair's line.
    #[cfg(target_os = "linux")]
    pub(super) fn hears(&self, number: usize) {
        if let Some(Some(pair)) = self.pairs.borrow_mut().get_mut(number) {
            pair.looks = 0;
            if !std::mem::replace(&mut pair.is_active, true) {
                self.active.borrow_mut().push(number);
            }
        }
    }

    /// Returns whether there is a connection to a thread.
    pub(super) fn is_linked_with(&self, client: ThreadId) -> bool {
        let is_linked =
            |pair: &Pair| pair.client == client && pair.line.as_ref().is_some_and(Line::is_linked);
        self.pairs.borrow().iter().flatten().any(|pair| is_linked(pair))
    }

    /// Forgets the pairs whose clients have given up their lines; those that had sent nothing use mailboxes.
    pub(super) fn forget_lost_lines(&self, worker: &Worker, here: Here<'_>) {
        for place in &mut *self.pairs.borrow_mut() {
            let Some(pair) = place else { continue };
            if !pair.line.as_ref().is_some_and(Line::has_ended) {
                continue;
            }
            if pair.direct().is_none() {
                pair.line = None;
            } else if matches!(pair.state, PairState::Ready)
                && let Some(pair) = place.take()
            {
                pair.forget(worker, here);
            }
        }
    }

    /// Returns whether a client maps the memory that this thread reaches over a network: what it writes is not forwarded.
    pub(super) fn has_clients_apart(&self) -> bool {
        self.pairs.borrow().iter().flatten().any(|pair| pair.is_apart)
    }

    /// Counts a look at the mailboxes. Pairs that were found empty often are not read before they ring. Those of clients apart are read while the desk is, again and again.
    pub(super) fn rest(&self) {
        let mut pairs = self.pairs.borrow_mut();
        self.active.borrow_mut().retain(|number| {
            let Some(Some(pair)) = pairs.get_mut(*number) else { return true };
            pair.looks += 1;
            pair.is_active = pair.looks < MAILBOX_LOOKS || pair.is_apart;
            pair.is_active
        });
    }

    /// Returns whether no pair is active.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.active.borrow().is_empty()
    }

    /// Returns whether batches are executed, and not answered yet.
    pub(super) fn is_answering(&self) -> bool {
        !self.parked.borrow().is_empty()
    }

    /// Adds the words by which others show that they have work.
    pub(super) fn awaited(&self, words: &mut Words) {
        if self.is_closed.get() {
            return;
        }
        words.push(Awaited::Changes { at: self.places.hellos(), from: 0 });
        words.push(Awaited::Changes { at: self.places.rung(), from: self.rung.get() });
        let pairs = self.pairs.borrow();
        for number in &*self.active.borrow() {
            if let Some(Some(pair)) = pairs.get(*number) {
                words.push(pair.awaited(EXPRESS));
                words.push_slot(pair.awaited(MAIN), *number);
            }
        }
    }

    /// Takes no pair any more: the desk is being left.
    pub(super) fn greets_no_more(&self) {
        self.is_left.set(true);
    }

    /// Begins to take pairs over a network. `None` if the desk is being left.
    pub(super) fn begins_greeting(&self) -> Option<Greeting<'_>> {
        if self.is_left.get() {
            return None;
        }
        self.is_greeting.set(true);
        Some(Greeting(&self.is_greeting))
    }

    /// Returns whether pairs are being taken over a network.
    pub(super) fn is_greeting(&self) -> bool {
        self.is_greeting.get()
    }

    /// Returns whether the desk is left to others.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Makes the pairs active whose bells were rung.
    fn listen(&self, here: Here<'_>) {
        let mut counts = [0; BELLS];
        here.copy(self.places.bell(0), &mut counts);
        for (bell, (heard, count)) in self.bells.borrow_mut().iter_mut().zip(counts).enumerate() {
            if std::mem::replace(heard, count) == count {
                continue;
            }
            let mut pairs = self.pairs.borrow_mut();
            for number in (bell..pairs.len()).step_by(BELLS) {
                if let Some(pair) = &mut pairs[number]
                    && !pair.is_active
                {
                    pair.is_active = true;
                    pair.looks = 0;
                    if here.is_mapped() {
                        here.store(pair.slots.head(head::ASLEEP), 0);
                    }
                    self.active.borrow_mut().push(number);
                }
            }
        }
    }

    // ---- batches -----------------------------------------------------------------------------------------------

    fn serve_pair(
        &self,
        delegation: &Rc<Delegation>,
        worker: &Worker,
        here: Here<'_>,
        number: usize,
        pair: &mut Pair,
    ) -> Served {
        let mut served = Served::None;
        while let Some(header) = pair.next_batch(here, EXPRESS) {
            served = Served::Some;
            self.serve_batch(delegation, worker, here, number, pair, EXPRESS, header);
            if delegation.has(Plant::RepeatedBatch) && matches!(pair.state, PairState::Ready) {
                pair.next[MAIN] = pair.next[MAIN].saturating_sub(1).max(1);
            }
        }
        let of_main = self.serve_main(delegation, worker, here, number, pair);
        if of_main == Served::None { served } else { of_main }
    }

    /// Executes what has arrived in the main lane of a pair.
    #[inline]
    fn serve_main(
        &self,
        delegation: &Rc<Delegation>,
        worker: &Worker,
        here: Here<'_>,
        number: usize,
        pair: &mut Pair,
    ) -> Served {
        let mut served = Served::None;
        for _ in 0..WINDOWS[MAIN] {
            if !matches!(pair.state, PairState::Ready) {
                break;
            }
            if delegation.has(Plant::ForgottenBatch) && pair.has_two(here) {
                pair.next[MAIN] += 1;
            }
            let Some(header) = pair.next_batch(here, MAIN) else { break };
            if header.kind == Kind::Close {
                pair.write_answers(worker, here, MAIN, &Answers::default());
                return Served::Closed;
            }
            served = Served::Some;
            self.serve_batch(delegation, worker, here, number, pair, MAIN, header);
        }
        served
    }

    #[allow(clippy::too_many_arguments)] // a batch, and where it comes from
    fn serve_batch(
        &self,
        delegation: &Rc<Delegation>,
        worker: &Worker,
        here: Here<'_>,
        number: usize,
        pair: &mut Pair,
        lane: usize,
        header: Header,
    ) {
        let (mut few, mut many);
        let words = if usize::from(header.words) <= FEW_WORDS {
            few = [0; FEW_WORDS];
            &mut few[..usize::from(header.words)]
        } else {
            many = [0; SLOT_WORDS];
            &mut many[..usize::from(header.words)]
        };
        here.copy(pair.slots.request(lane, header.batch).add(WORD_BYTES as u64), words);
        let count = usize::from(header.count);
        if lane == EXPRESS {
            // Its functions are the trustee's own, and wait for nothing.
            let mut answers = Answers::default();
            for (head, args) in requests(words, count) {
                if head.function == number::GIVE {
                    self.learn_of(head.object, args);
                }
                answers.words.push(Status::Done.to_word(0));
                answers.count += 1;
            }
            return pair.write_answers(worker, here, EXPRESS, &answers);
        }
        if !here.is_mapped() && requests(words, count).any(|(head, _)| head.is_far) {
            pair.state = PairState::Fetches(Batch { words: words.to_vec(), count });
            return delegation.begin(Job::Fetch(number));
        }
        self.execute(delegation, worker, here, number, pair, words, count, std::iter::empty());
    }

    /// Learns that an edge has passed from one thread to another.
    fn learn_of(&self, object: u32, args: &[u64]) {
        let (from, to) = (ThreadId::of_word(word(args, 0)), ThreadId::of_word(word(args, 1)));
        let unwanted = self.objects.borrow_mut().give(object, from, to, edge(args, 2));
        discard(unwanted);
    }

    /// Returns what a pair's arguments in far memory are, in order.
    pub(super) fn to_fetch(&self, number: usize) -> Vec<(Address, u64)> {
        let pairs = self.pairs.borrow();
        let Some(Some(pair)) = pairs.get(number) else { return Vec::new() };
        let PairState::Fetches(batch) = &pair.state else { return Vec::new() };
        let far = requests(&batch.words, batch.count).filter(|(head, _)| head.is_far);
        far.map(|(_, args)| (Address::from_bits(word(args, 0)), word(args, 1))).collect()
    }

    /// Executes a batch whose arguments were fetched.
    pub(super) fn fetched(
        &self,
        delegation: &Rc<Delegation>,
        worker: &Worker,
        here: Here<'_>,
        number: usize,
        far: Vec<Option<Vec<u64>>>,
    ) {
        let Some(mut pair) = self.pairs.borrow_mut().get_mut(number).and_then(Option::take) else { return };
        if let PairState::Fetches(batch) = std::mem::replace(&mut pair.state, PairState::Ready) {
            let far = far.into_iter();
            self.execute(delegation, worker, here, number, &mut pair, &batch.words, batch.count, far);
        }
        // The next batch may have rung while this one was in execution: its slot is to be looked at.
        pair.looks = 0;
        if !pair.is_active {
            pair.is_active = true;
            self.active.borrow_mut().push(number);
        }
        self.pairs.borrow_mut()[number] = Some(pair);
    }

    #[allow(clippy::too_many_arguments)] // a batch, and where it comes from
    fn execute(
        &self,
        delegation: &Rc<Delegation>,
        worker: &Worker,
        here: Here<'_>,
        number: usize,
        pair: &mut Pair,
        words: &[u64],
        count: usize,
        mut far: impl Iterator<Item = Option<Vec<u64>>>,
    ) {
        let mut answers = Answers { words: delegation.scratch(), ..Answers::default() };
        let (context, way) =
            (Context::new(delegation, pair.client), Way::new(Rc::downgrade(delegation), pair.client));
        let mut in_use = InUse::new(&self.objects);
        for (index, (head, args)) in requests(words, count).enumerate() {
            let fetched;
            let args = if head.is_far {
                fetched = match here {
                    Here::Mapped(host) => {
                        let words = host.words(Address::from_bits(word(args, 0)), word(args, 1) as usize);
                        let load = |words: &[std::sync::atomic::AtomicU64]| {
                            words.iter().map(|word| word.load(std::sync::atomic::Ordering::Acquire)).collect()
                        };
                        words.ok().map(load)
                    }
                    Here::Hosted(_) | Here::Mirrored(_) => far.next().flatten(),
                };
                fetched.as_deref()
            } else {
                Some(args)
            };
            let start = answers.words.len();
            answers.words.push(0);
            let status = self.run(worker, pair, &context, &way, &mut in_use, head, args, &mut answers.words);
            if way.has_gives() {
                let blocked = answers.blocked.get_or_insert_with(Rc::default);
                for give in way.take_gives() {
                    delegation.tell_of(give, blocked);
                }
                if delegation.has(Plant::LateGive) {
                    answers.blocked = None;
                }
            }
            let length = answers.words.len() - start - 1;
            let rest = (count - index - 1) * FAR_WORDS;
            answers.count += 1;
            if length <= MOST_INLINE && answers.words.len() + rest <= BATCH_WORDS {
                answers.words[start] = status.to_word(length);
            } else {
                let result = answers.words.split_off(start + 1);
                answers.words.extend([0; FAR_WORDS - 1]);
                // The status of a result that stays away.
                answers.words[start] = status.to_word(FAR_WORDS - 1);
                answers.large.push((start, result));
            }
        }
        let is_complete =
            answers.large.is_empty() && answers.blocked.as_ref().is_none_or(|blocked| blocked.get() == 0);
        if is_complete {
            // The client goes on while the last value is put back.
            pair.write_answers(worker, here, MAIN, &answers);
            delegation.keep_scratch(answers.words);
            return;
        }
        drop(in_use);
        if !answers.large.is_empty() {
            delegation.begin(Job::Store(number));
        }
        pair.state = PairState::Answers(answers);
        self.parked.borrow_mut().push(number);
    }

    /// Executes a request. Its result follows in `result`.
    #[allow(clippy::too_many_arguments)] // a request, and where it comes from
    fn run(
        &self,
        worker: &Worker,
        pair: &mut Pair,
        context: &Context<'_>,
        way: &Way,
        in_use: &mut InUse<'_>,
        head: RequestHead,
        args: Option<&[u64]>,
        result: &mut Vec<u64>,
    ) -> Status {
        let Some(args) = args else { return Status::Refused(Refusal::Undecodable) };
        if head.function >= number::FIRST {
            let Some(function) = pair.functions.get(usize::from(head.function - number::FIRST)) else {
                return Status::Refused(Refusal::Undecodable);
            };
            if let Some(sim) = worker.io.endpoint.virtual_time() {
                sim.compute(Work::RequestServed);
            }
            let (value, methods) = match in_use.take(head.object) {
                Ok(taken) => taken,
                Err(refusal) => return Status::Refused(refusal),
            };
            let (described, client) = (&function.described, pair.client);
            let _running = worker.waits_for(|| {
                format!("delegated code to return: `{described}`, requested by thread {client}")
            });
            return call(context, &function.bound, way, &mut **value, methods, args, result);
        }
        match head.function {
            number::BIND => pair.bind(args),
            number::DROP => {
                let unwanted =
                    self.objects.borrow_mut().drop_edge(head.object, Some(pair.client), edge(args, 0));
                discard(unwanted);
            }
            number::JOIN => {
                if !self.objects.borrow_mut().join(head.object, pair.client, edge(args, 0)) {
                    return Status::Refused(Refusal::NoSuchValue);
                }
            }
            number::RELEASE => {
                let at = word(args, 0);
                pair.results.retain(|result| result.place()[0] != at);
            }
            _ => return Status::Refused(Refusal::Undecodable),
        }
        Status::Done
    }

    // ---- answers -----------------------------------------------------------------------------------------------

    /// Writes the answers of parked batches that are complete. Returns whether there were any.
    fn answer_parked(&self, worker: &Worker, here: Here<'_>) -> bool {
        let parked = std::mem::take(&mut *self.parked.borrow_mut());
        let before = parked.len();
        let mut kept: Vec<usize> = Vec::new();
        for number in parked {
            let Some(mut pair) = self.pairs.borrow_mut().get_mut(number).and_then(Option::take) else {
                continue;
            };
            let state = std::mem::replace(&mut pair.state, PairState::Ready);
            match state {
                PairState::Answers(answers)
                    if answers.large.is_empty()
                        && answers.blocked.as_ref().is_none_or(|blocked| blocked.get() == 0) =>
                {
                    pair.write_answers(worker, here, MAIN, &answers);
                    pair.looks = 0;
                    if !pair.is_active {
                        pair.is_active = true;
                        self.active.borrow_mut().push(number);
                    }
                }
                state => {
                    pair.state = state;
                    kept.push(number);
                }
            }
            self.pairs.borrow_mut()[number] = Some(pair);
        }
        let has_answered = kept.len() < before;
        self.parked.borrow_mut().extend(kept);
        has_answered
    }

    /// Returns the results of a pair that are to be stored in far memory, with the address of the pair.
    pub(super) fn large_results(&self, number: usize) -> Option<(Address, Vec<Large>)> {
        let pairs = self.pairs.borrow();
        let pair = pairs.get(number)?.as_ref()?;
        let PairState::Answers(answers) = &pair.state else { return None };
        Some((pair.slots.block(), answers.large.clone()))
    }

    /// Puts the place of a stored result into the answers of a pair; `None` if it could not be stored.
    pub(super) fn stored(&self, number: usize, at: usize, stored: Option<Stored>) {
        let mut pairs = self.pairs.borrow_mut();
        let Some(Some(pair)) = pairs.get_mut(number) else { return };
        let PairState::Answers(answers) = &mut pair.state else { return };
        answers.large.retain(|(place, _)| *place != at);
        let status = Status::of(answers.words[at]).map(|(status, _)| status);
        let Some(stored) = stored else {
            answers.words[at] = Status::NoRoom.to_word(FAR_WORDS - 1);
            return;
        };
        // A message of a panic is never as long.
        let status = if status == Some(Status::Done) { Status::Far } else { Status::NoRoom };
        answers.words[at] = status.to_word(FAR_WORDS - 1);
        answers.words[at + 1..][..FAR_WORDS - 1].copy_from_slice(&stored.place());
        pair.results.push(stored);
    }

    // ---- ends --------------------------------------------------------------------------------------------------

    /// Another thread has ended: it will send no request, and has no handles.
    pub(super) fn thread_ended(&self, worker: &Worker, here: Here<'_>, thread: ThreadId) {
        let ended = |pair: &Option<Box<Pair>>| pair.as_ref().is_some_and(|pair| pair.client == thread);
        loop {
            let pair = self.pairs.borrow_mut().iter_mut().find(|pair| ended(pair)).and_then(Option::take);
            let Some(pair) = pair else { break };
            pair.forget(worker, here);
        }
        self.count_out(thread);
    }

    /// Removes the handles of a thread that has ended. Its last batch was executed: there may be handles in it.
    pub(super) fn count_out(&self, thread: ThreadId) {
        let unwanted = self.objects.borrow_mut().ended(thread);
        for value in unwanted {
            discard(Some(value));
        }
    }

    /// Drops the trustee's values.
    pub(super) fn drop_values(&self) {
        let values = self.objects.borrow_mut().clear();
        for value in values {
            discard(Some(value));
        }
    }

    /// Tells all clients that the trustee has gone, drops its values, and leaves the desk to others.
    pub(super) fn close(&self, worker: &Worker, here: Here<'_>) {
        if self.is_closed.replace(true) {
            return;
        }
        // A thread that has not left in order: whoever has greeted it finds that it is not live.
        if here.is_mapped() && !self.is_left.replace(true) {
            here.store(self.places.owner(), 0);
        }
        self.drop_values();
        let pairs = std::mem::take(&mut *self.pairs.borrow_mut());
        for pair in pairs.into_iter().flatten() {
            let executed = match pair.state {
                PairState::Answers(_) => pair.next[MAIN],
                _ => pair.next[MAIN].wrapping_sub(1),
            };
            let (slots, clients_desk, notice) = (pair.slots, pair.clients_desk, Notice::Gone(executed));
            // Behind the last answers. Without any, the client may have given up the line.
            let line = pair.line.as_ref().filter(|line| line.is_linked());
            line.inspect(|line| line.send_word(slots.notice(), notice.to_word()));
            let is_told = line.is_some_and(Line::has_carried);
            pair.forget(worker, here);
            if !is_told {
                tell(worker, here, slots, clients_desk, notice, None);
            }
        }
        self.active.borrow_mut().clear();
        self.parked.borrow_mut().clear();
        here.unhost(self.places.0);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    None,
    Some,
    /// The client has closed the pair.
    Closed,
}

impl Pair {
    /// Returns the header of the next batch of a lane, if it has arrived.
    #[inline]
    fn next_batch(&self, here: Here<'_>, lane: usize) -> Option<Header> {
        let batch = self.next[lane];
        let header = Header::of(here.load(self.slots.request(lane, batch)), batch)?;
        (header.kind != Kind::Answers).then_some(header)
    }

    /// Returns the word by which the next batch of a lane shows.
    #[inline]
    fn awaited(&self, lane: usize) -> Awaited {
        let batch = self.next[lane];
        Header::awaited(self.slots.request(lane, batch), batch, None)
    }

    /// Returns the pair's line, if its batches arrive there.
    fn direct(&self) -> Option<&Line> {
        self.line.as_ref().filter(|line| line.has_carried())
    }

    /// Returns the slots of the next batch of each lane.
    fn mailboxes(&self) -> [Mailbox; LANES] {
        std::array::from_fn(|lane| Mailbox::Slot(self.slots.request(lane, self.next[lane])))
    }

    /// Returns all slots of requests that may have arrived.
    fn all_mailboxes(&self) -> impl Iterator<Item = Mailbox> {
        WINDOWS.into_iter().enumerate().flat_map(move |(lane, window)| {
            let batches = (0..window).map(move |ahead| self.next[lane].wrapping_add(ahead));
            batches.map(move |batch| Mailbox::Slot(self.slots.request(lane, batch)))
        })
    }

    /// Announces that its slots are not looked at any more. Returns `false` if a batch has arrived meanwhile.
    fn sleeps(&mut self, here: Here<'_>) -> bool {
        here.store(self.slots.head(head::ASLEEP), 1);
        here.fence();
        if (0..LANES).all(|lane| self.next_batch(here, lane).is_none()) {
            return true;
        }
        here.store(self.slots.head(head::ASLEEP), 0);
        self.looks = 0;
        false
    }

    /// Writes the answers to the next batch of a lane. The next one may be executed.
    fn write_answers(&mut self, worker: &Worker, here: Here<'_>, lane: usize, answers: &Answers) {
        let batch = self.next[lane];
        self.next[lane] = batch.wrapping_add(1);
        let header = Header {
            batch,
            count: answers.count as u8,
            words: answers.words.len() as u8,
            kind: Kind::Answers,
        };
        let slot = self.slots.answer(lane, batch);
        if let Here::Mapped(host) = here {
            Here::write_batch(host, slot, &answers.words, header);
            return self.clients_desk.wake(here);
        }
        if let Some(line) = self.direct() {
            return line.send_batch(slot, header, &answers.words);
        }
        let words = answers.words.clone();
        let clients_desk = self.clients_desk;
        let write = move |worker: &Worker| {
            let mut chain = worker.empty_chain();
            if !words.is_empty() {
                chain.write(slot.add(WORD_BYTES as u64), &words);
            }
            chain.write(slot, &[header.to_word()]);
            clients_desk.wake_by(&mut chain);
            chain
        };
        // Once the next batch of the slot is answered, these answers must not be written again; nor need they be, since the client has read them.
        self.answered[lane].set(batch);
        let (is_open, answered) = (Rc::clone(&self.is_open), Rc::clone(&self.answered));
        let is_wanted = move || is_open.get() && answered[lane].get().wrapping_sub(batch) < WINDOWS[lane];
        insist(worker, write, is_wanted, |_, _| ());
    }

    /// Forgets the pair, whose client has closed it, or is dead.
    fn forget(self, worker: &Worker, here: Here<'_>) {
        // The client may free the words once it has the last answers, so those are not written again.
        self.is_open.set(false);
        here.unhost(self.slots.block());
        worker.heap().holdings.release(self.held);
    }

    /// Returns whether the next two batches have arrived.
    fn has_two(&self, here: Here<'_>) -> bool {
        let batch = self.next[MAIN];
        let has = |batch| Header::of(here.load(self.slots.request(MAIN, batch)), batch).is_some();
        has(batch) && has(batch.wrapping_add(1))
    }

    /// Gives a number to a function.
    fn bind(&mut self, args: &[u64]) {
        let expected = self.functions.len() as u64 + u64::from(number::FIRST);
        if word(args, 0) != expected {
            return;
        }
        let build = [word(args, 5), word(args, 6)];
        let bound = if word(args, 1) == 1 {
            Bound::Method { fingerprint: word(args, 2) }
        } else if build != program::build() || self.build != build {
            Bound::Refused(Refusal::OtherBuild)
        } else {
            let name = FunctionName { signature: word(args, 2), function: word(args, 3), tag: word(args, 4) };
            match program::resolve::<Shim>(name) {
                Some((shim, function)) => Bound::Position { shim, function },
                None => Bound::Refused(Refusal::OtherBuild),
            }
        };
        let described = String::read(&mut Reader::new(args.get(7..).unwrap_or_default(), &()));
        let described = described.unwrap_or_default().into();
        self.functions.push(Function { bound, described });
    }
}

/// The value that a batch's last request was for. Those that follow are mostly for the same one.
struct InUse<'a> {
    objects: &'a RefCell<Objects>,
    last: Option<(u32, Taken)>,
}

impl<'a> InUse<'a> {
    fn new(objects: &'a RefCell<Objects>) -> Self {
        Self { objects, last: None }
    }

    /// Returns a value, and its methods.
    #[inline]
    fn take(&mut self, object: u32) -> Result<(&mut Box<dyn Any>, &'static [Method]), Refusal> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != object) {
            self.put_back();
            self.last = Some((object, self.objects.borrow_mut().take(object)?));
        }
        let Some((_, (value, methods))) = &mut self.last else { return Err(Refusal::NoSuchValue) };
        Ok((value, methods))
    }

    fn put_back(&mut self) {
        if let Some((object, (value, _))) = self.last.take() {
            let unwanted = self.objects.borrow_mut().put(object, value);
            discard(unwanted);
        }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// Calls a function with a value.
fn call(
    context: &Context<'_>,
    bound: &Bound,
    way: &Way,
    value: &mut dyn Any,
    methods: &'static [Method],
    args: &[u64],
    result: &mut Vec<u64>,
) -> Status {
    let start = result.len();
    let called = catch_unwind(AssertUnwindSafe(|| {
        let (mut args, mut writer) = (Reader::new(args, way), Writer::new(result, way));
        match bound {
            Bound::Position { shim, function } => shim(*function, value, context, &mut args, &mut writer),
            Bound::Method { fingerprint } => {
                let method = methods.iter().find(|method: &&Method| method.fingerprint == *fingerprint);
                let method = method.ok_or(Refusal::NoSuchMethod)?;
                (method.shim)(value, context, &mut args, &mut writer).map_err(|refused| refused.0)
            }
            Bound::Refused(refusal) => Err(*refusal),
        }
    }));
    match called {
        Ok(Ok(())) => Status::Done,
        Ok(Err(refusal)) => {
            result.truncate(start);
            Status::Refused(refusal)
        }
        Err(panic) => {
            result.truncate(start);
            let mut message = first_line(panic);
            while message.len() > 256 {
                message.pop();
            }
            message.write(&mut Writer::new(result, way));
            Status::Panicked
        }
    }
}

/// Returns the desk on whose word the client of a pair with this head sleeps; null if it does not sleep on one.
fn desk_of(words: &[u64; head::WORDS]) -> DeskPlaces {
    DeskPlaces(Address::from_bits(if words[head::IS_MAPPED] == 1 { words[head::DESK] } else { 0 }))
}

/// Writes a pair's notice, and wakes its client; again and again while the pair is open. Without a pair once: the client may free the words when it has read it.
pub(super) fn tell(
    worker: &Worker,
    here: Here<'_>,
    slots: Slots,
    clients_desk: DeskPlaces,
    notice: Notice,
    is_open: Option<&Rc<Cell<bool>>>,
) {
    match here {
        Here::Mapped(_) => {
            here.store(slots.notice(), notice.to_word());
            here.fence();
            clients_desk.wake(here);
        }
        Here::Hosted(_) | Here::Mirrored(_) => {
            let write = move |worker: &Worker| {
                let mut chain = worker.empty_chain();
                chain.write(slots.notice(), &[notice.to_word()]);
                clients_desk.wake_by(&mut chain);
                chain
            };
            let is_open = is_open.map(Rc::clone);
            insist(worker, write, move || is_open.as_ref().is_some_and(|is_open| is_open.get()), |_, _| ());
        }
    }
}

/// Drops a value of a program, which may panic.
pub(super) fn discard(value: Option<Box<dyn Any>>) {
    if let Some(value) = value {
        // The trustee lives on. The panic was reported by its hook.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
    }
}

fn edge(words: &[u64], index: usize) -> u128 {
    u128::from(word(words, index)) | u128::from(word(words, index + 1)) << 64
}

fn word(words: &[u64], index: usize) -> u64 {
    words.get(index).copied().unwrap_or(0)
}

/// Returns the requests of a batch. One whose words are missing has none.
fn requests(mut words: &[u64], count: usize) -> impl Iterator<Item = (RequestHead, &[u64])> {
    (0..count).map(move |_| {
        let Some((first, rest)) = words.split_first() else {
            return (RequestHead { function: u16::MAX, object: 0, words: 0, is_far: false }, &[][..]);
        };
        let head = RequestHead::of(*first);
        let (args, rest) = rest.split_at_checked(usize::from(head.words)).unwrap_or((rest, &[]));
        words = rest;
        (head, args)
    })
}
