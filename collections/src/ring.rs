//! A bounded queue of several producers and several consumers, lock-free.
//!
//! After the array queues of Colvin and Groves ("Formal Verification of an Array-Based Nonblocking Queue", 2005) and of Tsigas and Zhang (2001): an item is pushed, and
//! popped, by one CAS of its slot. So nobody claims a slot before filling it, and a producer or consumer that dies, at any moment, blocks nobody.
//!
//! # The scheme
//!
//! Items have *tickets*, 0, 1, 2, …: the item of ticket `t` passes through slot `t mod n` in *round* `t / n`, where `n` is the capacity. A slot is a tagged link:
//!
//! | link | tag | state in round `r` |
//! |---|---|---|
//! | null | `r`, 16 bits | *vacant* in round `r` |
//! | the item | 8 bits of `r`, the item's size class | *full* in round `r` |
//! | null | `r + 1` | *popped* in round `r`, which is vacant in round `r + 1` |
//!
//! `head` and `tail` are hints: tickets below `head` are popped, those below `tail` are pushed. Whoever pushes or pops advances them afterwards, without waiting. If it dies
//! before that, the next one does.
//!
//! # Invariants
//!
//! 1. A slot passes through vacant, full and popped of each round, in this order, by CAS only.
//! 2. An item is pushed with ticket `t` when all tickets below `t` have been pushed, and popped when all below have been popped. A handle tries a ticket only after it has
//!    seen that: by a hint, or by the slots below.
//! 3. Hints only increase, and are never above the first ticket that is not pushed (or popped).
//!
//! # When operations take effect
//!
//! | operation | takes effect | round trips: cold, warm |
//! |---|---|---|
//! | `try_push` | at the CAS of the slot | 2 / 1 |
//! | `try_push` of a full ring | at the CAS that finds the slot full in the round before: with (2), all `n` slots are full | 2 / 1 |
//! | `try_pop` | at the CAS of the slot | 2 / 2; 3 if others have popped more than 15 items since |
//! | `try_pop` of an empty ring | at the READ that finds the slot vacant: with (2), nothing is pushed that is not popped | 2 / 1 |
//!
//! *Warm*: nobody else has pushed (or popped) since this handle did. Each other client that was faster costs a round trip more at most; in all, as many fail as succeed.
//!
//! `try_pop` reads `head`, then slots, and `head` once more, in one chain. So slots are never older than the ticket that is looked for in them, and if they are
//! so much newer that 8 bits of a round are ambiguous, that is seen. (Older slots would seem popped, and their tickets would be skipped for ever.)
//!
//! A null link's round has 16 bits, so a push could mistake a slot for that of its ticket only if its client slept, between two chains, for a multiple of 65,536 rounds exactly.
//!
//! # What a dead client, or a dropped future, leaves
//!
//! An item is pushed or not, popped or not. A popped item whose client has died, or whose future was dropped, is gone. A new item that no slot holds is freed: by its chain, or by a
//! sweep if its client is dead.
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

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use farfield::layout::fingerprint;
use farfield::op::Replacement;
use farfield::prelude::*;
use farfield::{Bytes, Error, SizeClass, error};

/// The most items.
const MOST_ITEMS: u64 = 1 << 20;
/// The most bytes of an item.
const MOST_BYTES: usize = 1 << 20;

/// The slots that a consumer reads at once.
const WINDOW: u64 = 16;
/// More rounds than a hint can be behind.
const MOST_BEHIND: u64 = 64;

/// The tag of a slot's link: 8 bits of the round, and the item's size class. In a null link, all 16 bits of the round.
#[tag(round: 8, rest: 8)]
struct SlotTag;

/// The root of a ring, from which [`Ring::attach`] makes a handle.
#[remote]
pub struct RingRoot<T: Bytes> {
    /// Stands for the type of the items.
    types: u64,
    capacity: u64,
    head: Atomic<u64>,
    /// So that consumers and producers use different lines of a processor's cache.
    padding: [u64; 7],
    tail: Atomic<u64>,
    more: [u64; 7],
    slots: Tail<TaggedLink<Blob, SlotTag>>,
    #[local]
    stored: PhantomData<fn() -> T>,
}

type Slot<'g> = Tagged<'g, Blob, SlotTag>;

/// A bounded queue in far memory. The handle of a thread, for all of its tasks.
pub struct Ring<T: Bytes> {
    root: RemotePtr<RingRoot<T>>,
    capacity: u64,
    /// All tickets below are pushed.
    pushed: Cell<u64>,
    /// All tickets below are popped.
    popped: Cell<u64>,
}

/// A slot, as a ticket sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    /// The item of the round before is not popped.
    Before,
    Vacant,
    Full,
    /// The item of this ticket was popped.
    Popped,
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
        let slots = vec![TaggedWord::default(); capacity as usize];
        let root = RingRoot::init(Self::TYPES, capacity, [0; 7], [0; 7], slots);
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
        let (pushed, popped) = (Cell::new(read.tail), Cell::new(read.head));
        Ok(Self { root, capacity: read.capacity, pushed, popped })
    }

    /// Returns for how many items there is room.
    pub fn capacity(&self) -> u64 {
        self.capacity
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
        let g = &ct.pin();
        let mut new = Blob::zeroed_in(g.near(self.root), bytes.len()).await?;
        Blob::bytes_mut(&mut new).copy_from_slice(bytes);
        let class = Blob::class(&new);
        let mut ticket = self.pushed.get();
        let mut new = Replacement::of(new, self.full(ticket, class))?;
        loop {
            let vacant = Tagged::null(self.vacant(ticket));
            let push = op::replace(self.slot(ticket), vacant, 0, new);
            let (pushed, tail) = g.chain((push, op::load(self.root.tail()))).submit().await?;
            let Err(failed) = pushed else {
                self.pushed.set(ticket + 1);
                advance(self.root.tail(), tail, ticket + 1, g)?;
                return Ok(true);
            };
            if tail <= ticket && self.state(failed.current, ticket) == State::Before {
                self.pushed.set(ticket);
                return Ok(false);
            }
            // Another client has pushed the item of this ticket.
            ticket = tail.max(ticket + 1);
            self.pushed.set(ticket);
            let staged = failed.new.into_staged().ok_or_else(|| Error::other("the item is lost"))?;
            new = staged.tagged(self.full(ticket, class))?;
        }
    }

    /// Removes the first item. Returns `None` if the ring is empty. Never waits for another client.
    ///
    /// If its future is dropped, the item may be removed, and is gone.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn try_pop(&self, ct: &ComputeThread) -> Result<Option<T>> {
        let g = &ct.pin();
        while let Some((ticket, found, head)) = self.first(g).await? {
            let class = SizeClass::from_number(found.tag().rest()).ok_or_else(corrupt)?;
            let popped = Replacement::null(self.vacant(ticket + self.capacity));
            let pop = op::replace(self.slot(ticket), found, class.capacity() as u64, popped);
            let item = op::read_bytes_with(found.shared(), class, T::from_bytes);
            let (replaced, item) = g.chain((pop, item)).submit().await?;
            // By this client or another one.
            self.popped.set(ticket + 1);
            if let Ok(replaced) = replaced {
                advance(self.root.head(), head, ticket + 1, g)?;
                replaced.retire(g).await?;
                return item.map(Some).ok_or_else(corrupt);
            }
        }
        Ok(None)
    }

    /// Returns the ticket of the first item, its slot, and the hint for pops. `None` if the ring is empty.
    async fn first<'g>(&self, g: &'g Guard<'_>) -> Result<Option<(u64, Slot<'g>, u64)>> {
        let root = self.root.shared(g);
        let mut ticket = self.popped.get();
        loop {
            // The hint is read before the slots, so all tickets below it were popped when these were read; and once more, since a thread may be stopped in between.
            if g.is_immediate() {
                let head = root.head().load(g).await?;
                ticket = ticket.max(head);
                let slot = root.slots().at(ticket % self.capacity).load(g).await?;
                if root.head().load(g).await? > ticket + MOST_BEHIND * self.capacity {
                    continue;
                }
                match self.state(slot, ticket) {
                    State::Full => return Ok(Some((ticket, slot, head))),
                    State::Popped => ticket += 1,
                    State::Vacant => {
                        self.popped.set(ticket);
                        return Ok(None);
                    }
                    State::Before => return Err(corrupt()),
                }
                continue;
            }
            // Also the next slots: others may have popped since.
            let first = ticket % self.capacity;
            let window = op::load_range(root.slots(), first..(first + WINDOW).min(self.capacity));
            let chain = g.chain((op::load(root.head()), window, op::load(root.head())));
            let (head, slots, after) = chain.submit().await?;
            let known = ticket.max(head);
            if after > known + MOST_BEHIND * self.capacity {
                ticket = after;
                continue;
            }
            let of_window =
                |next: u64| slots.get((next % self.capacity).checked_sub(first)? as usize).copied();
            let mut seen = (known..).map_while(|next| Some((next, of_window(next)?))).take(slots.len());
            let Some((next, found)) = seen.find(|(next, slot)| self.state(*slot, *next) != State::Popped)
            else {
                ticket = known.max(ticket + 1);
                continue;
            };
            match self.state(found, next) {
                State::Full => return Ok(Some((next, found, head))),
                State::Vacant if next == ticket => {
                    self.popped.set(ticket);
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

    /// Returns the number of items: exact while nobody changes the ring. One round trip.
    ///
    /// # Errors
    /// Those of access to far memory.
    pub async fn len(&self, ct: &ComputeThread) -> Result<u64> {
        let g = &ct.pin();
        let (head, tail) = g.chain((op::load(self.root.head()), op::load(self.root.tail()))).submit().await?;
        Ok(tail.saturating_sub(head))
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
        let state = |ticket: u64| self.state(slots[(ticket % self.capacity) as usize], ticket);
        // A dead client may have popped, or pushed, and not advanced the hint.
        let first = (head..head + MOST_BEHIND * self.capacity).find(|ticket| state(*ticket) != State::Popped);
        let first = first.ok_or_else(|| Error::other("all slots are popped, of any ticket"))?;
        let full = (first..first + self.capacity).take_while(|ticket| state(*ticket) == State::Full).count();
        let end = first + full as u64;
        for ticket in end..first + self.capacity {
            if state(ticket) != State::Vacant {
                let found =
                    format!("the slot of ticket {ticket} is {:?}, behind those up to {end}", state(ticket));
                return Err(Error::other(found));
            }
        }
        if tail > end {
            return Err(Error::other(format!("the hint for pushes is {tail}, and {end} is not pushed")));
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
        for slot in slots.into_iter().filter(|slot| !slot.is_null()) {
            ct.delete(slot.shared()).await?;
        }
        ct.delete(self.root).await
    }

    /// Reads all slots, and both hints before them.
    async fn read<'g>(&self, g: &'g Guard<'_>) -> Result<(Vec<Slot<'g>>, u64, u64)> {
        let root = self.root.shared(g);
        let (head, tail) = g.chain((op::load(root.head()), op::load(root.tail()))).submit().await?;
        Ok((root.slots().read(g, 0..self.capacity).await?, head, tail))
    }

    fn slot(&self, ticket: u64) -> Place<'_, TaggedLink<Blob, SlotTag>> {
        self.root.slots().at(ticket % self.capacity)
    }

    fn vacant(&self, ticket: u64) -> SlotTag {
        let [low, high, ..] = (ticket / self.capacity).to_le_bytes();
        SlotTag::new(low, high)
    }

    fn full(&self, ticket: u64, class: SizeClass) -> SlotTag {
        SlotTag::new((ticket / self.capacity) as u8, class.number())
    }

    /// Returns the state of a slot for a ticket that is not older than some hundred rounds.
    fn state(&self, slot: Slot<'_>, ticket: u64) -> State {
        let (round, tag) = ((ticket / self.capacity) as u8, slot.tag());
        if slot.is_null() {
            return if tag == self.vacant(ticket) { State::Vacant } else { State::Popped };
        }
        match tag.round().wrapping_sub(round) {
            0 => State::Full,
            u8::MAX if ticket >= self.capacity => State::Before,
            _ => State::Popped,
        }
    }
}

/// Advances a hint, without waiting.
fn advance(hint: Place<'_, Atomic<u64>>, seen: u64, to: u64, g: &Guard<'_>) -> Result<()> {
    if seen < to { g.chain(op::compare_exchange(hint, seen, to)).post() } else { Ok(()) }
}

#[cold]
fn invalid(argument: &'static str, value: String, reason: &'static str) -> Error {
    Error::from(error::InvalidArgument { argument, value: value.into(), reason })
}

#[cold]
fn corrupt() -> Error {
    Error::other("a slot of the ring has no item of its type")
}

impl<T: Bytes> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("root", &self.root)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
