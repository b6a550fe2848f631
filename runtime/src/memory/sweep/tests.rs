//! Sweeping in the simulator: objects that are moved about while processes die and others take back what they left. The simulator's
//! books know what is freed, and find each access to it. `farfield-soak` plants the bugs that show that they do (`planted_runtime.rs`).

use std::time::Duration;

use super::{Candidates, Manner, Pace};
use crate::Held;
use crate::cluster::ComputeThread;
use crate::cluster::control;
use crate::prelude::*;
use crate::sim::Fault;

const MAGIC: u64 = 0x006d_6167_6963;
const SLOTS: usize = 4;

#[remote(align = 16)]
struct Item {
    magic: u64,
    child: Link<Item>,
}

#[remote]
struct Shelf {
    slots: [Link<Item>; SLOTS],
}

async fn shelf(ct: &ComputeThread) -> Result<RemotePtr<Shelf>> {
    ct.root_or_init("shelf", async || Shelf::new_in(ct, Shelf::init()).await?.write(ct).await).await
}

fn slot(ct: &ComputeThread, shelf: RemotePtr<Shelf>) -> Place<'static, Link<Item>> {
    let index = ct.random_range(0..SLOTS);
    shelf.slots().get(index).expect("it is in range")
}

async fn dawdle(ct: &ComputeThread) {
    let long = if ct.random_chance(0.1) { 300_000 } else { 20_000 };
    let nanoseconds = ct.random_range(0..long);
    ct.sleep(Duration::from_nanos(nanoseconds)).await;
}

async fn check(g: &Guard<'_>, item: Shared<'_, Item>) -> Result<()> {
    let magic = item.magic().read(g).await?;
    if magic == MAGIC { Ok(()) } else { Err(crate::Error::other("an item is used for something else")) }
}

/// Takes what is in a slot.
async fn take<'g>(g: &'g Guard<'_>, shelf: RemotePtr<Shelf>) -> Result<Option<Shared<'g, Item>>> {
    let slot = slot(g, shelf);
    let item = slot.load(g).await?;
    if item.is_null() || slot.compare_exchange(g, item, Shared::NULL).await?.is_err() {
        return Ok(None);
    }
    Ok(Some(item))
}

/// Puts an item that nobody else can take into some slot, or gives it up with all that it leads to.
async fn put(g: &Guard<'_>, shelf: RemotePtr<Shelf>, item: Shared<'_, Item>) -> Result<()> {
    check(g, item).await?;
    for _ in 0..3 {
        if slot(g, shelf).compare_exchange(g, Shared::NULL, item.as_ptr()).await?.is_ok() {
            return Ok(());
        }
        dawdle(g).await;
    }
    give_up(g, shelf, item).await
}

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

/// One step of a thread's work.
async fn work(ct: &ComputeThread, shelf: RemotePtr<Shelf>) -> Result<()> {
    let what = ct.random_range(0..6);
    // Held for longer than any guard.
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
                match slot(ct, shelf).compare_exchange(g, Shared::NULL, item).await? {
                    Ok(_) => break,
                    Err(taken) => item = taken.new,
                }
            }
        }
        2 => {
            let Some(item) = take(g, shelf).await? else { return Ok(()) };
            let long = if ct.random_chance(0.2) { 4000 } else { 20 };
            let microseconds = ct.random_range(0..long);
            ct.sleep(Duration::from_micros(microseconds)).await;
            give_up(g, shelf, item).await?;
        }
        // Below another.
        3 => {
            let Some(item) = take(g, shelf).await? else { return Ok(()) };
            dawdle(ct).await;
            let other = slot(ct, shelf).load(g).await?;
            if other.is_null()
                || other.child().compare_exchange(g, Shared::NULL, item.as_ptr()).await?.is_err()
            {
                put(g, shelf, item).await?;
            }
        }
        _ => {
            let mut item = slot(ct, shelf).load(g).await?;
            while !item.is_null() {
                check(g, item).await?;
                dawdle(ct).await;
                item = item.child().load(g).await?.without_marks();
            }
        }
    }
    Ok(())
}

async fn keep(ct: &ComputeThread, shelf: RemotePtr<Shelf>, held: Held<Item>) -> Result<()> {
    let long = if ct.random_chance(0.1) { 2000 } else { 50 };
    let microseconds = ct.random_range(0..long);
    ct.sleep(Duration::from_micros(microseconds)).await;
    let g = &ct.pin();
    put(g, shelf, Shared::unmarked(held.as_ptr().address())).await
}

/// What a seed comes to: how many threads died, for how many deaths memory was swept, and the bytes that are lost in the end.
#[derive(Debug, Default)]
struct Outcome {
    died: usize,
    swept: u64,
    lost: u64,
}

fn run(seed: u64) -> Result<Outcome> {
    let url =
        format!("sim:seed={seed},threads-per-node=2,stall=2%,jitter=90%,sweep=yes,leaks=ignore,size=16MiB");
    let cluster = Cluster::connect(&url)?;
    let simulation = cluster.simulation().expect("it is simulated");
    for compute in 1..3 {
        simulation
            .inject(Fault::crash(compute).after_chains(300 + (seed * 31 + compute as u64 * 470) % 1500));
    }
    let ended = cluster.run_surviving(8, async |ct| {
        let shelf = shelf(ct).await?;
        for _ in 0..100 {
            work(ct, shelf).await?;
            dawdle(ct).await;
        }
        // Other threads of the process go on with what this one leaves, and so does its keeper.
        Ok(())
    })?;
    let died = ended.iter().filter(|ended| ended.is_none()).count();
    let [lost, swept] = cluster.run(1, async |ct| {
        let pace = Pace::default();
        let mut before = ct.read_map().await?;
        ct.mark_all(&mut before, Manner::Beside(&pace)).await?;
        let lost = before.candidates(Some(&ct.read_pool(&pace).await?));
        // What this thread has is not lost.
        let lost = Candidates::new(1, &lost);
        ct.heap().veto_held(&lost);
        ct.process.veto_spare(&ct.heap().grid, &lost);
        let is_vetoed = |index| lost.vetoed().iter().any(|vetoed| vetoed.has(index));
        let lost: Vec<_> =
            lost.indices().filter(|index| !is_vetoed(*index)).map(|index| lost.block(index)).collect();
        let swept = ct.read_word(control::swept()).await?;
        Ok([lost.iter().map(|block| block.bytes).sum(), swept])
    })?[0];
    Ok(Outcome { died, swept, lost })
}

/// How many seeds are tried: optimised they take some 30 ms each.
const SEEDS: u64 = if cfg!(debug_assertions) { 40 } else { 500 };

#[test]
fn what_the_dead_have_left_comes_back_and_nothing_else() {
    let (mut died, mut swept, mut lost) = (0, 0, 0);
    for seed in 0..SEEDS {
        let outcome = run(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        died += outcome.died;
        swept += outcome.swept;
        lost += u64::from(outcome.lost > 0);
    }
    // Marking is conservative: an old word may keep some garbage until the next sweep.
    assert!(10 * lost < SEEDS, "something is lost after {lost} of {SEEDS} seeds");
    assert!(died as u64 > 2 * SEEDS && swept > SEEDS, "{died} died, swept {swept} times");
}
