//! The trustee's side: its desk, the pairs of its clients, and the execution of their batches.
//!
//! A *desk* is an object of 4 lines in far memory, by which clients find their trustee:
//!
//! | word | contents | written by |
//! |---|---|---|
//! | next | the next desk of the cluster | whoever made it |
//! | owner | the trustee's identity, or 0 | the trustee, by CAS |
//! | hellos | the newest pair that the trustee does not know yet; each has the address of the next | clients, by CAS; the trustee takes all |
//! | rung | how often any bell was rung; only where the memory is mapped | clients, by FAA |
//! | bells | 28 counts: pair `n` rings bell `n` modulo 28 | clients, by FAA |
//!
//! So a trustee looks at one line, whoever its clients are. A pair whose client sends batches is *active*: the trustee looks at its slots, too, until it has
//! found them empty for a while. Then it writes `asleep`, and looks once more; the client writes its header, and then reads `asleep`. With a fence between the two
//! on both sides, one of them sees the other's word: no batch is overlooked. Where the memory is not mapped, clients always ring, in the chain after the batch. There
//! the trustee looks at all bells, in four lines, since a second FAA would occupy its NIC for longer.
//!
//! Desks are never freed, but used again. So an old handle of an ended trustee finds a desk, with another owner. A pair that greets the wrong owner is told that its
//! trustee has gone, by whoever finds it: the owner, or the client itself, which reads the owner after its hello and then takes the hellos.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use super::caller::Blocked;
use super::context::Context;
use super::function::{Method, Shim};
use super::objects::Objects;
use super::slots::{
    BATCH_WORDS, FAR_WORDS, Header, Here, Kind, MOST_INLINE, Notice, Refusal, RequestHead, SLOT_WORDS, Slots,
    Status, TRUSTEES_WORDS, WINDOW, head, number,
};
use super::state::{Delegation, Job};
use super::way::Way;
use crate::cell::{Blob, Owned};
use crate::io::operations::*;
use crate::memory::holdings::Content;
use crate::memory::worker::Worker;
use farfield_fabric::host::first_line;
use farfield_fabric::program::{self, FunctionName, NamedFunction};
use farfield_words::{Address, Message as _, Reader, ThreadId, WORD_BYTES, Writer};

/// The bells of a desk.
pub(super) const BELLS: usize = 28;
/// The words of a desk.
pub(super) const DESK_WORDS: usize = 4 + BELLS;

/// How often a trustee looks at the empty slots of a pair before it waits for the bell.
const LOOKS: u32 = 20_000;

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
    pub(super) fn bell(self, pair: usize) -> Address {
        self.word(4 + pair % BELLS)
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
    is_closed: Cell<bool>,
}

/// The trustee's side of a pair.
pub(super) struct Pair {
    slots: Slots,
    pub(super) client: ThreadId,
    build: [u64; 2],
    /// The number of the next batch.
    next: u32,
    functions: Vec<Bound>,
    is_active: bool,
    /// How often in a row its slots were empty.
    looks: u32,
    /// Its place among the objects that a sweep spares.
    held: u32,
    state: PairState,
    /// Results in far memory that the client has not read yet.
    results: Vec<Owned<Blob>>,
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

/// The answers to a batch.
#[derive(Default)]
struct Answers {
    count: usize,
    words: Vec<u64>,
    /// Results that do not fit: the place of the answer's words, and the result.
    large: Vec<(usize, Vec<u64>)>,
    blocked: Option<Blocked>,
}

/// A function that the client has named.
#[derive(Clone)]
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
            is_closed: Cell::new(false),
        }
    }

    /// Returns whether clients may send requests.
    pub(super) fn has_clients(&self) -> bool {
        !self.objects.borrow().is_empty() || self.pairs.borrow().iter().any(Option::is_some)
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
        if here.load(self.places.hellos()) != 0 {
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
                    self.forget(worker, here, *pair);
                    self.active.borrow_mut().swap_remove(place);
                    has_served = true;
                    continue;
                }
                Served::Some => {
                    pair.looks = 0;
                    true
                }
                Served::None => {
                    pair.looks += 1;
                    // In the simulator all clients ring.
                    here.is_mapped() && (pair.looks < LOOKS || !self.sleep(here, &mut pair))
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

    /// Announces that the pair's slots are not looked at any more. Returns `false` if a batch has arrived meanwhile.
    fn sleep(&self, here: Here<'_>, pair: &mut Pair) -> bool {
        here.store(pair.slots.head(head::ASLEEP), 1);
        here.fence();
        if Header::of(here.load(pair.slots.request(pair.next)), pair.next)
            .is_none_or(|header| header.kind == Kind::Answers)
        {
            return true;
        }
        here.store(pair.slots.head(head::ASLEEP), 0);
        pair.looks = 0;
        false
    }

    /// Takes the pairs that have said hello.
    fn greet(&self, worker: &Worker, here: Here<'_>) {
        let _guard = worker.pinned();
        let me = worker.id();
        let mut at = Address::from_bits(here.take(self.places.hellos()));
        while !at.is_null() {
            let slots = Slots::new(at, here.is_mapped());
            if let Here::Hosted(sim) = here {
                sim.host(at, TRUSTEES_WORDS);
            }
            let mut words = [0; head::WORDS];
            here.copy(at, &mut words);
            let next = Address::from_bits(words[head::NEXT]);
            let client = ThreadId::of_word(words[head::CLIENT]);
            let is_mine = words[head::TRUSTEE] == me.number().get() && !self.is_closed.get();
            match client.filter(|_| is_mine) {
                None => {
                    if let Here::Hosted(sim) = here {
                        sim.unhost(at);
                    }
                    tell(worker, here, slots, Notice::Gone(0));
                }
                Some(client) => {
                    let pair = Pair {
                        slots,
                        client,
                        build: [words[head::BUILD], words[head::BUILD + 1]],
                        next: 1,
                        functions: Vec::new(),
                        is_active: true,
                        looks: 0,
                        held: worker.heap().holdings.hold(at, Content::Written),
                        state: PairState::Ready,
                        results: Vec::new(),
                    };
                    let mut pairs = self.pairs.borrow_mut();
                    let free = pairs.iter().position(Option::is_none);
                    let number = free.unwrap_or_else(|| {
                        pairs.push(None);
                        pairs.len() - 1
                    });
                    pairs[number] = Some(Box::new(pair));
                    self.active.borrow_mut().push(number);
                    tell(worker, here, slots, Notice::Open(number as u32));
                }
            }
            at = next;
        }
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
        for _ in 0..WINDOW {
            if !matches!(pair.state, PairState::Ready) {
                break;
            }
            let batch = pair.next;
            let slot = pair.slots.request(batch);
            let Some(header) = Header::of(here.load(slot), batch) else { break };
            if header.kind == Kind::Answers {
                break;
            }
            if header.kind == Kind::Close {
                self.write_answers(worker, here, pair, &Answers::default());
                return Served::Closed;
            }
            served = Served::Some;
            let mut words = [0; SLOT_WORDS];
            let words = &mut words[..usize::from(header.words)];
            here.copy(slot.add(WORD_BYTES as u64), words);
            let count = usize::from(header.count);
            if !here.is_mapped() && requests(words, count).any(|(head, _)| head.is_far) {
                pair.state = PairState::Fetches(Batch { words: words.to_vec(), count });
                delegation.begin(Job::Fetch(number));
                break;
            }
            self.execute(delegation, worker, here, number, pair, words, count, None);
        }
        served
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
            self.execute(delegation, worker, here, number, &mut pair, &batch.words, batch.count, Some(far));
        }
        if !pair.is_active {
            // The next batch may have rung while this one was in execution.
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
        far: Option<Vec<Option<Vec<u64>>>>,
    ) {
        let mut far = far.into_iter().flatten();
        let mut answers = Answers { words: delegation.scratch(), ..Answers::default() };
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
                    Here::Hosted(_) => far.next().flatten(),
                };
                fetched.as_deref()
            } else {
                Some(args)
            };
            let start = answers.words.len();
            answers.words.push(0);
            let way = Way::new(delegation, pair.client);
            let status = self.run(delegation, pair, &way, head, args, &mut answers.words);
            let gives = way.into_gives();
            if !gives.is_empty() {
                let blocked = answers.blocked.get_or_insert_with(Rc::default);
                gives.into_iter().for_each(|give| delegation.tell_of(give, blocked));
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
            self.write_answers(worker, here, pair, &answers);
            delegation.keep_scratch(answers.words);
            return;
        }
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
        delegation: &Rc<Delegation>,
        pair: &mut Pair,
        way: &Way,
        head: RequestHead,
        args: Option<&[u64]>,
        result: &mut Vec<u64>,
    ) -> Status {
        let Some(args) = args else { return Status::Refused(Refusal::Undecodable) };
        if head.function >= number::FIRST {
            let Some(bound) = pair.functions.get(usize::from(head.function - number::FIRST)) else {
                return Status::Refused(Refusal::Undecodable);
            };
            let context = Context::new(delegation, pair.client);
            return self.call(&context, bound, way, head.object, args, result);
        }
        let edge = |at: usize| u128::from(word(args, at)) | u128::from(word(args, at + 1)) << 64;
        match head.function {
            number::BIND => pair.bind(args),
            number::DROP => {
                let unwanted = self.objects.borrow_mut().drop_edge(head.object, Some(pair.client), edge(0));
                discard(unwanted);
            }
            number::GIVE => {
                let (from, to) = (ThreadId::of_word(word(args, 0)), ThreadId::of_word(word(args, 1)));
                let unwanted = self.objects.borrow_mut().give(head.object, from, to, edge(2));
                discard(unwanted);
            }
            number::JOIN => {
                if !self.objects.borrow_mut().join(head.object, pair.client, edge(0)) {
                    return Status::Refused(Refusal::NoSuchValue);
                }
            }
            number::RELEASE => {
                let at = word(args, 0);
                pair.results.retain(|result| words_of(result).bits() != at);
            }
            _ => return Status::Refused(Refusal::Undecodable),
        }
        Status::Done
    }

    /// Calls a function with a value.
    fn call(
        &self,
        context: &Context<'_>,
        bound: &Bound,
        way: &Way,
        object: u32,
        args: &[u64],
        result: &mut Vec<u64>,
    ) -> Status {
        let taken = self.objects.borrow_mut().take(object);
        let (mut value, methods) = match taken {
            None => return Status::Refused(Refusal::NoSuchValue),
            Some(None) => return Status::Refused(Refusal::InUse),
            Some(Some(taken)) => taken,
        };
        let start = result.len();
        let called = catch_unwind(AssertUnwindSafe(|| {
            let (mut args, mut writer) = (Reader::new(args, way), Writer::new(result, way));
            match bound {
                Bound::Position { shim, function } => {
                    shim(*function, &mut *value, context, &mut args, &mut writer)
                }
                Bound::Method { fingerprint } => {
                    let method = methods.iter().find(|method: &&Method| method.fingerprint == *fingerprint);
                    let method = method.ok_or(Refusal::NoSuchMethod)?;
                    (method.shim)(&mut *value, context, &mut args, &mut writer).map_err(|refused| refused.0)
                }
                Bound::Refused(refusal) => Err(*refusal),
            }
        }));
        let unwanted = self.objects.borrow_mut().put(object, value);
        discard(unwanted);
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

    // ---- answers -----------------------------------------------------------------------------------------------

    /// Writes the answers to a pair's batch. The next one may be executed.
    fn write_answers(&self, worker: &Worker, here: Here<'_>, pair: &mut Pair, answers: &Answers) {
        let batch = pair.next;
        pair.next = batch.wrapping_add(1);
        let header = Header {
            batch,
            count: answers.count as u8,
            words: answers.words.len() as u8,
            kind: Kind::Answers,
        };
        let slot = pair.slots.answer(batch);
        if here.is_mapped() {
            return here.write_batch(slot, &answers.words, header);
        }
        let mut chain = worker.empty_chain();
        if !answers.words.is_empty() {
            chain.write(slot.add(WORD_BYTES as u64), &answers.words);
        }
        chain.write(slot, &[header.to_word()]);
        worker.submit_detached(chain, |_, _| ());
    }

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
                    self.write_answers(worker, here, &mut pair, &answers);
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
    pub(super) fn large_results(&self, number: usize) -> Option<(Address, Vec<(usize, Vec<u64>)>)> {
        let pairs = self.pairs.borrow();
        let pair = pairs.get(number)?.as_ref()?;
        let PairState::Answers(answers) = &pair.state else { return None };
        Some((pair.slots.block(), answers.large.clone()))
    }

    /// Puts the place of a stored result into the answers of a pair; `None` if it could not be stored.
    pub(super) fn stored(&self, number: usize, at: usize, stored: Option<(Owned<Blob>, usize)>) {
        let mut pairs = self.pairs.borrow_mut();
        let Some(Some(pair)) = pairs.get_mut(number) else { return };
        let PairState::Answers(answers) = &mut pair.state else { return };
        answers.large.retain(|(place, _)| *place != at);
        let status = Status::of(answers.words[at]).map(|(status, _)| status);
        let Some((blob, words)) = stored else {
            answers.words[at] = Status::NoRoom.to_word(FAR_WORDS - 1);
            return;
        };
        // A message of a panic is never as long.
        let status = if status == Some(Status::Done) { Status::Far } else { Status::NoRoom };
        answers.words[at] = status.to_word(FAR_WORDS - 1);
        answers.words[at + 1] = words_of(&blob).bits();
        answers.words[at + 2] = words as u64;
        pair.results.push(blob);
    }

    // ---- ends --------------------------------------------------------------------------------------------------

    /// Forgets a pair whose client has closed it, or is dead.
    fn forget(&self, worker: &Worker, here: Here<'_>, pair: Pair) {
        if let Here::Hosted(sim) = here {
            sim.unhost(pair.slots.block());
        }
        worker.heap().holdings.release(pair.held);
    }

    /// Another thread has ended: it will send no request, and has no handles.
    pub(super) fn thread_ended(&self, worker: &Worker, here: Here<'_>, thread: ThreadId) {
        let ended = |pair: &Option<Box<Pair>>| pair.as_ref().is_some_and(|pair| pair.client == thread);
        loop {
            let pair = self.pairs.borrow_mut().iter_mut().find(|pair| ended(pair)).and_then(Option::take);
            let Some(pair) = pair else { break };
            self.forget(worker, here, *pair);
        }
        let unwanted = self.objects.borrow_mut().ended(thread);
        unwanted.into_iter().for_each(|value| discard(Some(value)));
    }

    /// Drops the trustee's values.
    pub(super) fn drop_values(&self) {
        let values = self.objects.borrow_mut().clear();
        values.into_iter().for_each(|value| discard(Some(value)));
    }

    /// Tells all clients that the trustee has gone, drops its values, and leaves the desk to others.
    pub(super) fn close(&self, worker: &Worker, here: Here<'_>) {
        if self.is_closed.replace(true) {
            return;
        }
        // Whoever greets the desk after that finds another owner.
        here.store(self.places.owner(), 0);
        here.fence();
        self.greet(worker, here);
        self.drop_values();
        let pairs = std::mem::take(&mut *self.pairs.borrow_mut());
        for pair in pairs.into_iter().flatten() {
            let executed = match pair.state {
                PairState::Answers(_) => pair.next,
                _ => pair.next.wrapping_sub(1),
            };
            let slots = pair.slots;
            self.forget(worker, here, *pair);
            tell(worker, here, slots, Notice::Gone(executed));
        }
        self.active.borrow_mut().clear();
        self.parked.borrow_mut().clear();
        if let Here::Hosted(sim) = here {
            sim.unhost(self.places.0);
        }
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
        self.functions.push(bound);
    }
}

/// Writes a pair's notice.
pub(super) fn tell(worker: &Worker, here: Here<'_>, slots: Slots, notice: Notice) {
    match here {
        Here::Mapped(_) => here.store(slots.notice(), notice.to_word()),
        Here::Hosted(_) => {
            let mut chain = worker.empty_chain();
            chain.write(slots.notice(), &[notice.to_word()]);
            worker.submit_detached(chain, |_, _| ());
        }
    }
}

/// Returns the address of the words in a blob.
pub(super) fn words_of(blob: &Owned<Blob>) -> Address {
    blob.as_ptr().address().add(WORD_BYTES as u64)
}

/// Drops a value of a program, which may panic.
pub(super) fn discard(value: Option<Box<dyn Any>>) {
    if let Some(value) = value {
        // The trustee lives on. The panic was reported by its hook.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
    }
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
