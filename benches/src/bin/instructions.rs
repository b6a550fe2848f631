//! Instructions of an operation, counted by callgrind: `cargo xtask instructions` runs this program under valgrind and prints the figures.
//!
//! Each operation runs [`WARM`] times uncounted, then [`COUNTED`] times while callgrind counts, and callgrind writes the counts to a file that has
//! the operation's name. Callgrind counts for the measured thread only: the keeper, the memory node and the other member are not included.
//! Rare work (advancing the epoch, freeing a batch, taking a chunk) is included as its share.
//!
//! | operation | one of it |
//! |---|---|
//! | `load`, `store`, `compare_exchange` | the operation of an `Atomic`, under a guard |
//! | `pin` | pins and unpins |
//! | `snapshot_3`, `snapshot_64` | a READ of an object of 3 or 64 words |
//! | `chain_4` | a chain of load, store, exchange and addition of four words of one object |
//! | `lock` | acquires a free lock and releases it, awaiting both |
//! | `new` | makes an object of 64 bytes and drops it unpublished |
//! | `retire` | pins, makes and writes an object of 64 bytes, retires it, unpins |
//! | `lazy-list.update` | inserts and removes a key of a lazy list that has one smaller key |
//! | `lazy-list.update.native` | the same of the list by hand on `crossbeam-epoch` |
//! | `trust.request` | a client's share of a request that it awaits, one of eight that are made at one time |
//! | `trust.request.served` | its trustee's share |
//!
//! All but the last three run twice: alone on `local:`, and on `shm:` beside a second process that is a member of the cluster and waits (`.shm`).

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::future::poll_fn;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_benches::NativeLazyList;
use farfield_examples::LazyList;
use valgrind_requests::{callgrind, valgrind};

/// Executions before those that are counted: caches of blocks and limbo lists reach their sizes.
const WARM: u64 = 1024;
/// Executions that are counted.
const COUNTED: u64 = 4096;

/// A run of several processes.
const GROUP: &str = "instructions";
const MEMBERS: u16 = 2;

#[remote]
struct Small {
    words: [u64; 3],
}

#[remote]
struct Object {
    words: [u64; 8],
}

#[remote]
struct Large {
    words: [u64; 64],
}

#[remote]
struct Four {
    first: Atomic<u64>,
    second: Atomic<u64>,
    third: Atomic<u64>,
    fourth: Atomic<u64>,
}

#[remote]
struct Locked {
    lock: Lock,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] if valgrind::running_on_valgrind() == 0 => {
            Err(Error::other("it runs under valgrind: cargo xtask instructions"))
        }
        [] => measure(),
        ["member", url] => member(url),
        _ => Err(Error::other("it takes no arguments")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure() -> Result<()> {
    callgrind::start_instrumentation();
    native();
    Cluster::connect("local:")?.run(1, async |ct| Counter { ct, suffix: "" }.count_all().await)?;
    requests(Side::Trustee, "trust.request.served")?;
    requests(Side::Client, "trust.request")?;
    let name = format!("instructions-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&format!("shm:{name}"));
    options.segment_bytes = 64 << 20;
    let node = MemoryNode::listen(&options)?;
    let stopper = node.stopper()?;
    std::thread::scope(|scope| {
        scope.spawn(|| node.serve());
        let counted = shared(&format!("shm:{name}"));
        stopper.stop();
        counted
    })
}

/// Counts on `shm:`, beside a second member.
fn shared(url: &str) -> Result<()> {
    let mut other = Command::new(std::env::current_exe().map_err(Error::other)?)
        .args(["member", url])
        .spawn()
        .map_err(Error::other)?;
    let cluster = Cluster::connect(url)?.in_group(GROUP, 0, MEMBERS)?;
    cluster.run(1, async |ct| {
        Counter { ct, suffix: ".shm" }.count_all().await?;
        ct.barrier("counted").await
    })?;
    if other.wait().map_err(Error::other)?.success() {
        Ok(())
    } else {
        Err(Error::other("the other member failed"))
    }
}

/// The second member: it waits until the first has counted.
fn member(url: &str) -> Result<()> {
    let cluster = Cluster::connect(url)?.in_group(GROUP, 1, MEMBERS)?;
    cluster.run(1, async |ct| ct.barrier("counted").await).map(drop)
}

/// Switches counting on, or off. Out of line, so that the counted loop is compiled as without it.
#[inline(never)]
fn toggle() {
    callgrind::toggle_collect();
}

/// Has callgrind write what it has counted to a file, and says which operation that was and how often.
fn dump(name: &str) {
    let name = CString::new(format!("{name} {COUNTED}")).expect("names have no zero byte");
    callgrind::dump_stats_at(name);
}

/// Counts the executions of an operation, a block that may await. A closure that returns a future would cost as much as a load.
macro_rules! count {
    ($name:expr, $turn:pat => $operation:block) => {
        for turn in 0..WARM + COUNTED {
            if turn == WARM {
                toggle();
            }
            let $turn = turn;
            $operation
        }
        toggle();
        dump(&$name);
    };
}

fn native() {
    let list = NativeLazyList::default();
    list.insert(1);
    count!("lazy-list.update.native", _ => {
        assert!(list.insert(black_box(2)) && list.remove(black_box(2)));
    });
}

/// Requests that are made at one time: a batch of eight.
const TOGETHER: u64 = 8;

/// A side of a request.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Client,
    Trustee,
}

/// Adds to the value of a trustee.
fn add(value: &mut u64, by: u64) -> u64 {
    *value += by;
    *value
}

/// Counts the share of a side in a request. Each of the two threads blocks while the other one works, so none looks in vain.
fn requests(side: Side, name: &str) -> Result<()> {
    let (turn, is_warm, is_over) = (&Barrier::new(2), &AtomicBool::new(false), &AtomicBool::new(false));
    let switch = |switching| {
        if side == switching && is_warm.load(Ordering::Relaxed) {
            toggle();
        }
    };
    Cluster::connect("local:")?.run(2, async |ct| {
        if ct.index() == 0 {
            ct.publish("value", ct.entrust(0_u64).await?.store(ct).await?).await?;
            ct.barrier("published").await?;
            ct.barrier("open").await?;
            loop {
                turn.wait();
                if is_over.load(Ordering::Relaxed) {
                    return ct.barrier("counted").await;
                }
                switch(Side::Trustee);
                drop(ct.pin());
                switch(Side::Trustee);
                turn.wait();
            }
        }
        ct.barrier("published").await?;
        let value = Trust::<u64>::open(ct.lookup("value").await?, ct).await?;
        value.apply(ct, 1, add).await?;
        ct.barrier("open").await?;
        // The last of the tasks waits for the trustee, whenever all others wait for it.
        let (left, awaited) =
            (Cell::new(TOGETHER * ((WARM + COUNTED) / TOGETHER)), RefCell::new(None::<Waker>));
        let tasks = ct.tasks(TOGETHER as usize + 1, async |task| {
            if (task as u64) < TOGETHER {
                for request in 0..(WARM + COUNTED) / TOGETHER {
                    if request == WARM / TOGETHER && !is_warm.swap(true, Ordering::Relaxed) {
                        switch(Side::Client);
                    }
                    black_box(value.apply(ct, black_box(1), add).await?);
                    left.set(left.get() - 1);
                    if left.get().is_multiple_of(TOGETHER)
                        && let Some(waker) = awaited.take()
                    {
                        waker.wake();
                    }
                }
                return Ok(());
            }
            poll_fn(|context| {
                if left.get() == 0 {
                    return Poll::Ready(Ok(()));
                }
                switch(Side::Client);
                turn.wait();
                turn.wait();
                switch(Side::Client);
                awaited.replace(Some(context.waker().clone()));
                Poll::Pending
            })
            .await
        });
        tasks.await?;
        switch(Side::Client);
        is_over.store(true, Ordering::Relaxed);
        turn.wait();
        dump(name);
        ct.barrier("counted").await
    })?;
    Ok(())
}

/// Counts the operations of a thread.
struct Counter<'ct> {
    ct: &'ct ComputeThread,
    /// Ends the names of its figures.
    suffix: &'static str,
}

impl Counter<'_> {
    async fn count_all(&self) -> Result<()> {
        self.words().await?;
        self.objects().await?;
        self.list().await
    }

    /// Operations on words of objects that stay.
    async fn words(&self) -> Result<()> {
        let ct = self.ct;
        let small = Small::new_in(ct, Small::init([1; 3])).await?.write(ct).await?;
        let large = Large::new_in(ct, Large::init([1; 64])).await?.write(ct).await?;
        let four = Four::new_in(ct, Four::init()).await?.write(ct).await?;
        let locked = Locked::new_in(ct, Locked::init()).await?.write(ct).await?;
        let (small, large, four, locked) = black_box((small, large, four, locked));
        let g = &ct.pin();
        let name = |name: &str| format!("{name}{}", self.suffix);
        count!(name("load"), _ => {
            black_box(four.first().load(g).await?);
        });
        count!(name("store"), turn => {
            four.second().store(g, turn).await?;
        });
        count!(name("compare_exchange"), _ => {
            let _ = black_box(four.third().compare_exchange(g, 0, 0).await?);
        });
        count!(name("snapshot_3"), _ => {
            black_box(&small.read(g).await?);
        });
        count!(name("snapshot_64"), _ => {
            black_box(&large.read(g).await?);
        });
        count!(name("chain_4"), turn => {
            let (load, store) = (op::load(four.first()), op::store(four.second(), turn));
            let (exchange, add) = (op::compare_exchange(four.third(), 0, 0), op::fetch_add(four.fourth(), 1));
            let _ = black_box(g.chain((load, store, exchange, add)).submit().await?);
        });
        count!(name("lock"), _ => {
            locked.lock().acquire(g).await?.release().await?;
        });
        Ok(())
    }

    /// Guards, and objects that come and go.
    async fn objects(&self) -> Result<()> {
        let ct = self.ct;
        let name = |name: &str| format!("{name}{}", self.suffix);
        count!(name("pin"), _ => {
            black_box(ct.pin());
        });
        count!(name("new"), turn => {
            black_box(Object::new_in(ct, Object::init([turn; 8])).await?);
        });
        count!(name("retire"), turn => {
            let g = ct.pin();
            let object = Object::new_in(ct, Object::init([turn; 8])).await?.write(ct).await?;
            g.sched_reclaim(object.shared(&g)).await?;
        });
        Ok(())
    }

    async fn list(&self) -> Result<()> {
        let ct = self.ct;
        let list = LazyList::<u64>::attach(LazyList::create(ct).await?, ct).await?;
        list.insert(1, ct).await?;
        count!(format!("lazy-list.update{}", self.suffix), _ => {
            assert!(list.insert(black_box(2), ct).await?);
            assert!(list.remove(black_box(2), ct).await?);
        });
        Ok(())
    }
}
