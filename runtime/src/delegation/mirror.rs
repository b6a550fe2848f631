//! Mailboxes: delegation where no process can write another one's memory.
//!
//! Desks and pairs lie on a memory node, as everywhere. What a thread would find in its own memory elsewhere, the words that others write for it, it reads again and
//! again, into a copy, the *mirror*; all other code is that of hosted memory. So a request takes two round trips at least, and on average about three: a WRITE there,
//! a READ that finds it, a WRITE of the answer, and a READ of it, where each READ finds what has arrived when it takes effect.
//!
//! 1. Of a slot, the header is read first, and its words by a later READ of the same chain. They were written before the header, and are not written again before the
//!    batch is answered; so the words are those of the header.
//! 2. A trustee reads its desk first, and then the slots of active pairs. A client rings after it has written a batch. So if the desk shows that a client has rung, its
//!    batch is found in a slot that is read after the desk: in the same look if the pair is active, or else in the next one.
//! 3. A pair's words may be freed, and be those of another one, while a READ is under way. Each range of the mirror has a number of its own, and what was read for
//!    another number is discarded.
//!
//! After a look without a result comes another one at once, 32 times in a row. After that, looks are separated by pauses that grow to a millisecond for desks, so that an idle trustee leaves the
//! memory node alone, and to an eighth of that for answers.
//!
//! # Watched mailboxes
//!
//! On `tcp:` a memory node forwards what others write to a mailbox: the thread *watches* it, sleeps on its sockets, and the mirror is changed by what arrives. So a request takes four ways,
//! to the memory node and on to the trustee, and back in the same manner: two round trips; if the two threads can not [connect](super::direct) to each other. Watched mailboxes are read every 20 ms only: a watch ends with its connection, and each READ renews it.
//!
//! What a process writes that maps the memory is not forwarded. So the mailboxes of a trustee or a client that is *apart* are read like unwatched ones: by a client while it awaits answers, and by
//! a trustee while such a client has a pair. The pair's greeting is found within 20 ms.
//!
//! 4. A mailbox is watched before it is read, on the same lane, and forwarded words arrive in the order in which they were written; so the mirror has each change of a word from
//!    the READ on. The thread may take a READ's words after changes that followed it: then they are discarded, and an older state never follows a newer one.
//! 5. Forwarded words have the number of the range for which they were watched, as in 3.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::attend::peek_patiently;
use super::slots::{BATCH_WORDS, Here, head};
use super::state::Delegation;
use crate::error::{Error, Result};
use crate::io::operations::*;
use crate::memory::worker::Worker;
use crate::session::ComputeThread;
use farfield_sim::Plant;
use farfield_words::{Address, WORD_BYTES};

/// The mailboxes that are read by one chain.
const CHAIN_MAILBOXES: usize = 24;
/// The looks without a result before a pause.
const EAGER_LOOKS: u32 = 32;
/// The first pause. In the simulator, half a round trip.
const PAUSE: Duration = Duration::from_micros(8);
/// How often pauses are doubled, for desks and for answers.
const DESK_DOUBLINGS: u32 = 7;
const ANSWER_DOUBLINGS: u32 = 4;
/// The pause between two looks at mailboxes that are watched.
const WATCHED_PAUSE: Duration = Duration::from_millis(20);

/// Words on a memory node that others write for this thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mailbox {
    /// Words that are independent of each other.
    Words(Address, usize),
    /// A slot: a header, and the words of its batch.
    Slot(Address),
}

impl Mailbox {
    fn at(self) -> Address {
        match self {
            Self::Words(at, _) | Self::Slot(at) => at,
        }
    }
}

/// A thread's copy of its mailboxes.
#[derive(Default)]
pub(super) struct Mirror {
    /// By the bits of the first word's address.
    ranges: RefCell<BTreeMap<u64, Range>>,
    added: Cell<u64>,
    is_awaiting: Cell<bool>,
    /// Ranges that were removed, and are watched still.
    unwatched: RefCell<Vec<Address>>,
}

struct Range {
    words: Vec<u64>,
    number: u64,
    is_watched: bool,
    /// The changes that were forwarded.
    changes: u64,
}

/// A range when a READ of it was posted: its number, and the changes until then.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    number: u64,
    changes: u64,
}

impl Range {
    fn version(&self) -> Version {
        Version { number: self.number, changes: self.changes }
    }
}

impl Mirror {
    /// Makes a mirror whose ranges have numbers from a random one on: a lane may still have what was forwarded to another thread.
    pub(super) fn numbered_from(first: u64) -> Self {
        Self { added: Cell::new(first), ..Self::default() }
    }

    /// Adds words, of which the first have these values.
    pub(super) fn add(&self, at: Address, words: usize, first: &[u64]) {
        let mut copied = first.to_vec();
        copied.resize(words, 0);
        self.added.set(self.added.get().wrapping_add(1));
        self.ranges.borrow_mut().insert(
            at.bits(),
            Range { words: copied, number: self.added.get(), is_watched: false, changes: 0 },
        );
    }

    pub(super) fn remove(&self, at: Address) {
        let removed = self.ranges.borrow_mut().remove(&at.bits());
        if removed.is_some_and(|range| range.is_watched) {
            self.unwatched.borrow_mut().push(at);
        }
    }

    /// Watches the range that begins here, if the network can.
    pub(super) fn watch(&self, worker: &Worker, at: Address) {
        self.unwatch_removed(worker);
        if let Some(range) = self.ranges.borrow_mut().get_mut(&at.bits()) {
            range.is_watched = worker.io.endpoint.watch(at, range.words.len(), range.number);
        }
    }

    /// Ends the watches of ranges that were removed.
    pub(super) fn unwatch_removed(&self, worker: &Worker) {
        if !self.unwatched.borrow().is_empty() {
            self.unwatched.take().into_iter().for_each(|at| worker.io.endpoint.unwatch(at));
        }
    }

    /// Returns whether mailboxes are watched, all of them.
    fn watches(&self, mailboxes: &[Mailbox]) -> bool {
        let is_watched =
            |mailbox: &Mailbox| self.with(mailbox.at(), 1, |range, _| range.is_watched).unwrap_or(false);
        mailboxes.iter().all(is_watched)
    }

    /// Takes what was forwarded of watched ranges. Returns whether there was anything.
    #[inline]
    pub(super) fn take_changes(&self, worker: &Worker) -> bool {
        worker.io.endpoint.take_changes(|number, at, words| self.put_change(number, at, words))
    }

    pub(super) fn load(&self, at: Address) -> u64 {
        let mut word = [0];
        self.copy(at, &mut word);
        word[0]
    }

    /// Copies words out of the mirror; zeros if it does not have them.
    pub(super) fn copy(&self, at: Address, into: &mut [u64]) {
        into.fill(0);
        self.with(at, into.len(), |range, first| into.copy_from_slice(&range.words[first..][..into.len()]));
    }

    pub(super) fn store(&self, at: Address, value: u64) {
        self.with(at, 1, |range, first| range.words[first] = value);
    }

    /// Calls `f` with the range that has these words, and the index of the first one.
    fn with<R>(&self, at: Address, words: usize, f: impl FnOnce(&mut Range, usize) -> R) -> Option<R> {
        let mut ranges = self.ranges.borrow_mut();
        let (begins, range) = ranges.range_mut(..=at.bits()).next_back()?;
        let first = usize::try_from(at.bits() - *begins).ok()? / WORD_BYTES;
        (first + words <= range.words.len()).then(|| f(range, first))
    }

    /// Returns the number of the range that has a word.
    #[cfg(target_os = "linux")]
    pub(super) fn number(&self, at: Address) -> Option<u64> {
        self.with(at, 1, |range, _| range.number)
    }

    /// Returns the version of a mailbox's range.
    fn version(&self, mailbox: Mailbox) -> Option<Version> {
        self.with(mailbox.at(), 1, |range, _| range.version())
    }

    /// Watches the range of a mailbox, unless it is the one that begins at `last`. Returns where it begins.
    fn watch_of(&self, worker: &Worker, mailbox: Mailbox, last: Address) -> Address {
        let begins =
            self.ranges.borrow().range(..=mailbox.at().bits()).next_back().map(|(begins, _)| *begins);
        let begins = begins.map_or(last, Address::from_bits);
        if begins != last {
            self.watch(worker, begins);
        }
        begins
    }

    /// Replaces words by those of a READ, if the range has this version still.
    fn put(&self, version: Version, at: Address, words: &[u64]) {
        self.with(at, words.len(), |range, first| {
            if range.version() == version {
                range.words[first..][..words.len()].copy_from_slice(words);
            }
        });
    }

    /// Replaces words by forwarded ones, if they were watched for this range.
    pub(super) fn put_change(&self, number: u64, at: Address, words: &[u64]) {
        self.with(at, words.len(), |range, first| {
            if range.number == number {
                range.words[first..][..words.len()].copy_from_slice(words);
                range.changes += 1;
            }
        });
    }

    /// Returns `true` once, until answers are read no more.
    pub(super) fn awaits_answers(&self) -> bool {
        !self.is_awaiting.replace(true)
    }

    /// Reads mailboxes, in order. One round trip for every 24 of one segment.
    async fn read(&self, ct: &ComputeThread, mailboxes: &[Mailbox]) -> Result<()> {
        for mailboxes in mailboxes.chunk_by(|one, next| one.at().segment() == next.at().segment()) {
            for mailboxes in mailboxes.chunks(CHAIN_MAILBOXES) {
                self.read_chain(ct, mailboxes).await?;
            }
        }
        Ok(())
    }

    async fn read_chain(&self, ct: &ComputeThread, mailboxes: &[Mailbox]) -> Result<()> {
        let mut chain = ct.empty_chain();
        let mut read = Vec::with_capacity(2 * mailboxes.len());
        let mut watched = Address::NULL;
        for &mailbox in mailboxes {
            let Some(version) = self.version(mailbox) else { continue };
            watched = self.watch_of(ct.worker(), mailbox, watched);
            match mailbox {
                Mailbox::Words(at, words) => read.push((version, at, chain.peek(at, words))),
                Mailbox::Slot(at) => {
                    let words = at.add(WORD_BYTES as u64);
                    let mut slot = [(at, 1), (words, BATCH_WORDS)];
                    if ct.worker().has(Plant::TornMailbox) {
                        slot.reverse();
                    }
                    read.extend(slot.map(|(at, words)| (version, at, chain.peek(at, words))));
                }
            }
        }
        if read.is_empty() {
            return Ok(());
        }
        let done = ct.submit(chain).await?;
        for (version, at, slot) in read {
            self.put(version, at, done.words(slot));
        }
        Ok(())
    }
}

/// The pauses between looks.
struct Pauses {
    unit: Duration,
    doublings: u32,
    empty: u32,
}

impl Pauses {
    fn new(ct: &ComputeThread, doublings: u32) -> Self {
        let unit = ct.cluster().simulation().map_or(PAUSE, |simulation| simulation.rtt() / 2);
        Self { unit, doublings, empty: 0 }
    }

    /// Counts a look, and pauses if it was one of many without a result, or what arrives is forwarded; until `is_needed`.
    async fn pause(
        &mut self,
        ct: &ComputeThread,
        has_found: bool,
        is_forwarded: bool,
        is_needed: impl Fn() -> bool,
    ) {
        self.empty = if has_found { 0 } else { self.empty.saturating_add(1) };
        let pause = match self.empty.checked_sub(EAGER_LOOKS) {
            _ if is_forwarded => WATCHED_PAUSE,
            None => return,
            Some(pauses) => self.unit * (1 << pauses.min(self.doublings)),
        };
        let mut timer = pin!(ct.sleep_for(pause));
        poll_fn(|context| if is_needed() { Poll::Ready(()) } else { timer.as_mut().poll(context) }).await;
    }
}

/// Reads the desk, and the slots of its pairs, until it is closed.
pub(super) async fn read_desk(ct: &ComputeThread, delegation: &Rc<Delegation>) {
    let Here::Mirrored(mirror) = Here::of(ct.worker()) else { return };
    let mut pauses = Pauses::new(ct, DESK_DOUBLINGS);
    while let Some(desk) = delegation.desk().filter(|desk| !desk.is_closed()) {
        let (mut has_found, mailboxes) = (false, desk.mailboxes());
        match mirror.read(ct, &mailboxes).await {
            Ok(()) => {
                delegation.stir();
                if mirror.load(desk.places.hellos()) != 0
                    && let Some(_greeting) = desk.begins_greeting()
                {
                    has_found = admit_pairs(ct, delegation).await.is_ok();
                }
                has_found |= delegation.go_round(ct.worker());
                desk.rest();
            }
            // Links of the simulator are restored.
            Err(_) if ct.cluster().simulation().is_some() => {}
            // The thread's own operations fail, too.
            Err(_) => return,
        }
        let has_hellos = || mirror.load(desk.places.hellos()) != 0;
        let is_forwarded = mirror.watches(&mailboxes) && !desk.has_clients_apart();
        pauses.pause(ct, has_found, is_forwarded, has_hellos).await;
    }
}

/// Takes the pairs that have greeted the desk.
async fn admit_pairs(ct: &ComputeThread, delegation: &Rc<Delegation>) -> Result<()> {
    let Some(desk) = delegation.desk() else { return Ok(()) };
    let here = Here::of(ct.worker());
    let mut first = peek_always(ct, desk.places.hellos(), 1).await?[0];
    while first != 0 {
        match ct.compare_exchange_word(desk.places.hellos(), first, 0).await {
            Ok(found) if found == first => {}
            Ok(found) => {
                first = found;
                continue;
            }
            Err(Error::NodeUnreachable(_)) => {
                // It may have taken effect: then the pair is in the list no more.
                let newer = peek_always(ct, desk.places.hellos(), 1).await?[0];
                if is_in_list(ct, newer, first).await? {
                    first = newer;
                    continue;
                }
            }
            Err(error) => return Err(error),
        }
        here.store(desk.places.hellos(), 0);
        while first != 0 {
            let at = Address::from_bits(first);
            let read = peek_always(ct, at, head::WORDS).await?;
            let mut words = [0; head::WORDS];
            words.copy_from_slice(&read);
            here.host(at, super::slots::TRUSTEES_WORDS, &words);
            // Nothing is written there before the client is told that the pair is known.
            here.watch(ct.worker(), at);
            desk.admit(ct.worker(), here, at, &words);
            first = words[head::NEXT];
        }
    }
    Ok(())
}

/// Reads words, until the link is restored if it is one of the simulator: what a trustee has taken must not be lost.
async fn peek_always(ct: &ComputeThread, at: Address, words: usize) -> Result<Vec<u64>> {
    loop {
        match peek_patiently(ct, at, words).await {
            Err(Error::NodeUnreachable(_)) if ct.cluster().simulation().is_some() => {}
            read => return read,
        }
    }
}

/// Returns whether a pair is in the list that begins with another one.
async fn is_in_list(ct: &ComputeThread, mut at: u64, pair: u64) -> Result<bool> {
    while at != 0 && at != pair {
        at = peek_always(ct, Address::from_bits(at), 1).await?[head::NEXT];
    }
    Ok(at == pair)
}

/// Reads mailboxes of a thread that has ended. Returns `false` if they can not be read now.
pub(super) async fn read_last_words(
    ct: &ComputeThread,
    here: Here<'_>,
    mailboxes: impl FnOnce() -> Vec<Mailbox>,
) -> bool {
    match here {
        Here::Mirrored(mirror) => mirror.read(ct, &mailboxes()).await.is_ok(),
        Here::Mapped(_) | Here::Hosted(_) => true,
    }
}

/// Reads the answers that the thread's pairs wait for, until there are none.
pub(super) async fn read_answers(ct: &ComputeThread, delegation: &Rc<Delegation>) {
    let Here::Mirrored(mirror) = Here::of(ct.worker()) else { return };
    let mut pauses = Pauses::new(ct, ANSWER_DOUBLINGS);
    loop {
        let callers = delegation.callers();
        let waiting = || callers.iter().filter(|caller| caller.awaits_mail());
        let mailboxes: Vec<Mailbox> = waiting().flat_map(|caller| caller.mailboxes()).collect();
        if mailboxes.is_empty() {
            return mirror.is_awaiting.set(false);
        }
        let is_apart = waiting().any(|caller| caller.is_unforwarded());
        let has_found = match mirror.read(ct, &mailboxes).await {
            Ok(()) => {
                delegation.stir();
                delegation.go_round(ct.worker())
            }
            // Links of the simulator are restored.
            Err(_) if ct.cluster().simulation().is_some() => false,
            // Nobody knows what becomes of their requests.
            Err(_) => {
                for caller in waiting() {
                    caller.abandon(delegation);
                    delegation.forget(caller);
                }
                true
            }
        };
        pauses.pause(ct, has_found, !is_apart && mirror.watches(&mailboxes), || false).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_has_the_words_that_were_added_and_no_others() {
        let (mirror, at) = (Mirror::default(), Address::new(0, 4096));
        mirror.add(at, 4, &[7, 8]);
        mirror.add(at.add(64), 1, &[]);
        let mut words = [1; 4];
        mirror.copy(at, &mut words);
        assert_eq!(words, [7, 8, 0, 0]);
        mirror.copy(at.add(8), &mut words);
        assert_eq!(words, [0; 4], "the last one is not there");
        mirror.store(at.add(64), 3);
        assert_eq!(
            (mirror.load(at.add(64)), mirror.load(at.add(32)), mirror.load(Address::new(0, 8))),
            (3, 0, 0)
        );
        mirror.remove(at);
        assert_eq!(mirror.load(at), 0);
    }

    /// A pair's words were freed, and are another one's, while they were read.
    #[test]
    fn what_was_read_for_another_pair_is_discarded() {
        let (mirror, at) = (Mirror::default(), Address::new(0, 4096));
        mirror.add(at, 2, &[]);
        let old = mirror.version(Mailbox::Slot(at)).unwrap();
        mirror.put(old, at, &[1, 2]);
        assert_eq!(mirror.load(at), 1);
        mirror.remove(at);
        mirror.add(at, 2, &[]);
        mirror.put(old, at, &[1, 2]);
        assert_eq!(mirror.load(at), 0);
        let new = mirror.version(Mailbox::Words(at, 2)).unwrap();
        mirror.put(new, at, &[5, 6]);
        assert_eq!(mirror.load(at.add(8)), 6);
    }

    /// The READ was executed before the change, and its result is taken after it.
    #[test]
    fn what_was_read_before_a_change_is_discarded() {
        let (mirror, at) = (Mirror::default(), Address::new(0, 4096));
        mirror.add(at, 2, &[]);
        let before = mirror.version(Mailbox::Slot(at)).unwrap();
        mirror.put_change(before.number, at, &[5]);
        mirror.put(before, at, &[0, 0]);
        assert_eq!(mirror.load(at), 5);
        mirror.put_change(before.number + 1, at, &[6]);
        assert_eq!(mirror.load(at), 5, "of another watch");
        mirror.put(mirror.version(Mailbox::Slot(at)).unwrap(), at, &[7]);
        assert_eq!(mirror.load(at), 7);
    }
}
