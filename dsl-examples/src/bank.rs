//! A bank whose accounts belong to several threads: transfers that take delegated code, or the client, from one trustee to another.
//!
//! The accounts are divided into [shards](Shard), each entrusted to a thread of its own. A transfer withdraws at one trustee and deposits at another, which
//! refuses if the account would exceed its limit; then the money is put back. Nothing is locked: each step is one function that a trustee runs alone.
//!
//! | variant | a transfer | the client waits for |
//! |---|---|---|
//! | [`Variant::Delegated`] | one request to the first trustee, whose code requests the deposit, and puts the money back if that is refused | the withdrawal |
//! | [`Variant::Client`] | the client requests the withdrawal, the deposit, and if need be the return | each step |
//!
//! In both, money may be on its way between two accounts while a third thread adds up balances. A shard knows what is on its way from it. So [`run`] waits at
//! its end until that is nothing, and then verifies that the sum is what it was, and that no account is below 0.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farfield::prelude::*;
use farfield::{Context, Error, Reaction, Remote, StoredTrust};

/// How a transfer goes from one trustee to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The first trustee requests the deposit.
    Delegated,
    /// The client makes both requests.
    Client,
}

impl Variant {
    /// Both variants, in the order of the module's table.
    pub const ALL: [Self; 2] = [Self::Delegated, Self::Client];

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delegated => "delegated",
            Self::Client => "client",
        }
    }
}

/// A run of threads that make transfers between random accounts.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// How a transfer goes from one trustee to another.
    pub variant: Variant,
    /// Compute threads of this process.
    pub threads: usize,
    /// Tasks of each thread; they divide its transfers.
    pub tasks: u64,
    /// Transfers of each thread.
    pub ops: u64,
    /// The number of shards, at most that of the cluster's threads. Shard `n` is entrusted to thread `n`.
    pub shards: usize,
    /// The number of accounts, at least that of shards. Account `n` is in shard `n` modulo their number.
    pub accounts: u64,
    /// The balance of each account at first. Its limit is twice as much.
    pub money: i64,
    /// The largest amount of a transfer.
    pub amount: i64,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Transfers of all threads.
    pub transfers: u64,
    /// Those that were refused, because the first account had too little money.
    pub refused: u64,
    /// Those whose money was put back, because the second account was at its limit.
    pub returned: u64,
    /// From the first transfer of this process to its last; the time of the slowest thread if there are several processes.
    pub duration: Duration,
    /// All money at the end.
    pub sum: i64,
    /// What is wrong with the balances.
    pub fault: Option<String>,
    /// The latency of each transfer, as its client sees it. Empty on fabrics whose clock is the processor's.
    pub latencies: Vec<Duration>,
}

impl Outcome {
    /// Returns the transfers a second.
    #[allow(clippy::cast_precision_loss)] // a rate
    pub fn rate(&self) -> f64 {
        let seconds = self.duration.as_secs_f64();
        if seconds > 0.0 { self.transfers as f64 / seconds } else { 0.0 }
    }
}

// ANCHOR: shard
/// Some of the bank's accounts.
#[derive(Default)]
pub struct Shard {
    balances: Vec<i64>,
    limit: i64,
    /// Withdrawn, and neither deposited nor returned yet.
    on_its_way: i64,
    /// Deposits elsewhere that were refused.
    returned: u64,
    /// Handles of all shards, and the place of this one's.
    shards: Vec<Trust<Shard>>,
    number: usize,
}

impl Shard {
    fn withdraw(&mut self, account: u64, amount: i64) -> bool {
        let balance = &mut self.balances[account as usize];
        let has_enough = *balance >= amount;
        if has_enough {
            *balance -= amount;
            self.on_its_way += amount;
        }
        has_enough
    }

    fn deposit(&mut self, account: u64, amount: i64) -> bool {
        let balance = &mut self.balances[account as usize];
        let has_room = *balance + amount <= self.limit;
        if has_room {
            *balance += amount;
        }
        has_room
    }

    /// A withdrawal has ended: with a deposit, or here. An account may exceed its limit by what comes back to it.
    fn settle(&mut self, account: u64, amount: i64, is_deposited: bool) {
        self.on_its_way -= amount;
        if !is_deposited {
            self.balances[account as usize] += amount;
            self.returned += 1;
        }
    }
}
// ANCHOR_END: shard

// ANCHOR: transfer
/// From an account of this shard to one of another: the account, the other shard's number, the account there, and the amount.
type Transfer = (u64, u32, u64, i64);

/// Withdraws, and requests the deposit. Returns whether there was enough money. Runs at the first account's trustee.
fn transfer(shard: &mut Shard, context: &Context<'_>, (from, to_shard, to, amount): Transfer) -> bool {
    if !shard.withdraw(from, amount) {
        return false;
    }
    let this = shard.shards[shard.number].clone();
    let deposited = move |deposited: Result<bool>, reaction: &Reaction<'_>| {
        let is_deposited = match deposited {
            Ok(is_deposited) => is_deposited,
            // It may have arrived, or not: it stays on its way.
            Err(Error::TrusteeGone(gone)) if gone.may_have_run => return,
            Err(_) => false,
        };
        reaction.with(&this, |shard| shard.settle(from, amount, is_deposited));
    };
    let other = &shard.shards[to_shard as usize];
    let deposit = |shard: &mut Shard, (account, amount): (u64, i64)| shard.deposit(account, amount);
    if context.apply_then(other, (to, amount), deposit, deposited).is_err() {
        // Nothing was requested.
        shard.settle(from, amount, false);
    }
    true
}
// ANCHOR_END: transfer

/// The same by the client, which waits for each step.
async fn transfer_by_client(
    shards: &[Trust<Shard>],
    from_shard: usize,
    (from, to_shard, to, amount): Transfer,
    ct: &ComputeThread,
) -> Result<bool> {
    let (first, second) = (&shards[from_shard], &shards[to_shard as usize]);
    let withdraw = |shard: &mut Shard, (account, amount): (u64, i64)| shard.withdraw(account, amount);
    if !first.apply(ct, (from, amount), withdraw).await? {
        return Ok(false);
    }
    let deposit = |shard: &mut Shard, (account, amount): (u64, i64)| shard.deposit(account, amount);
    let is_deposited = second.apply(ct, (to, amount), deposit).await?;
    let settle = |shard: &mut Shard, (account, amount, is_deposited): (u64, i64, bool)| {
        shard.settle(account, amount, is_deposited);
    };
    first.apply(ct, (from, amount, is_deposited), settle).await?;
    Ok(true)
}

/// The sums of all threads.
#[remote]
struct Totals {
    transfers: Atomic<u64>,
    refused: Atomic<u64>,
    /// The time of the slowest thread in nanoseconds.
    slowest: Atomic<u64>,
}

/// Entrusts shard `n` to thread `n`, and returns handles of all of them on each thread.
async fn open(workload: Workload, ct: &ComputeThread) -> Result<Vec<Trust<Shard>>> {
    let Workload { shards: count, accounts, money, .. } = workload;
    let me = ct.index();
    if me < count {
        let size = (accounts as usize - me).div_ceil(count);
        let shard = Shard { balances: vec![money; size], limit: 2 * money, number: me, ..Shard::default() };
        ct.publish(&root(me), ct.entrust(shard).await?.store(ct).await?).await?;
    }
    ct.barrier("published").await?;
    let mut shards = Vec::new();
    for number in 0..count {
        shards.push(Trust::<Shard>::open(ct.lookup(&root(number)).await?, ct).await?);
    }
    ct.barrier("opened").await?;
    if me < count {
        drop(Trust::<Shard>::take(ct.unpublish(&root(me)).await?, ct).await?);
        let introduce = |shard: &mut Shard, shards: Vec<Trust<Shard>>| shard.shards = shards;
        shards[me].apply(ct, shards.clone(), introduce).await?;
    }
    Ok(shards)
}

fn root(shard: usize) -> String {
    format!("bank shard {shard}")
}

const TOTALS: &str = "bank totals";

/// Removes a root that an earlier run has left.
async fn forget<T: Remote>(name: &str, ct: &ComputeThread) -> Result<()> {
    match ct.unpublish::<T>(name).await {
        Ok(_) | Err(Error::RootNotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The results of one thread.
struct Share {
    started: Duration,
    ended: Duration,
    latencies: Vec<Duration>,
    /// From one thread of the process.
    whole: Option<Whole>,
}

struct Whole {
    totals: TotalsSnapshot,
    sum: i64,
    least: i64,
    returned: u64,
}

/// Runs a variant on a cluster, which has no other work meanwhile.
///
/// # Errors
/// Those of its operations. [`Error::Other`] if there are more shards than threads, or fewer than two accounts.
pub fn run(cluster: &Cluster, workload: Workload) -> Result<Outcome> {
    if workload.accounts < 2 || workload.shards == 0 || workload.shards as u64 > workload.accounts {
        return Err(Error::other("a bank has two accounts at least, and one in each shard"));
    }
    let is_summed = AtomicBool::new(false);
    let shares = cluster.run(workload.threads, async |ct| thread(workload, &is_summed, ct).await)?;
    let started = shares.iter().map(|share| share.started).min().unwrap_or_default();
    let ended = shares.iter().map(|share| share.ended).max().unwrap_or_default();
    let (mut whole, mut latencies) = (None, Vec::new());
    for mut share in shares {
        latencies.append(&mut share.latencies);
        whole = whole.or(share.whole);
    }
    let none = || Error::other("no thread added up");
    let Whole { totals, sum, least, returned } = whole.ok_or_else(none)?;
    let expected = workload.money * workload.accounts.cast_signed();
    let fault = if sum != expected {
        Some(format!("the accounts have {sum} together, and had {expected}"))
    } else if least < 0 {
        Some(format!("an account has {least}"))
    } else {
        None
    };
    let duration = ended.saturating_sub(started);
    Ok(Outcome {
        transfers: totals.transfers,
        refused: totals.refused,
        returned,
        duration: if cluster.is_private() { duration } else { Duration::from_nanos(totals.slowest) },
        sum,
        fault,
        latencies,
    })
}

async fn thread(workload: Workload, is_summed: &AtomicBool, ct: &ComputeThread) -> Result<Share> {
    if workload.shards > ct.threads() {
        let (shards, threads) = (workload.shards, ct.threads());
        return Err(Error::other(format!(
            "{shards} shards on {threads} threads: each needs a thread of its own"
        )));
    }
    if !ct.cluster().is_private() {
        if ct.index() == 0 {
            for shard in 0..workload.shards {
                forget::<StoredTrust<Shard>>(&root(shard), ct).await?;
            }
            forget::<Totals>(TOTALS, ct).await?;
        }
        ct.barrier("alone").await?;
    }
    let totals =
        ct.root_or_init(TOTALS, async || Totals::new_in(ct, Totals::init()).await?.write(ct).await).await?;
    let shards = open(workload, ct).await?;
    ct.barrier("ready").await?;

    let started = ct.now();
    let done = ct
        .tasks(workload.tasks as usize, async |task| work(workload, &shards, task as u64, ct).await)
        .await?;
    let ended = ct.now();
    let (mut transfers, mut refused, mut latencies) = (0, 0, Vec::new());
    for mut tally in done {
        transfers += tally.transfers;
        refused += tally.refused;
        latencies.append(&mut tally.latencies);
    }
    totals.transfers().fetch_add(ct, transfers).await?;
    totals.refused().fetch_add(ct, refused).await?;
    totals.slowest().fetch_max(ct, ended.saturating_sub(started).as_nanos() as u64).await?;
    ct.barrier("done").await?;

    let is_first = !is_summed.swap(true, Ordering::Relaxed);
    let whole = if is_first { Some(add_up(totals, &shards, ct).await?) } else { None };
    ct.barrier("added up").await?;
    if ct.index() < workload.shards {
        // Shards have handles of each other, so none would be dropped before its thread ends.
        shards[ct.index()].apply(ct, (), |shard, ()| shard.shards.clear()).await?;
    }
    Ok(Share { started, ended, latencies, whole })
}

/// Adds up all balances, once no money is on its way.
async fn add_up(totals: RemotePtr<Totals>, shards: &[Trust<Shard>], ct: &ComputeThread) -> Result<Whole> {
    let totals = totals.read(&ct.pin()).await?;
    let (mut sum, mut least, mut returned) = (0, i64::MAX, 0);
    for shard in shards {
        // No withdrawal begins any more. One that has begun ends with the answer to its deposit.
        while shard.apply(ct, (), |shard, ()| shard.on_its_way).await? != 0 {
            ct.sleep(Duration::from_micros(10)).await;
        }
    }
    for shard in shards {
        let (of_shard, lowest, back) = shard.apply(ct, (), |shard, ()| shard.balance()).await?;
        sum += of_shard;
        least = least.min(lowest);
        returned += back;
    }
    Ok(Whole { totals, sum, least, returned })
}

/// The results of one task.
struct Tally {
    transfers: u64,
    refused: u64,
    latencies: Vec<Duration>,
}

async fn work(workload: Workload, shards: &[Trust<Shard>], task: u64, ct: &ComputeThread) -> Result<Tally> {
    let transfers = workload.ops / workload.tasks + u64::from(task < workload.ops % workload.tasks);
    // On real clusters reading the clock would add to the time that is measured.
    let is_timed = ct.cluster().simulation().is_some();
    let (mut refused, mut latencies) = (0, Vec::new());
    for _ in 0..transfers {
        let from = ct.random_range(0..workload.accounts);
        let to = (from + ct.random_range(1..workload.accounts)) % workload.accounts;
        let amount = ct.random_range(1..=workload.amount);
        let (from_shard, from) = Shard::place(from, shards.len());
        let (to_shard, to) = Shard::place(to, shards.len());
        let order = (from, to_shard as u32, to, amount);
        let began = if is_timed { ct.now() } else { Duration::ZERO };
        let has_enough = match workload.variant {
            Variant::Delegated => shards[from_shard].apply_with(ct, order, transfer).await?,
            Variant::Client => transfer_by_client(shards, from_shard, order, ct).await?,
        };
        refused += u64::from(!has_enough);
        if is_timed {
            latencies.push(ct.now().saturating_sub(began));
        }
    }
    Ok(Tally { transfers, refused, latencies })
}

impl Shard {
    /// Returns the number of an account's shard and its number there.
    fn place(account: u64, shards: usize) -> (usize, u64) {
        ((account % shards as u64) as usize, account / shards as u64)
    }

    /// Returns the sum of all balances, the lowest one, and the number of refused deposits.
    fn balance(&self) -> (i64, i64, u64) {
        let lowest = self.balances.iter().copied().min().unwrap_or(0);
        (self.balances.iter().sum(), lowest, self.returned)
    }
}
