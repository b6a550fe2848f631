//! A bounded queue of several producers and several consumers. Nothing waits for another client.
//!
//! After the array queues of Colvin and Groves ("Formal Verification of an Array-Based Nonblocking Queue", 2005) and of Tsigas and Zhang (2001): an item is pushed, and
//! popped, by one CAS of its slot. So a producer or consumer that dies, at any moment, blocks nobody.
//!
//! # The scheme
//!
//! Items have *tickets*, 0, 1, 2, …: the item of ticket `t` passes through slot `t mod n` in *round* `t / n`, where `n` is the capacity. A slot has two words, its *claim* and its
//! *state*:
//!
//! | state in round `r` | contents of the words |
//! |---|---|
//! | *vacant* | `r`, and how many claims of the slot were revoked in this round |
//! | *full* | `r`, and the item or the object with the item |
//! | *popped* | `r + 1`: the slot is vacant in round `r + 1` |
//!
//! Where an item lies depends on its size and on its producer. Consumers find out from the state.
//!
//! | item | place | a push |
//! |---|---|---|
//! | of a word, below 2^32 | the state | a CAS of the state |
//! | of a word, of a producer that maps the memory | both words | a CAS of the claim, and then one of the state |
//! | any other | an object of its own, retired by its consumer | the WRITE of the object, and the CAS of the state, in one chain |
//!
//! `head` and `tail` are hints: tickets below `head` are popped, those below `tail` are pushed. Clients advance them after an operation, without waiting; those that map the memory
//! after each 16th, since that CAS would take as long as the one of the slot. If a client dies before that, a later one does.
//!
//! # Claims
//!
//! A word has no room for an item of 64 bits and a round. So a producer first writes half of the item to the claim: by a CAS, and with the round `r` and the number `k` of claims that
//! were revoked. The other half is in the state. Over a network that would be a second round trip, so clients there use an object.
//!
//! A producer that finds a claim of `(r, k)`, twice, in a slot that is vacant `(r, k)`, *revokes* the claim: a CAS makes the state vacant `(r, k + 1)`. So it does not matter whether the
//! claim's owner is dead, or was stopped, or its future was dropped. Its second CAS expects `(r, k)` and fails. It then tries again, as any producer that was overtaken. Producers
//! that stop between their two CASes can revoke each other's claims in turn: a push is obstruction-free, not lock-free. No claim stands in the way of the first and third kind of push.
//!
//! *Claim and state of a full slot are of the same push.* A producer `P` reads the claim `x`, then the state, which is vacant `(r, k)`, and `x` is no claim of `(r, k)`. Then
//! 1. If its CAS of the claim succeeds, the claim was `x` since the first READ, since claims do not return. So when it read the state, no claim of `(r, k)` existed; the state can have left
//!    vacant `(r, k)` since only by a push that needs no claim.
//! 2. If its CAS of the state succeeds, the state was vacant `(r, k)` until then. Who else has changed the claim in between would have read `P`'s claim, and afterwards vacant
//!    `(r, k)`: it would have revoked the claim first.
//! 3. While the slot is full, nobody changes the claim, for the same reason: that takes a READ of the claim, then one of a vacant state. So a consumer that reads the state, then the
//!    claim, and whose CAS of the state succeeds, has read the item.
//!
//! # Invariants
//!
//! 1. A slot passes through vacant, full and popped of each round, in this order, by CAS of the state only.
//! 2. An item is pushed with ticket `t` when all tickets below `t` have been pushed, and popped when all below have been popped. A handle tries a ticket only after it has
//!    seen that: by a hint, or by the slots below.
//! 3. Hints only increase, and are never above the first ticket that is not pushed (or popped).
//! 4. The claim of a slot with half of an item names the round.
//!
//! # When operations take effect
//!
//! | operation | takes effect | round trips: cold, warm |
//! |---|---|---|
//! | `try_push` | at the CAS of the state | 2 / 1 |
//! | `try_push` of a full ring | at the CAS or READ that finds the slot full in the round before: with (2), all `n` slots are full | 2 / 1 |
//! | `try_pop` | at the CAS of the state | 2 / 2; 3 if others have popped more than 15 items since |
//! | `try_pop` of an empty ring | at the READ that finds the slot vacant: with (2), nothing is pushed that is not popped | 2 / 1 |
//!
//! *Warm*: nobody else has pushed (or popped) since this handle did. Each other client that was faster costs a round trip more at most; in all, as many fail as succeed. A push that was
//! overtaken twice reads 16 slots at once, since clients that map the memory leave the hint behind: that is one round trip more.
//!
//! `try_pop` over a network reads `head`, then slots, and `head` once more, in one chain. So slots are never older than the ticket that is looked for in them, and if they are
//! so much newer that 8 bits of a round are ambiguous, that is seen. (Older slots would seem popped, and their tickets would be skipped for ever.) The state of a slot without an
//! object has 28 bits of the round.
//!
//! So a client mistakes a slot for that of its ticket only if it sleeps, between a READ and a CAS, for a multiple of 2^28 rounds exactly; and a claim for the one it has read, if
//! 2^26 rounds pass, or 64 claims are revoked in one round, and the halves of the items are equal. (A guard protects objects, so their addresses do not return.)
//!
//! # What a dead client, or a dropped future, leaves
//!
//! An item is pushed or not, popped or not. A popped item whose client has died, or whose future was dropped, is gone. A new object that no slot holds is freed: by its chain, or by a
//! sweep if its client is dead. A claim stays until the next producer revokes it.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_collections::Ring;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(2, async |ct| {
//!     let root = ct.root_or_init("jobs", async || Ring::<String>::create(64, ct).await).await?;
//!     let jobs = Ring::attach(root, ct).await?;
//!     if ct.index() == 0 {
//!         for job in ["one", "two"] {
//!             jobs.push(job, ct).await?;
//!         }
//!     } else {
//!         assert_eq!(jobs.pop(ct).await?, "one");
//!         assert_eq!(jobs.pop(ct).await?, "two");
//!         assert_eq!(jobs.try_pop(ct).await?, None);
//!     }
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod here;
mod slots;

use std::fmt;
use std::marker::PhantomData;

use farfield::layout::fingerprint;
use farfield::op::Replacement;
use farfield::prelude::*;
use farfield::{Bytes, Error, SizeClass, error};

use here::{Head, Pushed, by_call};
use slots::{SLOT_WORDS, SlotTag, Slots, State, Ticket, corrupt};

pub use slots::RingRoot;

/// The most items.
const MOST_ITEMS: u64 = 1 << 20;
/// The most bytes of an item.
const MOST_BYTES: usize = 1 << 20;

/// The slots that a consumer reads at once.
const WINDOW: u64 = 16;
/// More rounds than a hint can be behind.
const MOST_BEHIND: u64 = 64;

type Found<'g> = Tagged<'g, Blob, SlotTag>;

/// A bounded queue in far memory. The handle of a thread, for all of its tasks.
pub struct Ring<T: Bytes> {
    root: RemotePtr<RingRoot<T>>,
    slots: Slots,
    stored: PhantomData<fn() -> T>,
}

impl<T: Bytes> Ring<T> {
    /// Stands for the type of the items.
    const TYPES: u64 = fingerprint::wrap("Ring", T::FINGERPRINT);

    /// Creates an empty ring for `capacity` items, on one memory node. One round trip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a capacity of 0, or of more than 2^20; [`Error::InvalidPointer`] if the cluster has addresses that a link with a tag can not hold;
    /// those of an allocation.
    pub async fn create(capacity: u64, ct: &ComputeThread) -> Result<RemotePtr<RingRoot<T>>> {
        ct.check_compressible()?;
        if capacity == 0 || capacity > MOST_ITEMS {
            return Err(invalid("capacity", capacity.to_string(), "a ring has room for 1 to 1048576 items"));
        }
        let slots = (0..capacity).map(|_| slots::new_slot()).collect();
        let root = RingRoot::init(Self::TYPES, capacity, [0; 7], [0; 8], slots);
        RingRoot::new_in(ct, root).await?.write(ct).await
    }

    /// Makes a handle of a ring. One round trip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the ring has items of another type, or is corrupt.
    pub async fn attach(root: RemotePtr<RingRoot<T>>, ct: &ComputeThread) -> Result<Self> {
        let g = &ct.pin();
        let read = root.read(g).await?;
        if read.types != Self::TYPES {
            return Err(invalid("root", format!("{root:?}"), "the ring has items of another type"));
        }
        if read.capacity == 0 || read.capacity != read.slots.len() {
            return Err(invalid(
                "root",
                format!("{root:?}"),
                "its capacity and its slots contradict each other",
            ));
        }
        let slots = Slots::of(root, read.capacity, read.head, read.tail);
        Ok(Self { root, slots, stored: PhantomData })
    }

    /// Returns for how many items there is room.
    pub fn capacity(&self) -> u64 {
        self.slots.capacity
    }

    /// Adds an item at the end. Returns `false` if the ring is full. Never waits for another client.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an item of more than 1 MiB; those of an allocation.
    pub async fn try_push(&self, item: &T::Borrowed, ct: &ComputeThread) -> Result<bool> {
        let bytes = T::bytes(item);
        let bytes = bytes.as_ref();
        if bytes.len() > MOST_BYTES {
            return Err(invalid("item", format!("{} bytes", bytes.len()), "an item has at most 1 MiB"));
        }
        if let (true, Some(item)) = (Self::is_here(ct), Self::word(bytes)) {
            return Ok(self.slots.push_here(item, ct)? == Pushed::Done);
        }
        by_call(self.push_by_chains(bytes, ct)).await
    }

    async fn push_by_chains(&self, bytes: &[u8], ct: &ComputeThread) -> Result<bool> {
        let short = Self::word(bytes).and_then(|item| u32::try_from(item).ok());
        let g = &ct.pin();
        let mut ticket = self.slots.pushed.get();
        let (mut vacant, mut overtaken) = (vacant_at(ticket.round), 0);
        let class = SizeClass::of(bytes.len()).ok_or_else(corrupt)?;
        let mut new = if let Some(item) = short {
            Replacement::existing(value(slots::with_short(ticket.round, item)))
        } else {
            let mut new = Blob::zeroed_in(g.near(self.root), bytes.len()).await?;
            Blob::bytes_mut(&mut new).copy_from_slice(bytes);
            Replacement::of(new, slots::with_object(ticket.round, class))?
        };
        loop {
            let push = op::publish(self.slots.slot(ticket).state(), vacant, new);
            let (pushed, tail) = g.chain((push, op::load(self.slots.tail))).submit().await?;
            let Err(failed) = pushed else {
                self.slots.pushed.set(ticket.next(self.slots.capacity));
                advance(self.slots.tail, tail, ticket.number + 1, g)?;
                return Ok(true);
            };
            match State::of(failed.current.into(), ticket.round) {
                State::Before if tail <= ticket.number => {
                    self.slots.pushed.set(ticket);
                    return Ok(false);
                }
                State::Vacant => {
                    // Claims of it were revoked.
                    (vacant, new) = (failed.current, failed.new);
                    continue;
                }
                _ => {}
            }
            // Another client has pushed the item of this ticket.
            overtaken += 1;
            let next = tail.max(ticket.number + 1);
            // Again: the hint may be behind.
            let next =
                if overtaken > 1 { self.behind(next, &[State::Full, State::Popped], g).await? } else { next };
            ticket = self.slots.ticket(next);
            self.slots.pushed.set(ticket);
            vacant = vacant_at(ticket.round);
            new = match (short, failed.new.into_staged()) {
                (None, Some(staged)) => staged.tagged(slots::with_object(ticket.round, class))?,
                (Some(item), _) => Replacement::existing(value(slots::with_short(ticket.round, item))),
                (None, None) => return Err(Error::other("the item is lost")),
            };
        }
    }

    /// Removes the first item. Returns `None` if the ring is empty. Never waits for another client.
    ///
    /// If its future is dropped, the item may be removed, and is gone.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn try_pop(&self, ct: &ComputeThread) -> Result<Option<T>> {
        if Self::is_here(ct) {
            match self.slots.pop_here(ct)? {
                Head::Nothing => return Ok(None),
                Head::Popped(item) => {
                    return T::from_bytes(&item.to_le_bytes()).map(Some).ok_or_else(corrupt);
                }
                Head::Object => {}
            }
        }
        by_call(self.pop_by_chains(ct)).await
    }

    async fn pop_by_chains(&self, ct: &ComputeThread) -> Result<Option<T>> {
        let g = &ct.pin();
        while let Some((ticket, found, head)) = self.first(g).await? {
            let (slot, next) = (self.slots.slot(ticket), vacant_at(ticket.round + 1));
            let popped = if TaggedWord::from(found).is_pointer() {
                let class = SizeClass::from_number(found.tag().rest()).ok_or_else(corrupt)?;
                let pop =
                    op::replace(slot.state(), found, class.capacity() as u64, Replacement::existing(next));
                let item = op::read_bytes_with(found.shared(), class, T::from_bytes);
                let (replaced, item) = g.chain((pop, item)).submit().await?;
                replaced.ok().map(|replaced| (item, Some(replaced)))
            } else {
                // In this order: the claim stays as it is while the slot is full.
                let pop = op::compare_exchange_link(slot.state(), found, next);
                let (claim, popped) = g.chain((op::load(slot.claim()), pop)).submit().await?;
                let item = slots::item(found.into(), claim);
                popped.ok().map(|_| (T::from_bytes(&item.to_le_bytes()), None))
            };
            // By this client or another one.
            self.slots.popped.set(ticket.next(self.slots.capacity));
            if let Some((item, replaced)) = popped {
                advance(self.slots.head, head, ticket.number + 1, g)?;
                if let Some(replaced) = replaced {
                    replaced.retire(g).await?;
                }
                return item.map(Some).ok_or_else(corrupt);
            }
        }
        Ok(None)
    }

    /// Returns the ticket of the first item, the state of its slot, and the hint for pops. `None` if the ring is empty.
    async fn first<'g>(&self, g: &'g Guard<'_>) -> Result<Option<(Ticket, Found<'g>, u64)>> {
        let root = self.root.shared(g);
        let mut ticket = self.slots.popped.get();
        loop {
            // The hint is read before the slots, so all tickets below it were popped when these were read; and once more, since a thread may be stopped in between.
            if g.is_immediate() {
                let head = root.head().load(g).await?;
                ticket = self.slots.ticket(ticket.number.max(head));
                let found = self.slots.slot(ticket).state().load(g).await?;
                if root.head().load(g).await? > ticket.number + MOST_BEHIND * self.slots.capacity {
                    continue;
                }
                match state_at(found, ticket) {
                    State::Full => return Ok(Some((ticket, found, head))),
                    State::Popped => ticket = ticket.next(self.slots.capacity),
                    State::Vacant => {
                        self.slots.popped.set(ticket);
                        return Ok(None);
                    }
                    State::Before => return Err(corrupt()),
                }
                continue;
            }
            // Also the next slots: others may have popped since.
            let first = ticket.index;
            let end = (first + WINDOW).min(self.slots.capacity);
            let window = op::load_range(self.words(), first * SLOT_WORDS..end * SLOT_WORDS);
            let chain = g.chain((op::load(root.head()), window, op::load(root.head())));
            let (head, words, after) = chain.submit().await?;
            let known = self.slots.ticket(ticket.number.max(head));
            if after > known.number + MOST_BEHIND * self.slots.capacity {
                ticket = self.slots.ticket(after);
                continue;
            }
            // The state is the last word of a slot.
            let of_window = |next: Ticket| {
                words.chunks_exact(SLOT_WORDS as usize).nth(next.index.checked_sub(first)? as usize)?.last()
            };
            let tickets = std::iter::successors(Some(known), |next| Some(next.next(self.slots.capacity)));
            let mut seen =
                tickets.map_while(|next| Some((next, *of_window(next)?))).take((end - first) as usize);
            let Some((next, found)) = seen.find(|(next, found)| state_at(*found, *next) != State::Popped)
            else {
                ticket = self.slots.ticket(known.number.max(ticket.number + 1));
                continue;
            };
            match state_at(found, next) {
                State::Full => return Ok(Some((next, found, head))),
                State::Vacant if next.number == ticket.number => {
                    self.slots.popped.set(ticket);
                    return Ok(None);
                }
                // It may have been filled before the slots in front were popped: they are read in no order.
                State::Vacant => ticket = next,
                State::Before | State::Popped => return Err(corrupt()),
            }
        }
    }

    /// Adds an item at the end, and waits while the ring is full.
    ///
    /// # Errors
    /// Those of [`try_push`](Self::try_push).
    pub async fn push(&self, item: &T::Borrowed, ct: &ComputeThread) -> Result<()> {
        let mut backoff = ct.backoff();
        while !self.try_push(item, ct).await? {
            backoff.wait().await;
        }
        Ok(())
    }

    /// Removes the first item, and waits while the ring is empty.
    ///
    /// # Errors
    /// Those of [`try_pop`](Self::try_pop).
    pub async fn pop(&self, ct: &ComputeThread) -> Result<T> {
        let mut backoff = ct.backoff();
        loop {
            if let Some(item) = self.try_pop(ct).await? {
                return Ok(item);
            }
            backoff.wait().await;
        }
    }

    /// Returns the number of items: exact while no client changes the ring. Three round trips, and one for each 16 items that a hint is behind.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        let g = &ct.pin();
        let (head, tail) = g.chain((op::load(self.slots.head), op::load(self.slots.tail))).submit().await?;
        let first = self.behind(head, &[State::Popped], g).await?;
        let end = self.behind(tail.max(first), &[State::Full, State::Popped], g).await?;
        Ok(end - first)
    }

    /// Returns the first ticket from a hint on whose slot has none of some states.
    async fn behind(&self, hint: u64, states: &[State], g: &Guard<'_>) -> Result<u64> {
        let mut ticket = self.slots.ticket(hint);
        loop {
            let end = (ticket.index + WINDOW).min(self.slots.capacity);
            let range = ticket.index * SLOT_WORDS..end * SLOT_WORDS;
            for found in
                g.chain(op::load_range(self.words(), range)).submit().await?.iter().skip(1).step_by(2)
            {
                if !states.contains(&state_at(*found, ticket)) {
                    return Ok(ticket.number);
                }
                ticket = ticket.next(self.slots.capacity);
            }
        }
    }

    /// Returns whether the ring is empty: see [`len`](Self::len).
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn is_empty(&self, ct: &ComputeThread) -> Result<bool> {
        Ok(self.len(ct).await? == 0)
    }

    /// Checks the invariants of a ring that nobody changes: behind the popped slots are full ones, then vacant ones, and no hint is too high. Returns the number of items. Two
    /// round trips.
    ///
    /// # Errors
    /// One that names the first fault.
    pub async fn check(&self, ct: &ComputeThread) -> Result<u64> {
        let g = &ct.pin();
        let (slots, head, tail) = self.read(g).await?;
        let state = |ticket: u64| {
            let ticket = self.slots.ticket(ticket);
            State::of(slots[ticket.index as usize].1.into(), ticket.round)
        };
        // A dead client may have popped, or pushed, and not advanced the hint.
        let first =
            (head..head + MOST_BEHIND * self.slots.capacity).find(|ticket| state(*ticket) != State::Popped);
        let first = first.ok_or_else(|| Error::other("all slots are popped, of any ticket"))?;
        let full =
            (first..first + self.slots.capacity).take_while(|ticket| state(*ticket) == State::Full).count();
        let end = first + full as u64;
        for ticket in end..first + self.slots.capacity {
            if state(ticket) != State::Vacant {
                let found =
                    format!("the slot of ticket {ticket} is {:?}, behind those up to {end}", state(ticket));
                return Err(Error::other(found));
            }
        }
        if tail > end {
            return Err(Error::other(format!("the hint for pushes is {tail}, and {end} is not pushed")));
        }
        for ticket in (first..end).map(|ticket| self.slots.ticket(ticket)) {
            let (claim, found) = slots[ticket.index as usize];
            if slots::is_claimed_item(found.into()) && !slots::is_of_round(claim, ticket.round) {
                return Err(Error::other(format!(
                    "the claim of ticket {} is another round's",
                    ticket.number
                )));
            }
        }
        Ok(full as u64)
    }

    /// Frees the ring. Nobody may use it any more. Two round trips.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let (slots, ..) = self.read(g).await?;
        for (_, found) in slots {
            if TaggedWord::from(found).is_pointer() {
                ct.delete(found.shared()).await?;
            }
        }
        ct.delete(self.root).await
    }

    /// Reads claims and states of all slots, and both hints before them.
    async fn read<'g>(&self, g: &'g Guard<'_>) -> Result<(Vec<(u64, Found<'g>)>, u64, u64)> {
        let root = self.root.shared(g);
        let (head, tail) = g.chain((op::load(root.head()), op::load(root.tail()))).submit().await?;
        let slots = root.slots().read(g, 0..self.slots.capacity).await?;
        Ok((slots.into_iter().map(|slot| (slot.claim, slot.state)).collect(), head, tail))
    }

    /// Returns whether this client accesses words one by one: it maps the memory, and items have 8 bytes.
    #[inline]
    fn is_here(ct: &ComputeThread) -> bool {
        T::LENGTH == Some(size_of::<u64>()) && ct.is_immediate()
    }

    /// Returns the item that the bytes are, if all items have 8.
    #[inline]
    fn word(bytes: &[u8]) -> Option<u64> {
        if T::LENGTH.is_none() { None } else { Some(u64::from_le_bytes(bytes.try_into().ok()?)) }
    }

    /// Returns the words of all slots: for each its claim, which is no link, and its state.
    fn words(&self) -> Place<'static, Tail<TaggedLink<Blob, SlotTag>>> {
        Place::from_address(self.root.slots().address())
    }
}

fn vacant_at<'g>(round: u64) -> Found<'g> {
    value(slots::vacant(round, 0))
}

/// Returns the state of a slot that links to no object.
fn value<'g>(word: slots::Word) -> Found<'g> {
    Tagged::with_value(word.tag(), word.value().unwrap_or_default())
}

fn state_at(found: Found<'_>, ticket: Ticket) -> State {
    State::of(found.into(), ticket.round)
}

/// Advances a hint, without waiting.
fn advance(hint: Place<'_, Atomic<u64>>, seen: u64, to: u64, g: &Guard<'_>) -> Result<()> {
    if seen < to { g.chain(op::compare_exchange(hint, seen, to)).post() } else { Ok(()) }
}

#[cold]
fn invalid(argument: &'static str, value: String, reason: &'static str) -> Error {
    Error::from(error::InvalidArgument { argument, value: value.into(), reason })
}

impl<T: Bytes> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("root", &self.root)
            .field("capacity", &self.slots.capacity)
            .finish_non_exhaustive()
    }
}
