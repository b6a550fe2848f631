//! The programs of the book's chapters on several processes. A thread of this process with its own connection, number and keeper stands for
//! each process. The threads share only the memory.

#![cfg(target_os = "linux")]

use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::prelude::*;

/// Runs `body` while a memory node serves a cluster.
fn with_cluster(name: &str, body: impl FnOnce(&str) -> farfield::Result<()>) {
    let name = format!("book-{name}-{}", std::process::id());
    let mut options = MemoryNodeOptions::new(&format!("shm:{name}"));
    options.segment_bytes = 1 << 20;
    let node = MemoryNode::listen(&options).unwrap();
    let stopper = node.stopper().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| node.serve());
        let done = body(&format!("shm:{name}"));
        stopper.stop();
        done.unwrap();
    });
}

// ANCHOR: group
#[remote]
struct Tally {
    votes: Atomic<u64>,
}

/// The program of each process.
fn vote(url: &str, part: u16, parts: u16) -> farfield::Result<Vec<u64>> {
    let cluster = Cluster::connect(url)?.in_group("election", part, parts)?;
    cluster.run(2, async |ct| {
        let tally =
            ct.root_or_init("tally", async || Tally::new_in(ct, Tally::init()).await?.write(ct).await);
        let tally = tally.await?;
        tally.votes().fetch_add(ct, 1).await?;
        ct.barrier("voted").await?; // all threads of all processes
        tally.votes().load(ct).await
    })
}
// ANCHOR_END: group

#[test]
fn several_processes_vote() {
    with_cluster("vote", |url| {
        std::thread::scope(|scope| {
            let parts: Vec<_> = (0..3).map(|part| scope.spawn(move || vote(url, part, 3))).collect();
            for part in parts {
                assert_eq!(part.join().unwrap()?, [6, 6]);
            }
            Ok(())
        })
    });
}

// ANCHOR: account
/// Two numbers whose sum is always the same.
#[remote]
struct Account {
    lock: Lock,
    checking: Atomic<u64>,
    savings: Atomic<u64>,
}

const TOTAL: u64 = 100;

/// Moves one from the checking to the savings account.
async fn save(account: RemotePtr<Account>, ct: &ComputeThread) -> farfield::Result<()> {
    let mut lock = account.lock().acquire(ct).await?;
    if lock.needs_recovery() {
        // The last owner died before, between or after the two stores: savings follow from checking.
        let checking = account.checking().load(ct).await?;
        account.savings().store(ct, TOTAL - checking).await?;
        lock.recovered();
    }
    let checking = account.checking().load(ct).await?;
    account.checking().store(ct, checking - 1).await?;
    account.savings().store(ct, TOTAL - checking + 1).await?;
    Ok(lock.release().await?)
}
// ANCHOR_END: account

/// Wherever a thread dies in `save`, the next owner restores the sum.
#[test]
fn an_account_survives_its_owner() {
    use farfield::sim::Fault;
    for chains in 0..60 {
        let cluster = Cluster::connect("sim:leaks=ignore").unwrap();
        cluster.simulation().unwrap().inject(Fault::crash(1).after_chains(chains));
        let ended = cluster.run_surviving(3, async |ct| {
            let init = Account::init().checking(TOTAL);
            let account = async || Account::new_in(ct, init).await?.write(ct).await;
            let account = ct.root_or_init("account", account).await?;
            for _ in 0..5 {
                save(account, ct).await?;
            }
            let lock = account.lock().acquire(ct).await?;
            if !lock.needs_recovery() {
                let sum = account.checking().load(ct).await? + account.savings().load(ct).await?;
                assert_eq!(sum, TOTAL);
            }
            Ok(lock.release().await?)
        });
        let ended = ended.unwrap_or_else(|error| panic!("after {chains} chains: {error}"));
        assert!(ended[0].is_some() && ended[2].is_some());
    }
}

// ANCHOR: hold
#[remote]
struct Job {
    number: u64,
}

#[remote]
struct Desk {
    next: Link<Job>,
}

/// Takes the job from the desk, and does it without a guard, which would delay reclamation for as long.
async fn work(desk: RemotePtr<Desk>, ct: &ComputeThread) -> farfield::Result<u64> {
    let job = {
        let g = ct.pin();
        // No link points to the job any more.
        let job = desk.next().swap(&g, Shared::NULL).await?;
        ct.hold(job)
    };
    let number = job.as_ptr().number().read(&ct.pin()).await?;
    ct.delete(job.as_ptr()).await?;
    Ok(number)
}
// ANCHOR_END: hold

#[test]
fn a_job_is_held_until_it_is_done() {
    with_cluster("hold", |url| {
        let done = Cluster::connect(url)?.run(1, async |ct| {
            let desk = Desk::new_in(ct, Desk::init()).await?.write(ct).await?;
            let job = Job::new_in(ct, Job::init(7)).await?;
            desk.next().store(&ct.pin(), job).await?;
            work(desk, ct).await
        })?;
        assert_eq!(done, [7]);
        Ok(())
    });
}
