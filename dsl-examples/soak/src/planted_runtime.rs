//! The runtime's own planted bugs: what each leaves out, and the small program that must find it.
//!
//! The bugs in [`planted`](crate::planted) are edits of structures. These are the cluster's option `plant=`: each leaves out one step that an
//! argument of the runtime rests on. A program here does what users' programs do, looks at what it reads, and returns an error if that
//! can not be; or the simulator finds something. Without a plant every seed of every program succeeds.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::{Fault, Finding};
use farfield::{Held, RemotePtr, Versioned};

use crate::planted::Bug;

/// A bug of the runtime.
#[derive(Clone, Copy, Debug)]
pub struct PlantedInRuntime {
    /// What it is called in a cluster's URL.
    pub plant: &'static str,
    /// The invariant that it breaks.
    pub invariant: &'static str,
    /// Why that does harm.
    pub why: &'static str,
    /// What runs into it.
    pub program: Program,
}

/// A program that uses a part of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Objects are replaced and retired while others read them.
    Replace,
    /// Objects are retired whose locks are released without waiting.
    Release,
    /// Values of several words are written and read.
    Values,
    /// Two words are changed under a lock, and some of the threads that do so die.
    Accounts,
    /// Acquisitions are dropped in flight.
    Impatience,
    /// Locks are taken and released over links that are cut.
    Cuts,
    /// Several threads make the same roots; some drop their claims in flight.
    Names,
    /// Threads meet at barriers until one dies.
    Meetings,
    /// Objects are linked, moved, held and retired while processes die and keepers sweep up their memory.
    Shelves,
    /// As [`Shelves`](Self::Shelves), where each thread moves objects all the time.
    Moves,
    /// Likewise, where threads hold objects without a guard for longer than a sweep takes.
    Hoards,
}

use Program::{
    Accounts, Cuts, Hoards, Impatience, Meetings, Moves, Names, Release, Replace, Shelves, Values,
};

const fn planted(
    plant: &'static str,
    invariant: &'static str,
    why: &'static str,
    program: Program,
) -> PlantedInRuntime {
    PlantedInRuntime { plant, invariant, why, program }
}

/// All of them.
pub const PLANTED_IN_RUNTIME: &[PlantedInRuntime] = &[
    planted(
        "early-reclamation",
        "memory tagged `t` is used again in epoch `t + 2` at the earliest",
        "a reader may be pinned in the epoch before",
        Replace,
    ),
    planted(
        "lonely-epoch",
        "the epoch advances when every used slot has announced it",
        "a process whose threads read in an older epoch holds nothing back",
        Replace,
    ),
    planted(
        "low-tag",
        "a tag bounds the epoch of the unlinking from above",
        "a process that lags behind tags with an epoch that is over",
        Replace,
    ),
    planted(
        "unguarded-chain",
        "a chain that is posted and left stays in the oldest epoch of its thread",
        "the release of a lock arrives when the object is freed",
        Release,
    ),
    planted(
        "same-version",
        "the versions of all values of a `Versioned` differ",
        "a reader takes parts of two values for one",
        Values,
    ),
    planted(
        "single-look",
        "a reader finds the same version before and after the value",
        "a writer came between",
        Values,
    ),
    planted(
        "quiet-writer",
        "the version is odd while the value changes",
        "a reader that begins in the middle of a write ends there, too",
        Values,
    ),
    planted(
        "hasty-takeover",
        "what a live thread holds is not taken from it",
        "two threads are in one critical section",
        Accounts,
    ),
    planted(
        "hasty-death",
        "a thread counts as gone when all that it posted has been executed",
        "its last WRITE arrives in its successor's critical section",
        Accounts,
    ),
    planted(
        "unmarked-takeover",
        "a lock that was taken from a dead owner says so",
        "what the owner had half changed stays so",
        Accounts,
    ),
    planted(
        "kept-attempt",
        "an acquisition that is dropped in flight is undone",
        "its thread holds the lock for ever and does not know it",
        Impatience,
    ),
    planted(
        "same-token",
        "no two outstanding tokens are equal",
        "what undoes one task's acquisition releases another's lock",
        Impatience,
    ),
    planted(
        "single-amend",
        "what must not stay as it is is exchanged until it is",
        "a lock stays locked because the link was cut when it was released",
        Cuts,
    ),
    planted(
        "kept-name",
        "a name whose claim is dropped in flight is given back",
        "others wait for a root that nobody makes",
        Names,
    ),
    planted(
        "shared-name",
        "of several claims of a name one succeeds",
        "two threads make a root each, and use different ones",
        Names,
    ),
    planted(
        "endless-barrier",
        "every wait for a thread ends when that thread has ended",
        "the others wait for the dead one",
        Meetings,
    ),
    planted(
        "sweep-without-writes",
        "while others sweep, what a thread writes into far memory is vetoed",
        "an object that was linked meanwhile is taken for lost",
        Moves,
    ),
    planted(
        "sweep-without-threads",
        "a process answers when all its threads have vetoed what they hold",
        "what a sleeping thread holds is taken for lost because another thread of its process has answered",
        Hoards,
    ),
    planted(
        "sweep-without-holdings",
        "what a thread holds when it hears is vetoed",
        "a held object is taken for lost",
        Shelves,
    ),
    planted(
        "sweep-without-second-look",
        "links that were written before anybody heard are looked for again",
        "an object that was linked while the first look was under way is taken for lost",
        Shelves,
    ),
    planted(
        "sweep-without-guards",
        "the vetoes are read when all guards of the beginning are over",
        "what was under a guard is taken for lost before it is linked",
        Shelves,
    ),
    planted(
        "sweep-but-one",
        "when memory was swept after the last death, none is lost",
        "some of the memory of each process that dies is gone for ever",
        Shelves,
    ),
];

/// Those that no structure's entry in [`planted`](crate::planted) plants, too: a bug counts once.
pub fn only_here() -> impl Iterator<Item = &'static PlantedInRuntime> {
    let elsewhere = |planted: &PlantedInRuntime| {
        let option = format!("plant={}", planted.plant);
        crate::planted::all()
            .any(|other| matches!(other.bug, Bug::Runtime(options) if options.contains(&option)))
    };
    PLANTED_IN_RUNTIME.iter().filter(move |planted| !elsewhere(planted))
}

impl PlantedInRuntime {
    /// What the seed's run finds; `None` if it finds nothing, or only that its time is over.
    pub fn find(&self, seed: u64) -> Option<Error> {
        let error = self.program.run(seed, self.plant).err()?;
        let is_late = matches!(&error, Error::Simulation(found) if found.finding == Finding::OutOfTime);
        (!is_late).then_some(error)
    }
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 11] =
        [Replace, Release, Values, Accounts, Impatience, Cuts, Names, Meetings, Shelves, Moves, Hoards];

    /// Runs what a seed stands for, with a bug planted, or `none`.
    ///
    /// # Errors
    /// What was found.
    pub fn run(self, seed: u64, plant: &str) -> Result<()> {
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
            // As quick a sweep as can be.
            Hoards => "jitter=90%,threads-per-node=2,sweep=yes",
        };
        let url = format!("sim:seed={seed},size=4MiB,limit=10s,plant={plant},{options}");
        let cluster = Cluster::connect(&url)?;
        match self {
            Replace => cluster.run(4, replace).map(drop),
            Release => cluster.run(3, release).map(drop),
            Values => cluster.run(4, values).map(drop),
            Accounts => accounts_of_mortals(&cluster, seed),
            Impatience => cluster.run(3, impatience).map(drop),
            // A thread that can not even join reports that.
            Cuts => match cluster.run(3, cuts) {
                Ok(_) | Err(Error::NodeUnreachable(_)) => Ok(()),
                Err(error) => Err(error),
            },
            Names => cluster.run(3, names).map(drop),
            Meetings => cluster.run_surviving(4, meetings).map(drop),
            Shelves => shelves(&cluster, seed, 300, 100, work).map(drop),
            Moves => shelves(&cluster, seed, 100, 100, shift).map(drop),
            Hoards => shelves(&cluster, seed, 40, 10, hoard).map(drop),
        }
    }
}

/// What a future gives, unless that takes longer than so many nanoseconds: then it is dropped where it waits.
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

// ---- objects that are replaced -------------------------------------------------------------------------------------

const MAGIC: u64 = 0x006d_6167_6963;

#[remote(align = 16)]
struct Item {
    magic: u64,
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
    expect(item.magic().read(g).await? == MAGIC, "an item is used for something else")
}

/// Frees what is in the shelf, once all threads are done with it.
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

/// Changes both words by a WRITE each.
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

/// One of the threads dies when its link has just been cut: the chains that it had posted arrive when the link heals.
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
    // What still failed the thread hears of here.
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
            // An object that was made for nothing is the program's to free: what is made here is made by nobody else.
            let claim = ct.root_or_init(name, async || -> Result<RemotePtr<Counter>> {
                Err(Error::other("it was only a try"))
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

/// What became of a run of [`Program::Shelves`].
#[derive(Clone, Copy, Debug)]
pub struct Aftermath {
    /// Threads that died.
    pub died: usize,
    /// Deaths that no sweep has followed.
    pub uncollected: u64,
    /// Bytes that were swept.
    pub swept_bytes: u64,
}

/// Runs [`Program::Shelves`] with nothing planted and further options of the cluster's URL. Memory that is lost in the end is an
/// error, since the simulator has memory swept once more when all threads have ended, and counts it.
///
/// # Errors
/// What was found.
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

/// Unlinks the item in some slot.
async fn take<'g>(g: &'g Guard<'_>, shelf: RemotePtr<Shelf>) -> Result<Option<Shared<'g, Item>>> {
    let slot = slot(g, shelf, 4)?;
    let item = slot.load(g).await?;
    if item.is_null() || slot.compare_exchange(g, item, Shared::NULL).await?.is_err() {
        return Ok(None);
    }
    Ok(Some(item))
}

/// Links an item that this thread has unlinked into an empty slot. If three attempts fail, retires it and puts its child.
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

/// Retires an item, and puts its child into some slot. The mark keeps other threads from adding another child.
async fn give_up(g: &Guard<'_>, shelf: RemotePtr<Shelf>, item: Shared<'_, Item>) -> Result<()> {
    let child = loop {
        let child = item.child().load(g).await?;
        if item.child().compare_exchange(g, child, child.with_marks(1)).await?.is_ok() {
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

/// A step of a thread, and a pause.
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

/// The first thread of a process, which its keeper shares, makes items. The second holds an item while it sleeps.
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
