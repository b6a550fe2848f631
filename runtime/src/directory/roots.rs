//! The directory: words that threads agree on by name.
//!
//! Segment 0 holds a table of entries, each a name, a word and what the word means: a *root*, the address of an object
//! with its type's layout fingerprint, or a [barrier](super::barrier)'s count. A root and a barrier may have the same name. An entry
//! once named keeps its name, its kind and its place, so a thread that has found it may go on using it.
//!
//! # The protocol
//! | state | meaning | next |
//! |---|---|---|
//! | `EMPTY` | nothing yet | `NAMING` by CAS |
//! | `NAMING(t)` | thread `t` writes a name | `INITIALISING(t)`, by one chain; `EMPTY` by CAS if that fails |
//! | `VACANT` | a name without a root | `INITIALISING` by CAS |
//! | `INITIALISING(t)` | thread `t` makes the root | `READY` with the root, by one chain; `VACANT` by CAS if that fails |
//! | `READY` | a root, or a barrier | `VACANT` by CAS |
//!
//! Invariant: the named entries are a prefix of the table, and no two of one kind have the same name. A thread claims only the first
//! entry that is not named, having read that no entry before it has its name and kind, and entries never lose these; two
//! threads with the same name therefore compete for the same entry, and the CAS decides. Where that entry is `NAMING`
//! by another thread, its name may be the same, so one waits. A thread that ended in between is found out by its
//! identity, and its entry is taken over.
//!
//! A look-up costs one READ of 1 KiB for each eight names that there are, up to the one looked for; nothing here is on a
//! data structure's path.

use crate::io::operations::*;
use crate::segment::entry::{PackedName, State, pack, unpack};

use crate::error::{self, Error, Result};
use crate::io::Exchange;
use crate::io::Purpose;
use crate::memory::worker::Worker;
use crate::pointer::{Address, RemotePtr};
use crate::segment::control::{self, DIRECTORY_ENTRIES, Entry, NAME_BYTES};
use crate::session::ComputeThread;
use farfield_fabric::chain::Chain;
use farfield_sim::Plant;
use farfield_words::Remote;
use farfield_words::describe::describe;
use farfield_words::fingerprint::name as fingerprint_of_name;

/// How many entries are read at a time.
const ENTRIES_PER_READ: usize = 8;
const _: () = assert!(DIRECTORY_ENTRIES.is_multiple_of(ENTRIES_PER_READ));

/// What a barrier has in place of a layout fingerprint.
pub(crate) const BARRIER: u64 = fingerprint_of_name("farfield barrier");

/// What was found under a name.
enum Found {
    /// An entry with that name.
    Named { index: usize, state: State, entry: Entry },
    /// None has it; this is the first entry without a name.
    Free { index: usize, state: State },
}

/// A name that this thread may give a root; given back by dropping it.
struct Claim<'a> {
    ct: &'a ComputeThread,
    index: usize,
    entry: Entry,
    settled: bool,
}

impl Claim<'_> {
    /// As [`settle`](Self::settle), for a root, with a description of its type where other programs may want to see it.
    async fn settle_root<T: Remote>(mut self, root: RemotePtr<T>) -> Result<()> {
        let ct = self.ct;
        let old = std::mem::take(&mut self.entry.description);
        if !ct.cluster().is_private() {
            self.entry.description = ct.publish_description(&describe::<T>()).await?;
        }
        self.settle(root.address().bits()).await?;
        ct.forget_description(Address::from_bits(old)).await
    }

    /// Writes the value and makes the entry ready, in one chain; the name is given back if that fails.
    async fn settle(mut self, value: u64) -> Result<()> {
        self.entry.value = value;
        write_entry(self.ct, self.index, &self.entry, State::Initialising(self.ct.id()), State::Ready)
            .await?;
        self.settled = true;
        Ok(())
    }
}

impl Drop for Claim<'_> {
    /// Gives the name back, or the entry if it did not get its name; unless somebody has taken it over meanwhile, because
    /// this thread could not be reached.
    fn drop(&mut self) {
        if !self.settled {
            give_back(self.ct, self.index);
        }
    }
}

/// Gives back the entry that this thread has claimed.
fn give_back(ct: &Worker, index: usize) {
    let (entry, me) = (control::directory(index), ct.id());
    ct.compensate(Exchange::of_word(entry, State::Initialising(me).to_word(), State::Vacant.to_word()));
    ct.compensate(Exchange::of_word(entry, State::Naming(me).to_word(), State::Empty.to_word()));
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

/// What a name is of.
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

/// The entry with this name and kind, or the first without a name. One READ of 1 KiB for each eight names.
async fn find(ct: &ComputeThread, name: &str, packed: PackedName, kind: Kind) -> Result<Found> {
    for first in (0..DIRECTORY_ENTRIES).step_by(ENTRIES_PER_READ) {
        let look = |words: &[u64]| {
            for (index, entry) in (first..).zip(words.chunks_exact(Entry::WORDS)) {
                let entry = Entry::from_words(entry);
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
        if let Some(found) =
            ct.read_words(control::directory(first), ENTRIES_PER_READ * Entry::WORDS, look).await?
        {
            return Ok(found);
        }
    }
    Err(Error::from(error::DirectoryFull { name: name.into(), capacity: DIRECTORY_ENTRIES }))
}

/// Moves an entry from one state to another, unless somebody else was faster.
async fn change(ct: &ComputeThread, index: usize, from: State, to: State) -> Result<bool> {
    Ok(ct.compare_exchange_word(control::directory(index), from.to_word(), to.to_word()).await?
        == from.to_word())
}

/// As [`change`], to a state in which the entry is this thread's. Dropped before its outcome is known, it gives back what it may get; not
/// without knowing the outcome, since the entry may be another task's of this thread.
async fn claim(ct: &ComputeThread, index: usize, from: State, to: State) -> Result<bool> {
    let mut chain = ct.empty_chain();
    let slot = chain.compare_exchange(control::directory(index), from.to_word(), to.to_word());
    let is_claimed = move |_: &Worker, done: &Chain| done.word(&slot) == from.to_word();
    let unwanted = move |ct: &Worker, is_claimed: bool| {
        if is_claimed && !ct.has(Plant::KeptName) {
            give_back(ct, index);
        }
    };
    ct.submit_or(chain, is_claimed, unwanted).await
}

/// A root that exists, or the right to make it.
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
            // A claim of this thread's that is yet to be given back has the same word as a new one.
            State::Empty | State::Vacant | State::Ready => ct.may_still_exchange(control::directory(index)),
        };
        if !busy && (claim(ct, index, from, to).await? || ct.has(Plant::SharedName)) {
            let entry = Entry { description: old, ..new };
            let claim = Claim { ct, index, entry, settled: false };
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

/// The entry of a barrier; made if it does not exist.
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
    /// The root called `name`, made by `init` if there is none. Of all threads that ask, one makes it; the others wait.
    ///
    /// If `init` fails or its future is dropped, its error is returned here and the next thread tries.
    ///
    /// Costs one READ where the root exists.
    ///
    /// # Errors
    /// [`Error::LayoutMismatch`] if the root is of another type or build, [`Error::InvalidName`] for a name that is
    /// empty or longer than 47 bytes, [`Error::DirectoryFull`] past 128 names.
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

    /// Gives an object a name by which other threads find it. Three round trips.
    ///
    /// # Errors
    /// [`Error::RootExists`] if the name is taken; else as [`root_or_init`](Self::root_or_init).
    pub async fn publish<T: Remote>(&self, name: &str, root: RemotePtr<T>) -> Result<()> {
        match root_or_claim(self, name, new_root::<T>(name)?).await? {
            RootOrClaim::Root(..) => Err(Error::from(error::RootExists { root: name.into() })),
            RootOrClaim::Claim(claim) => claim.settle_root(root).await,
        }
    }

    /// The root called `name`. One READ.
    ///
    /// # Errors
    /// [`Error::RootNotFound`] if there is none (or it is still being made), [`Error::LayoutMismatch`] if it is of
    /// another type or build.
    pub async fn lookup<T: Remote>(&self, name: &str) -> Result<RemotePtr<T>> {
        match find(self, name, check_name(name)?, Kind::Root).await? {
            Found::Named { state: State::Ready, entry, .. } => check_root(name, &entry),
            _ => Err(Error::from(error::RootNotFound { root: name.into() })),
        }
    }

    /// Takes the name from a root, which itself stays as it is, and gives the root. Two round trips.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
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

/// A root, as programs see it that do not have its type.
#[derive(Clone, Debug)]
pub(crate) struct RootSeen {
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) fingerprint: u64,
    pub(crate) at: Address,
    pub(crate) description: Address,
}

impl ComputeThread {
    /// All roots. One READ of 16 KiB.
    pub(crate) async fn roots(&self) -> Result<Vec<RootSeen>> {
        let words = DIRECTORY_ENTRIES * Entry::WORDS;
        let look = |words: &[u64]| {
            let mut roots = Vec::new();
            for (index, entry) in words.chunks_exact(Entry::WORDS).enumerate() {
                let entry = Entry::from_words(entry);
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
        self.read_words(control::directory(0), words, look).await
    }

    /// Frees the names that are claimed, and begins all barriers anew: for a directory that comes from another cluster, whose
    /// threads and runs nobody here knows. Nobody else may use it.
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

    /// The values of all entries: addresses of roots, and whatever stands in entries of other states. One round trip.
    pub(crate) async fn directory_values(&self) -> Result<Vec<u64>> {
        let look = |words: &[u64]| {
            Ok(words.chunks_exact(Entry::WORDS).map(|entry| Entry::from_words(entry).value).collect())
        };
        self.read_words(control::directory(0), DIRECTORY_ENTRIES * Entry::WORDS, look).await
    }

    /// Descriptions, also those that entries without a root have kept.
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
