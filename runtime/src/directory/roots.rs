//! The directory of named words.
//!
//! Segment 0 holds a table of entries. An entry has a name, a kind and a word: a *root*, the address of an object with its type's layout fingerprint,
//! or a [barrier](super::barrier)'s count. A root and a barrier may have the same name. A named entry keeps its name, its kind and its address, so a
//! thread that has found it may keep using it.
//!
//! # The protocol
//! | state | meaning | next state |
//! |---|---|---|
//! | `EMPTY` | unused | `NAMING` by CAS |
//! | `NAMING(t)` | thread `t` writes a name | `INITIALISING(t)`, by one chain; `EMPTY` by CAS if that fails |
//! | `VACANT` | a name without a root | `INITIALISING` by CAS |
//! | `INITIALISING(t)` | thread `t` makes the root | `READY` with the root, by one chain; `VACANT` by CAS if that fails |
//! | `READY` | a root, or a barrier | `VACANT` by CAS |
//!
//! Invariant: the named entries are a prefix of the table, and no two entries of one kind have the same name. A thread claims only the first unnamed
//! entry, after it has read that no entry before has its name and kind; and entries never lose their names. Two threads with the same name therefore
//! compete for the same entry, and the CAS decides. If that entry is in state `NAMING` by another thread, its name may be the same, so the thread
//! waits. A thread that died in this state is detected by its identity, and its entry is taken over.
//!
//! A look-up costs one READ of 1 KiB for each eight names, up to the requested one. On RDMA, where the words of a READ have no order, it costs two in one chain: the states, and then the words
//! that were written before these. Operations of data structures do not use the directory.

use crate::io::operations::*;
use crate::segment::entry::{PackedName, State, pack, unpack};

use crate::error::{self, Error, Result};
use crate::io::Exchange;
use crate::io::Purpose;
use crate::pointer::{Address, RemotePtr};
use crate::segment::control::{self, DIRECTORY_ENTRIES, Entry, NAME_BYTES};
use crate::session::ComputeThread;
use farfield_sim::Plant;
use farfield_words::Remote;
use farfield_words::describe::describe;
use farfield_words::fingerprint::name as fingerprint_of_name;

/// The number of entries that are read in one round trip.
const ENTRIES_AT_ONCE: usize = 8;
const _: () = assert!(DIRECTORY_ENTRIES.is_multiple_of(ENTRIES_AT_ONCE));

/// The fingerprint of barriers, instead of a layout fingerprint.
pub(crate) const BARRIER: u64 = fingerprint_of_name("farfield barrier");

/// The result of a search for a name.
enum Found {
    /// The entry with that name.
    Named { index: usize, state: State, entry: Entry },
    /// No entry has the name. This is the first unnamed entry.
    Free { index: usize, state: State },
}

/// The right to publish a root under a name, or the attempt to get it. Dropping a claim releases the name. No other task of the thread claims the entry meanwhile. So if the CAS has lost its answer, the
/// thread's word in the entry can only be that of this claim.
struct Claim<'a> {
    ct: &'a ComputeThread,
    index: usize,
    entry: Entry,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The outcome of the CAS is not known.
    Attempted,
    Claimed,
    /// There is nothing to release.
    Over,
}

impl<'a> Claim<'a> {
    /// Claims an entry by CAS. Returns `None` if that failed.
    async fn attempt(
        ct: &'a ComputeThread,
        index: usize,
        (from, to): (State, State),
        entry: Entry,
    ) -> Result<Option<Self>> {
        ct.worker().claimed_names.borrow_mut().insert(index);
        let mut claim = Self { ct, index, entry, standing: Standing::Attempted };
        let is_claimed = change(ct, index, from, to).await? || ct.has(Plant::SharedName);
        claim.standing = if is_claimed { Standing::Claimed } else { Standing::Over };
        Ok(is_claimed.then_some(claim))
    }

    /// Publishes a root, with a description of its type if other programs may read the cluster.
    async fn settle_root<T: Remote>(mut self, root: RemotePtr<T>) -> Result<()> {
        let ct = self.ct;
        let old = std::mem::take(&mut self.entry.description);
        if !ct.cluster().is_private() {
            self.entry.description = ct.publish_description(&describe::<T>()).await?;
        }
        self.settle(root.address().bits()).await?;
        ct.forget_description(Address::from_bits(old)).await
    }

    /// Writes the value and makes the entry ready, in one chain. Releases the name if that fails.
    async fn settle(mut self, value: u64) -> Result<()> {
        self.entry.value = value;
        write_entry(self.ct, self.index, &self.entry, State::Initialising(self.ct.id()), State::Ready)
            .await?;
        self.standing = Standing::Over;
        Ok(())
    }
}

impl Drop for Claim<'_> {
    /// Releases the name, or the entry if it is not named yet. The CAS does nothing if another thread has taken the entry over because this one was
    /// unreachable. Until it is over, this thread [may still exchange](root_or_claim) the entry's word, and does not claim it.
    fn drop(&mut self) {
        let (ct, entry, me) = (self.ct, control::directory(self.index), self.ct.id());
        let is_kept = self.standing == Standing::Attempted && ct.has(Plant::KeptName);
        if self.standing != Standing::Over && !is_kept {
            ct.compensate(Exchange::of_word(
                entry,
                State::Initialising(me).to_word(),
                State::Vacant.to_word(),
            ));
            ct.compensate(Exchange::of_word(entry, State::Naming(me).to_word(), State::Empty.to_word()));
        }
        ct.worker().claimed_names.borrow_mut().remove(&self.index);
    }
}

/// Writes the words behind the state of an entry that this thread has `claimed`, and then its state, in one chain.
async fn write_entry(
    ct: &ComputeThread,
    index: usize,
    entry: &Entry,
    claimed: State,
    state: State,
) -> Result<()> {
    let at = control::directory(index);
    let mut chain = ct.empty_chain();
    chain.write(Entry::value(at), &entry.words_behind_state());
    chain.replace(at, claimed.to_word(), state.to_word());
    ct.submit(chain).await.map(drop)
}

pub(crate) fn check_name(name: &str) -> Result<PackedName> {
    let invalid = |reason| Error::from(error::InvalidName { name: name.into(), reason });
    match name.len() {
        0 => Err(invalid("it is empty")),
        1..=NAME_BYTES => Ok(pack(name)),
        _ => Err(invalid("it is longer than 47 bytes")),
    }
}

/// The kind of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Root,
    Barrier,
}

impl Kind {
    fn of(fingerprint: u64) -> Self {
        if fingerprint == BARRIER { Self::Barrier } else { Self::Root }
    }
}

/// Reads entries from number `first` on: what their states say was written is what is read of the other words, or was written later. One READ, or two in one chain where the words of a READ have
/// no order.
async fn read_entries<R>(
    ct: &ComputeThread,
    first: usize,
    count: usize,
    look: impl FnOnce(&mut dyn Iterator<Item = (usize, Entry)>) -> Result<R>,
) -> Result<R> {
    let (at, words) = (control::directory(first), count * Entry::WORDS);
    let mut chain = ct.empty_chain();
    let states = chain.read(at, words);
    let entries = if ct.io.endpoint.has_ordered_words() { states } else { chain.read(at, words) };
    let done = ct.submit(chain).await?;
    let states = done.words(states).chunks_exact(Entry::WORDS);
    let entries = states
        .zip(done.words(entries).chunks_exact(Entry::WORDS))
        .map(|(states, entry)| Entry { state: Entry::from_words(states).state, ..Entry::from_words(entry) });
    look(&mut (first..).zip(entries))
}

/// Finds the entry with this name and kind, or the first unnamed entry. One round trip for each eight names.
async fn find(ct: &ComputeThread, name: &str, packed: PackedName, kind: Kind) -> Result<Found> {
    for first in (0..DIRECTORY_ENTRIES).step_by(ENTRIES_AT_ONCE) {
        let look = |entries: &mut dyn Iterator<Item = (usize, Entry)>| {
            for (index, entry) in entries {
                let state = entry.decode_state(index)?;
                if matches!(state, State::Empty | State::Naming(_)) {
                    return Ok(Some(Found::Free { index, state }));
                }
                if entry.name == packed && Kind::of(entry.fingerprint) == kind {
                    return Ok(Some(Found::Named { index, state, entry }));
                }
            }
            Ok(None)
        };
        if let Some(found) = read_entries(ct, first, ENTRIES_AT_ONCE, look).await? {
            return Ok(found);
        }
    }
    Err(Error::from(error::DirectoryFull { name: name.into(), capacity: DIRECTORY_ENTRIES }))
}

/// Changes an entry's state by CAS. Returns whether the CAS succeeded.
async fn change(ct: &ComputeThread, index: usize, from: State, to: State) -> Result<bool> {
    Ok(ct.compare_exchange_word(control::directory(index), from.to_word(), to.to_word()).await?
        == from.to_word())
}

/// An existing root, or the right to make it.
enum RootOrClaim<'a> {
    /// The entry and its index.
    Root(usize, Entry),
    Claim(Claim<'a>),
}

async fn root_or_claim<'a>(ct: &'a ComputeThread, name: &str, new: Entry) -> Result<RootOrClaim<'a>> {
    let me = ct.id();
    let mut backoff = ct.retry();
    loop {
        let (index, from, to, old) = match find(ct, name, new.name, Kind::of(new.fingerprint)).await? {
            Found::Named { index, state: State::Ready, entry } => return Ok(RootOrClaim::Root(index, entry)),
            Found::Named { index, state, entry } => {
                (index, state, State::Initialising(me), entry.description)
            }
            Found::Free { index, state } => (index, state, State::Naming(me), 0),
        };
        let busy = match from {
            State::Naming(by) | State::Initialising(by) => ct.is_live(by).await?,
            State::Empty | State::Vacant | State::Ready => false,
        };
        // A claim of this thread that is not released yet has the same word as a new one.
        let is_mine = ct.worker().claimed_names.borrow().contains(&index)
            || ct.may_still_exchange(control::directory(index));
        let entry = Entry { description: old, ..new };
        if !busy
            && !is_mine
            && let Some(claim) = Claim::attempt(ct, index, (from, to), entry).await?
        {
            if to == State::Naming(me) {
                let named = write_entry(ct, index, &entry, to, State::Initialising(me));
                named.await?;
            }
            return Ok(RootOrClaim::Claim(claim));
        }
        let by = match from {
            State::Naming(by) | State::Initialising(by) => Some(by),
            State::Empty | State::Vacant | State::Ready => None,
        };
        backoff.wait_for(Purpose::Name(name, by)).await;
    }
}

/// Finds the entry of a barrier, or makes it.
pub(crate) async fn barrier_entry(ct: &ComputeThread, name: &str) -> Result<Address> {
    let packed = check_name(name)?;
    let index = loop {
        match root_or_claim(ct, name, Entry::new(packed, BARRIER, "barrier")).await? {
            RootOrClaim::Claim(claim) => claim.settle(0).await?,
            RootOrClaim::Root(index, _) => break index,
        }
    };
    Ok(Entry::value(control::directory(index)))
}

impl ComputeThread {
    /// Returns the root called `name`. If there is none, `init` makes it: one thread calls `init`, and concurrent callers wait for it.
    ///
    /// If `init` fails or its future is dropped, this call returns its error, and the next thread calls its own `init`.
    ///
    /// Costs one READ of 1 KiB for each eight names in the directory, on RDMA two in one chain, if the root exists.
    ///
    /// # Errors
    /// [`Error::LayoutMismatch`] if the root has another type, or a build published it with another layout. [`Error::InvalidName`] for a name that is
    /// empty or longer than 47 bytes. [`Error::DirectoryFull`] for more than 128 names.
    pub async fn root_or_init<T: Remote>(
        &self,
        name: &str,
        init: impl AsyncFnOnce() -> Result<RemotePtr<T>>,
    ) -> Result<RemotePtr<T>> {
        match root_or_claim(self, name, new_root::<T>(name)?).await? {
            RootOrClaim::Root(_, entry) => check_root(name, &entry),
            RootOrClaim::Claim(claim) => {
                let root = init().await?;
                claim.settle_root(root).await?;
                Ok(root)
            }
        }
    }

    /// Publishes an object under a name. Three round trips.
    ///
    /// # Errors
    /// [`Error::RootExists`] if the name is in use; those of [`root_or_init`](Self::root_or_init).
    pub async fn publish<T: Remote>(&self, name: &str, root: RemotePtr<T>) -> Result<()> {
        match root_or_claim(self, name, new_root::<T>(name)?).await? {
            RootOrClaim::Root(..) => Err(Error::from(error::RootExists { root: name.into() })),
            RootOrClaim::Claim(claim) => claim.settle_root(root).await,
        }
    }

    /// Returns the root called `name`. One READ of 1 KiB for each eight names in the directory, on RDMA two in one chain.
    ///
    /// # Errors
    /// [`Error::RootNotFound`] if there is none, or it is not initialised yet. [`Error::LayoutMismatch`] if it has another type, or a build published
    /// it with another layout.
    pub async fn lookup<T: Remote>(&self, name: &str) -> Result<RemotePtr<T>> {
        match find(self, name, check_name(name)?, Kind::Root).await? {
            Found::Named { state: State::Ready, entry, .. } => check_root(name, &entry),
            _ => Err(Error::from(error::RootNotFound { root: name.into() })),
        }
    }

    /// Removes the name of a root and returns the root, which is not changed. Two round trips.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup).
    pub async fn unpublish<T: Remote>(&self, name: &str) -> Result<RemotePtr<T>> {
        if let Found::Named { index, state: State::Ready, entry } =
            find(self, name, check_name(name)?, Kind::Root).await?
        {
            let root = check_root(name, &entry)?;
            if change(self, index, State::Ready, State::Vacant).await? {
                return Ok(root);
            }
        }
        Err(Error::from(error::RootNotFound { root: name.into() }))
    }
}

/// A root, for programs without its type.
#[derive(Clone, Debug)]
pub(crate) struct RootSeen {
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) fingerprint: u64,
    pub(crate) at: Address,
    pub(crate) description: Address,
}

impl ComputeThread {
    /// Reads all roots. One READ of 16 KiB, on RDMA two in one chain.
    pub(crate) async fn roots(&self) -> Result<Vec<RootSeen>> {
        let look = |entries: &mut dyn Iterator<Item = (usize, Entry)>| {
            let mut roots = Vec::new();
            for (index, entry) in entries {
                if entry.decode_state(index)? == State::Ready && entry.fingerprint != BARRIER {
                    roots.push(RootSeen {
                        name: unpack(&entry.name),
                        type_name: unpack(&entry.type_name),
                        fingerprint: entry.fingerprint,
                        at: Address::from_bits(entry.value),
                        description: Address::from_bits(entry.description),
                    });
                }
            }
            Ok(roots)
        };
        read_entries(self, 0, DIRECTORY_ENTRIES, look).await
    }

    /// Releases claimed names and resets all barriers, after a restore: claims and counts belong to the threads and runs of another cluster. Requires
    /// that this process is the only member.
    pub(crate) async fn reset_directory(&self) -> Result<()> {
        for index in 0..DIRECTORY_ENTRIES {
            let at = control::directory(index);
            let entry = self.read_words(at, Entry::WORDS, |words| Ok(Entry::from_words(words))).await?;
            match entry.decode_state(index)? {
                State::Naming(_) => self.write_word(at, State::Empty.to_word()).await?,
                State::Initialising(_) => self.write_word(at, State::Vacant.to_word()).await?,
                State::Ready if entry.fingerprint == BARRIER => {
                    self.write_word(Entry::value(at), 0).await?;
                }
                State::Ready | State::Empty | State::Vacant => {}
            }
        }
        Ok(())
    }

    /// Reads the values of all entries, in any state. The values of roots are addresses. One round trip.
    pub(crate) async fn directory_values(&self) -> Result<Vec<u64>> {
        let look = |words: &[u64]| {
            Ok(words.chunks_exact(Entry::WORDS).map(|entry| Entry::from_words(entry).value).collect())
        };
        self.read_words(control::directory(0), DIRECTORY_ENTRIES * Entry::WORDS, look).await
    }

    /// Reads the addresses of descriptions, also those of entries whose root was removed.
    pub(crate) async fn kept_descriptions(&self) -> Result<Vec<Address>> {
        let words = DIRECTORY_ENTRIES * Entry::WORDS;
        let look = |words: &[u64]| {
            let kept = words
                .chunks_exact(Entry::WORDS)
                .map(|entry| Address::from_bits(Entry::from_words(entry).description));
            Ok(kept.filter(|at| !at.is_null()).collect())
        };
        self.read_words(control::directory(0), words, look).await
    }
}

fn new_root<T: Remote>(name: &str) -> Result<Entry> {
    Ok(Entry::new(check_name(name)?, T::FINGERPRINT, std::any::type_name::<T>()))
}

fn check_root<T: Remote>(name: &str, entry: &Entry) -> Result<RemotePtr<T>> {
    if entry.fingerprint != T::FINGERPRINT {
        return Err(Error::from(error::LayoutMismatch {
            root: name.into(),
            expected: std::any::type_name::<T>().into(),
            expected_fingerprint: T::FINGERPRINT,
            found: unpack(&entry.type_name).into(),
            found_fingerprint: entry.fingerprint,
        }));
    }
    Ok(RemotePtr::from_address(Address::from_bits(entry.value)))
}
