//! Planted bugs of the runtime, and the programs that must detect them.
//!
//! Each [`Plant`] omits one step that a correctness argument of the runtime needs. A program here uses the runtime as users' programs do,
//! checks the values that it reads, and returns an error if one is impossible; or the simulator reports a finding. Without a plant every
//! seed of every program succeeds. Some plants must also be detected by the soak of a structure.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::{Fault, Finding};
use farfield::{Held, RemotePtr, Versioned};
use farfield_sim::Plant;

use crate::Check;
use crate::planted::Structure;
use crate::trustees::Mix;

/// A planted bug of the runtime, and the program that must detect it.
#[derive(Clone, Copy, Debug)]
pub struct PlantedInRuntime {
    /// The bug.
    pub plant: Plant,
    /// The invariant that it breaks.
    pub invariant: &'static str,
    /// The harm that follows.
    pub why: &'static str,
    /// The program that detects it.
    pub program: Program,
    /// A structure whose soak must detect it, too, and the check that must.
    pub structure: Option<(Structure, Check)>,
}

/// A program that uses a part of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Objects are replaced and retired while others read them.
    Replace,
    /// Locks are released without waiting, and their objects are retired.
    Release,
    /// `Versioned` values are written and read.
    Values,
    /// Two words are changed under a lock, and some threads die while they hold it.
    Accounts,
    /// Lock acquisitions are dropped in flight.
    Impatience,
    /// Locks are taken and released over links that are cut.
    Cuts,
    /// Several threads create the same roots; some drop their claims in flight.
    Names,
    /// Threads meet at barriers until one dies.
    Meetings,
    /// Objects are linked, moved, held and retired while processes die and keepers sweep up their memory.
    Shelves,
    /// As [`Shelves`](Self::Shelves), with threads that only move objects.
    Moves,
    /// As [`Shelves`](Self::Shelves), with threads that hold objects without a guard for longer than a sweep takes.
    Hoards,
    /// Threads make requests of each other, and pass handles on: [`trustees`](crate::trustees).
    Trustees,
    /// The same, and some of them die.
    MortalTrustees,
    /// The same, through mailboxes on a memory node.
    MailboxTrustees,
    /// The same, and most requests pass handles on.
    MailboxHandles,
    /// [`Trustees`](Self::Trustees) over links that are cut.
    CutTrustees,
}

use Program::{
    Accounts, CutTrustees, Cuts, Hoards, Impatience, MailboxHandles, MailboxTrustees, Meetings,
    MortalTrustees, Moves, Names, Release, Replace, Shelves, Trustees, Values,
};

const fn planted(
    plant: Plant,
    invariant: &'static str,
    why: &'static str,
    program: Program,
) -> PlantedInRuntime {
    PlantedInRuntime { plant, invariant, why, program, structure: None }
}

/// All planted bugs of the runtime.
pub const PLANTED_IN_RUNTIME: &[PlantedInRuntime] = &[
    planted(
        Plant::EarlyReclamation,
        "memory tagged `t` is used again in epoch `t + 2` at the earliest",
        "a reader may be pinned in the epoch before",
        Replace,
    )
    .detected_by(Structure::MsQueue, Check::Memory),
    planted(
        Plant::LonelyEpoch,
        "the epoch advances when every used slot has announced it",
        "a process whose threads read in an older epoch does not delay reclamation",
        Replace,
    ),
    planted(
        Plant::LowTag,
        "a tag bounds the epoch of the unlinking from above",
        "a process that lags behind tags objects with a past epoch",
        Replace,
    ),
    planted(
        Plant::UnguardedChain,
        "a detached chain keeps its thread in the epoch in which it was posted",
        "the release of a lock arrives after the object is freed",
        Release,
    ),
    planted(
        Plant::SameVersion,
        "the versions of all values of a `Versioned` differ",
        "a reader returns parts of two values",
        Values,
    )
    .detected_by(Structure::Register, Check::Error),
    planted(
        Plant::SingleLook,
        "a reader finds the same version before and after the value",
        "a write in between is not detected",
        Values,
    ),
    planted(
        Plant::QuietWriter,
        "the version is odd while the value changes",
        "a reader that begins and ends during a write does not detect it",
        Values,
    ),
    planted(
        Plant::HastyTakeover,
        "a live thread's locks are not taken over",
        "two threads are in one critical section",
        Accounts,
    )
    .detected_by(Structure::Register, Check::Error),
    planted(
        Plant::HastyDeath,
        "a thread counts as gone when all its chains have been executed",
        "its last WRITE arrives in the next owner's critical section",
        Accounts,
    ),
    planted(
        Plant::UnmarkedTakeover,
        "a lock taken over from a dead owner is marked for recovery",
        "an update that the owner left half done is not repaired",
        Accounts,
    ),
    planted(
        Plant::KeptAttempt,
        "an acquisition that is dropped in flight is undone",
        "its thread holds the lock forever, without a lock guard",
        Impatience,
    ),
    planted(
        Plant::SameToken,
        "no two outstanding tokens are equal",
        "undoing one task's acquisition releases another task's lock",
        Impatience,
    ),
    planted(
        Plant::SingleAmend,
        "a CAS that must take effect is posted again until it does",
        "a lock stays locked because the link was cut when it was released",
        Cuts,
    ),
    planted(
        Plant::KeptName,
        "a name whose claim is dropped in flight is released",
        "other threads wait for a root that no thread creates",
        Names,
    ),
    planted(
        Plant::SharedName,
        "exactly one of several claims of a name succeeds",
        "two threads each create a root, and use different ones",
        Names,
    ),
    planted(
        Plant::EndlessBarrier,
        "a wait for a thread ends when the thread has ended",
        "the other threads wait for a dead one",
        Meetings,
    ),
    planted(
        Plant::SweepWithoutWrites,
        "during a sweep, pointers that a thread writes to far memory are vetoed",
        "an object linked during the sweep is freed",
        Moves,
    ),
    planted(
        Plant::SweepWithoutThreads,
        "a process acknowledges a sweep when all its threads have vetoed the objects they hold",
        "an object held by a sleeping thread is freed, because another thread of its process has acknowledged",
        Hoards,
    ),
    planted(
        Plant::SweepWithoutHoldings,
        "a thread vetoes the objects that it holds when it acknowledges a sweep",
        "a held object is freed",
        Shelves,
    ),
    planted(
        Plant::SweepWithoutSecondLook,
        "links written before the first acknowledgement are found by a second search",
        "an object linked during the first search is freed",
        Shelves,
    ),
    planted(
        Plant::SweepWithoutGuards,
        "the vetoes are read when all guards older than the sweep have ended",
        "an object under a guard is freed before it is linked",
        Shelves,
    ),
    planted(
        Plant::SweepButOne,
        "a sweep after the last death frees all lost memory",
        "some memory of each dead process is lost",
        Shelves,
    ),
    planted(
        Plant::HeaderFirst,
        "a batch's header is written after its words",
        "the trustee executes words of the batch before",
        Trustees,
    ),
    planted(
        Plant::WideWindow,
        "a slot is written again when its answers were read",
        "a batch is lost under the next one",
        Trustees,
    ),
    planted(
        Plant::SilentBatch,
        "a client rings for each batch that the trustee may not look for",
        "a request is never executed: a lost wake-up",
        Trustees,
    ),
    planted(
        Plant::SwappedAnswers,
        "answers are in the order of their requests",
        "a client gets the answer to another's request",
        Trustees,
    ),
    planted(
        Plant::ForgottenBatch,
        "a trustee executes the batches of a lane one after the other",
        "a batch of the window is never answered",
        Trustees,
    ),
    planted(
        Plant::RepeatedBatch,
        "a trustee executes a batch when its header has the next number",
        "requests are executed twice",
        MortalTrustees,
    ),
    planted(
        Plant::ResentBatch,
        "a batch that is written again has the number that it had",
        "a request is executed again after its client has reconnected",
        CutTrustees,
    ),
    planted(
        Plant::LateLastWords,
        "a dead client's last batch is executed before its handles are counted out",
        "a batch that is applied after its client's eviction sends a handle of a value that is gone",
        MailboxHandles,
    ),
    planted(
        Plant::SharedEdge,
        "a handle that is sent takes an edge of its own",
        "the drop of one handle counts as that of another, and frees the value too early",
        Trustees,
    ),
    planted(
        Plant::LateGive,
        "a handle is visible to its receiver when the value's trustee knows of it",
        "the sender's death frees the value, which the receiver uses",
        MortalTrustees,
    ),
    planted(
        Plant::SureOfDeath,
        "what a dead trustee has not answered may have been executed",
        "a client is told that its request was not executed, and repeats it",
        MortalTrustees,
    ),
    planted(
        Plant::TornMailbox,
        "the words of a slot are read after its header",
        "a batch is executed with the words of the one before",
        MailboxTrustees,
    ),
];

impl PlantedInRuntime {
    const fn detected_by(self, structure: Structure, check: Check) -> Self {
        Self { structure: Some((structure, check)), ..self }
    }

    /// Runs a seed of the program; returns the finding, unless it is that the time limit was exceeded.
    pub fn find(&self, seed: u64) -> Option<Error> {
        let error = self.program.run(seed, self.plant).err()?;
        let is_late = matches!(&error, Error::Simulation(found) if found.finding == Finding::OutOfTime);
        (!is_late).then_some(error)
    }
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 16] = [
        Replace,
        Release,
        Values,
        Accounts,
        Impatience,
        Cuts,
        Names,
        Meetings,
        Shelves,
        Moves,
        Hoards,
        Trustees,
        MortalTrustees,
        MailboxTrustees,
        MailboxHandles,
        CutTrustees,
    ];

    /// Runs a seed with a planted bug, or with [`Plant::None`].
    ///
    /// # Errors
    /// The finding.
    pub fn run(self, seed: u64, plant: Plant) -> Result<()> {
        let options = match self {
            Replace => "jitter=50%,stall=5%,reclaim=lazy",
            Release => "jitter=50%,threads-per-node=3,reclaim=lazy",
            Values => "jitter=90%,stall=2%",
            Accounts => "jitter=90%,stall=3%,crash=0.7%,leaks=ignore",
            Impatience => "jitter=90%,stall=3%",
            Cuts => "jitter=50%,cut=3%,timeout=20us,leaks=ignore",
            Names => "jitter=90%,stall=5%",
            Meetings => "jitter=50%,crash=1%,leaks=ignore",
            Shelves | Moves => "jitter=90%,stall=2%,threads-per-node=2,sweep=yes,reclaim=lazy",
            // Sweeps are as short as possible.
            Hoards => "jitter=90%,threads-per-node=2,sweep=yes",
            Trustees => "jitter=90%,stall=1%",
            CutTrustees => "jitter=90%,stall=1%,cut=1%,timeout=60us,leaks=ignore",
            MailboxTrustees => "jitter=90%,stall=1%,timeout=200us,leaks=ignore,delegation=mailboxes",
            // Trustees are quick or slow: a slow one has more that a dead client has sent, and it has not executed.
            MailboxHandles => match seed / 3 % 3 {
                0 => "jitter=90%,stall=1%,timeout=200us,leaks=ignore,delegation=mailboxes",
                1 => {
                    "jitter=90%,stall=1%,timeout=200us,leaks=ignore,delegation=mailboxes,compute=served:200ns"
                }
                _ => "jitter=90%,stall=1%,timeout=200us,leaks=ignore,delegation=mailboxes,compute=served:2us",
            },
            MortalTrustees => "jitter=90%,stall=1%,timeout=200us,leaks=ignore",
        };
        let url = format!("sim:seed={seed},size=4MiB,limit=10s,plant={},{options}", plant.name());
        let cluster = Cluster::connect(&url)?;
        match self {
            Replace => cluster.run(4, replace).map(drop),
            Release => cluster.run(3, release).map(drop),
            Values => cluster.run(4, values).map(drop),
            Accounts => accounts_of_mortals(&cluster, seed),
            Impatience => cluster.run(3, impatience).map(drop),
            // A thread that can not join the run returns this error.
            Cuts => match cluster.run(3, cuts) {
                Ok(_) | Err(Error::NodeUnreachable(_)) => Ok(()),
                Err(error) => Err(error),
            },
            Names => cluster.run(3, names).map(drop),
            Meetings => cluster.run_surviving(4, meetings).map(drop),
            Shelves => shelves(&cluster, seed, 300, 100, work).map(drop),
            Moves => shelves(&cluster, seed, 100, 100, shift).map(drop),
            Hoards => shelves(&cluster, seed, 40, 10, hoard).map(drop),
            // Ten times as long as the work takes: a request is never answered. A thread that fails waits for lost answers before it ends, and others for its end.
            Trustees => requests(&cluster, seed, 0, 20),
            CutTrustees => requests(&cluster, seed, 0, 500),
            MailboxTrustees => requests(&cluster, seed, seed % 3, 20),
            MailboxHandles => {
                crate::trustees::run(&cluster, seed, seed % 3, Duration::from_millis(20), Mix::Handles)
            }
            MortalTrustees => requests(&cluster, seed, 1 + seed % 2, 20),
        }
    }
}

/// The program of [`trustees`](crate::trustees), with a time limit in milliseconds.
fn requests(cluster: &Cluster, seed: u64, mortals: u64, limit: u64) -> Result<()> {
    crate::trustees::run(cluster, seed, mortals, Duration::from_millis(limit), Mix::Requests)
}

/// Polls a future for at most so many nanoseconds; then drops it in flight and returns `None`.
async fn at_most<R>(ct: &ComputeThread, nanoseconds: u64, future: impl Future<Output = R>) -> Option<R> {
    let (mut future, mut sleep) = (pin!(future), pin!(ct.sleep(Duration::from_nanos(nanoseconds))));
    poll_fn(|context| {
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}

async fn sleep_below(ct: &ComputeThread, nanoseconds: u64) {
    let nanoseconds = ct.random_range(0..nanoseconds);
    ct.sleep(Duration::from_nanos(nanoseconds)).await;
}

fn expect(holds: bool, what: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::other(what)) }
}

// ---- replaced objects ----------------------------------------------------------------------------------------------

const MAGIC: u64 = 0x006d_6167_6963;

#[remote(align = 16)]
struct Item {
    magic: u64,
    #[marks(settled)]
    child: Link<Item>,
    lock: Lock,
}

#[remote]
struct Shelf {
    slots: [Link<Item>; 4],
}

async fn shelf(ct: &ComputeThread) -> Result<RemotePtr<Shelf>> {
    ct.root_or_init("shelf", async || Shelf::new_in(ct, Shelf::init()).await?.write(ct).await).await
}

fn slot(ct: &ComputeThread, shelf: RemotePtr<Shelf>, slots: usize) -> Result<Place<'static, Link<Item>>> {
    shelf.slots().get(ct.random_range(0..slots)).ok_or_else(|| Error::other("there are four slots"))
}

async fn check(g: &Guard<'_>, item: Shared<'_, Item>) -> Result<()> {
    expect(item.magic().read(g).await? == MAGIC, "the memory of an item was reused")
}

/// Retires the items of the shelf, when all threads are done.
async fn clear(ct: &ComputeThread, shelf: RemotePtr<Shelf>) -> Result<()> {
    ct.barrier("clear").await?;
    if ct.index() == 0 {
        let g = &ct.pin();
        for index in 0..4 {
            let Some(slot) = shelf.slots().get(index) else { continue };
            let item = slot.load(g).await?;
            if !item.is_null() {
                slot.store(g, Shared::NULL).await?;
                g.sched_reclaim(item).await?;
            }
        }
    }
    Ok(())
}

async fn replace(ct: &ComputeThread) -> Result<()> {
    let shelf = shelf(ct).await?;
    for _ in 0..40 {
        let slot = slot(ct, shelf, 1)?;
        {
            let g = &ct.pin();
            let item = slot.load(g).await?;
            if ct.random_chance(0.5) {
                let new = Item::new_in(ct, Item::init(MAGIC)).await?;
                if slot.compare_exchange(g, item, new).await?.is_ok() && !item.is_null() {
                    g.sched_reclaim(item).await?;
                }
            } else if !item.is_null() {
                sleep_below(ct, 30_000).await;
                check(g, item).await?;
            }
        }
        ct.try_reclaim().await;
    }
    clear(ct, shelf).await
}

async fn release(ct: &ComputeThread) -> Result<()> {
    let shelf = shelf(ct).await?;
    for _ in 0..20 {
        let slot = slot(ct, shelf, 4)?;
        {
            let g = &ct.pin();
            let item = slot.load(g).await?;
            if item.is_null() {
                let new = Item::new_in(ct, Item::init(MAGIC)).await?;
                slot.compare_exchange(g, item, new).await?.ok();
            } else if let Some(lock) = item.lock().try_acquire(g).await? {
                let unlinked = slot.compare_exchange(g, item, Shared::NULL).await?.is_ok();
                drop(lock);
                if unlinked {
                    g.sched_reclaim(item).await?;
                }
            }
        }
        for _ in 0..4 {
            ct.try_reclaim().await;
        }
    }
    clear(ct, shelf).await
}

// ---- values --------------------------------------------------------------------------------------------------------

#[remote]
struct Record {
    value: Versioned<[u64; 6]>,
}

async fn values(ct: &ComputeThread) -> Result<()> {
    let init = async || Record::new_in(ct, Record::init([0; 6])).await?.write(ct).await;
    let record = ct.root_or_init("record", init).await?;
    for _ in 0..30 {
        if ct.random_chance(0.5) {
            record.value().write(ct, [ct.random_range(1..1000); 6]).await?;
        } else {
            let value = record.value().read(ct).await?;
            expect(value == [value[0]; 6], "a value is torn")?;
        }
    }
    Ok(())
}

// ---- locks ---------------------------------------------------------------------------------------------------------

#[remote]
struct Account {
    lock: Lock,
    credit: Atomic<u64>,
    debit: Atomic<u64>,
}

async fn account(ct: &ComputeThread) -> Result<RemotePtr<Account>> {
    ct.root_or_init("account", async || Account::new_in(ct, Account::init()).await?.write(ct).await).await
}

/// Changes both words, with a WRITE for each.
async fn book(ct: &ComputeThread, account: RemotePtr<Account>) -> Result<()> {
    let mut lock = account.lock().acquire(ct).await?;
    let credit = account.credit().load(ct).await?;
    if lock.needs_recovery() {
        account.debit().store(ct, credit).await?;
        lock.recovered();
    }
    let debit = account.debit().load(ct).await?;
    expect(credit == debit, "an account is out of balance")?;
    account.credit().store(ct, credit + 1).await?;
    account.debit().store(ct, debit + 1).await?;
    if ct.random_chance(0.5) {
        lock.release().await?;
    }
    Ok(())
}

async fn accounts(ct: &ComputeThread) -> Result<()> {
    let account = account(ct).await?;
    let tasks = ct.tasks(2, async |_| {
        for _ in 0..8 {
            book(ct, account).await?;
        }
        Ok(())
    });
    tasks.await.map(drop)
}

/// Runs `accounts`. One thread dies just after its link is cut: chains in flight arrive when the link heals.
fn accounts_of_mortals(cluster: &Cluster, seed: u64) -> Result<()> {
    if let Some(simulation) = cluster.simulation() {
        let (mortal, chains) = ((seed % 4) as usize, 5 + seed * 37 % 90);
        let cut = Fault::cut(mortal, 0, Duration::from_micros(80));
        simulation.inject(cut.after_chains(chains));
        simulation.inject(Fault::crash(mortal).after_chains(chains));
    }
    cluster.run_surviving(4, accounts).map(drop)
}

async fn impatience(ct: &ComputeThread) -> Result<()> {
    let account = &account(ct).await?;
    let tasks = ct.tasks(2, async |_| {
        for _ in 0..12 {
            if ct.random_chance(0.5) {
                let nanoseconds = ct.random_range(0..4000);
                drop(at_most(ct, nanoseconds, account.lock().acquire(ct)).await.transpose()?);
            } else {
                book(ct, *account).await?;
            }
        }
        Ok(())
    });
    tasks.await.map(drop)
}

async fn cuts(ct: &ComputeThread) -> Result<()> {
    let account = loop {
        match account(ct).await {
            Ok(account) => break account,
            Err(Error::NodeUnreachable(_)) => {}
            Err(error) => return Err(error),
        }
    };
    for _ in 0..12 {
        match account.lock().acquire(ct).await {
            Ok(lock) => {
                sleep_below(ct, 2000).await;
                drop(lock);
            }
            Err(Error::NodeUnreachable(_)) => {}
            Err(error) => return Err(error),
        }
    }
    // Detached chains that failed are reported here.
    match ct.flush().await {
        Ok(()) | Err(Error::NodeUnreachable(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

// ---- names ---------------------------------------------------------------------------------------------------------

#[remote]
struct Counter {
    count: Atomic<u64>,
}

async fn names(ct: &ComputeThread) -> Result<()> {
    for name in ["a", "b", "c", "d"] {
        let counter = async || {
            ct.root_or_init(name, async || Counter::new_in(ct, Counter::init()).await?.write(ct).await).await
        };
        if ct.random_chance(0.5) {
            let nanoseconds = ct.random_range(0..9000);
            // This closure does not allocate: a program must free an object that it creates for a claim it drops.
            let claim = ct.root_or_init(name, async || -> Result<RemotePtr<Counter>> {
                Err(Error::other("the claim is abandoned"))
            });
            drop(at_most(ct, nanoseconds, claim).await);
        }
        counter().await?.count().fetch_add(ct, 1).await?;
        ct.barrier("counted").await?;
        let count = counter().await?.count().load(ct).await?;
        expect(count == ct.threads() as u64, "threads have counted with different counters")?;
    }
    Ok(())
}

async fn meetings(ct: &ComputeThread) -> Result<()> {
    for _ in 0..12 {
        sleep_below(ct, 3000).await;
        match ct.barrier("meeting").await {
            Ok(()) => {}
            Err(Error::BarrierBroken(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

// ---- memory of dead processes --------------------------------------------------------------------------------------

/// Figures of a run of [`Program::Shelves`].
#[derive(Clone, Copy, Debug)]
pub struct Aftermath {
    /// Threads that died.
    pub died: usize,
    /// Deaths that were not followed by a sweep.
    pub uncollected: u64,
    /// Bytes that were swept.
    pub swept_bytes: u64,
}

/// Runs [`Program::Shelves`] without a planted bug and with further options of the cluster's URL. Lost memory is an error: the simulator
/// sweeps once more when all threads have ended, and counts it.
///
/// # Errors
/// The finding.
pub fn aftermath(seed: u64, options: &str) -> Result<Aftermath> {
    let url =
        format!("sim:seed={seed},size=16MiB,jitter=90%,stall=2%,threads-per-node=2,sweep=yes,{options}");
    let cluster = Cluster::connect(&url)?;
    let died = shelves(&cluster, seed, 300, 100, work)?;
    let status = cluster.run(1, ComputeThread::status)?.swap_remove(0);
    Ok(Aftermath { died, uncollected: status.uncollected, swept_bytes: status.swept_bytes })
}

async fn dawdle(ct: &ComputeThread) {
    let long = if ct.random_chance(0.1) { 300_000 } else { 20_000 };
    sleep_below(ct, long).await;
}

/// Unlinks the item of a random slot.
async fn take<'g>(g: &'g Guard<'_>, shelf: RemotePtr<Shelf>) -> Result<Option<Shared<'g, Item>>> {
    let slot = slot(g, shelf, 4)?;
    let item = slot.load(g).await?;
    if item.is_null() || slot.compare_exchange(g, item, Shared::NULL).await?.is_err() {
        return Ok(None);
    }
    Ok(Some(item))
}

/// Links an item that this thread has unlinked into an empty slot. If three attempts fail, retires it and links its child instead.
async fn put(g: &Guard<'_>, shelf: RemotePtr<Shelf>, item: Shared<'_, Item>) -> Result<()> {
    check(g, item).await?;
    for _ in 0..3 {
        if slot(g, shelf, 4)?.compare_exchange(g, Shared::NULL, item.as_ptr()).await?.is_ok() {
            return Ok(());
        }
        dawdle(g).await;
    }
    give_up(g, shelf, item).await
}

/// Retires an item, and links its child into a random slot. A mark prevents other threads from adding another child.
async fn give_up(g: &Guard<'_>, shelf: RemotePtr<Shelf>, item: Shared<'_, Item>) -> Result<()> {
    let child = loop {
        let child = item.child().load(g).await?;
        if item.child().compare_exchange(g, child, child.with_settled()).await?.is_ok() {
            break child.without_marks();
        }
    };
    dawdle(g).await;
    g.sched_reclaim(item).await?;
    if child.is_null() {
        return Ok(());
    }
    Box::pin(put(g, shelf, child)).await
}

async fn keep(ct: &ComputeThread, shelf: RemotePtr<Shelf>, held: Held<Item>) -> Result<()> {
    let long = if ct.random_chance(0.1) { 2_000_000 } else { 50_000 };
    sleep_below(ct, long).await;
    let g = &ct.pin();
    put(g, shelf, held.as_ptr().shared(g)).await
}

/// Performs a step, and pauses.
async fn work(ct: &ComputeThread, shelf: RemotePtr<Shelf>) -> Result<()> {
    step(ct, shelf).await?;
    dawdle(ct).await;
    Ok(())
}

async fn step(ct: &ComputeThread, shelf: RemotePtr<Shelf>) -> Result<()> {
    let what = ct.random_range(0..6);
    // An item is held without a guard.
    if what == 5 {
        let held = {
            let g = &ct.pin();
            take(g, shelf).await?.map(|item| ct.hold(item))
        };
        return match held {
            Some(held) => keep(ct, shelf, held).await,
            None => Ok(()),
        };
    }
    let g = &ct.pin();
    match what {
        0 | 1 => {
            let mut item = Item::new_in(ct, Item::init(MAGIC)).await?;
            dawdle(ct).await;
            for _ in 0..3 {
                match slot(ct, shelf, 4)?.compare_exchange(g, Shared::NULL, item).await? {
                    Ok(_) => break,
                    Err(taken) => item = taken.new,
                }
            }
        }
        2 => {
            let Some(item) = take(g, shelf).await? else { return Ok(()) };
            let long = if ct.random_chance(0.2) { 4_000_000 } else { 20_000 };
            sleep_below(ct, long).await;
            give_up(g, shelf, item).await?;
        }
        // An item becomes the child of another.
        3 => {
            let Some(item) = take(g, shelf).await? else { return Ok(()) };
            dawdle(ct).await;
            let other = slot(ct, shelf, 4)?.load(g).await?;
            if other.is_null()
                || other.child().compare_exchange(g, Shared::NULL, item.as_ptr()).await?.is_err()
            {
                put(g, shelf, item).await?;
            }
        }
        _ => {
            let mut item = slot(ct, shelf, 4)?.load(g).await?;
            while !item.is_null() {
                check(g, item).await?;
                dawdle(ct).await;
                item = item.child().load(g).await?.without_marks();
            }
        }
    }
    Ok(())
}

/// Moves an item from one slot to another.
async fn shift(ct: &ComputeThread, shelf: RemotePtr<Shelf>) -> Result<()> {
    let g = &ct.pin();
    let item = match take(g, shelf).await? {
        Some(item) => item,
        None if ct.random_chance(0.1) => {
            let new = Item::new_in(ct, Item::init(MAGIC)).await?;
            return slot(g, shelf, 4)?.compare_exchange(g, Shared::NULL, new).await.map(drop);
        }
        None => return Ok(()),
    };
    check(g, item).await?;
    for _ in 0..16 {
        if slot(g, shelf, 4)?.compare_exchange(g, Shared::NULL, item.as_ptr()).await?.is_ok() {
            return check(g, item).await;
        }
    }
    g.sched_reclaim(item).await
}

/// The first thread of a process, which also runs the keeper, creates items. The second holds an item while it sleeps.
async fn hoard(ct: &ComputeThread, shelf: RemotePtr<Shelf>) -> Result<()> {
    if ct.index().is_multiple_of(2) {
        let g = &ct.pin();
        let new = Item::new_in(ct, Item::init(MAGIC)).await?;
        slot(g, shelf, 4)?.compare_exchange(g, Shared::NULL, new).await?.ok();
        return Ok(());
    }
    let held = {
        let g = &ct.pin();
        take(g, shelf).await?.map(|item| ct.hold(item))
    };
    sleep_below(ct, 4_000_000).await;
    let Some(held) = held else { return Ok(()) };
    let g = &ct.pin();
    put(g, shelf, held.as_ptr().shared(g)).await
}

/// Runs steps on the threads of four processes, two of which die; returns how many threads died.
fn shelves(
    cluster: &Cluster,
    seed: u64,
    chains: u64,
    steps: u64,
    work: impl AsyncFn(&ComputeThread, RemotePtr<Shelf>) -> Result<()> + Sync,
) -> Result<usize> {
    let Some(simulation) = cluster.simulation() else { return Ok(0) };
    for compute in 1..3 {
        let chains = chains + (seed * 31 + compute as u64 * 470) % (5 * chains);
        simulation.inject(Fault::crash(compute).after_chains(chains));
    }
    let ended = cluster.run_surviving(8, async |ct| {
        let shelf = shelf(ct).await?;
        for _ in 0..steps {
            work(ct, shelf).await?;
        }
        Ok(())
    })?;
    Ok(ended.iter().filter(|ended| ended.is_none()).count())
}
