//! A program of clients and trustees, some of which die: each request is executed once, or its client is told that it may not have been.
//!
//! Every thread is the trustee of a log, and a client of all others. The value of a trustee is any Rust value, so a log writes what it executes into the
//! memory of the test, which no death takes away. Threads also pass handles of *tokens* on: to each other directly, and through the logs of third threads.
//!
//! Checked are, for each request: it was executed at most once; if it was acknowledged, it was executed, and its result is its own; if its client was told that it was
//! not executed, it was not. Requests of a task to a trustee were executed in order. A token is alive while a handle of it is: no request to a live trustee is
//! refused. When all threads have ended in order, all tokens have been dropped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::Fault;
use farfield::{Context, StoredTrust};

/// The number of threads.
pub const THREADS: usize = 4;
/// The tasks of a thread, and the requests of each.
const TASKS: usize = 3;
const REQUESTS: u64 = 12;

/// What the threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Mostly numbered requests.
    Requests,
    /// Mostly requests that pass handles on.
    Handles,
}

impl Mix {
    fn draw(self, ct: &ComputeThread) -> u8 {
        match self {
            Self::Requests => ct.random_range(0..9),
            Self::Handles => ct.random_range(4..14),
        }
    }
}

/// What a request was: its client, its task, and its number there.
type Id = (u64, u64, u64);

/// What a client knows of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Acknowledged,
    NotExecuted,
    Unknown,
}

/// What all threads have done.
#[derive(Default)]
pub struct Witness {
    executed: Mutex<Vec<(usize, Id)>>,
    known: Mutex<HashMap<(usize, Id), Known>>,
    tokens: AtomicI64,
}

impl Witness {
    fn knows(&self, trustee: usize, id: Id, known: Known) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert((trustee, id), known);
    }
}

/// A value that a trustee has.
struct Log {
    witness: Arc<Witness>,
    trustee: usize,
    /// Handles that were sent here.
    tokens: Vec<Trust<Token>>,
}

impl Log {
    fn execute(&mut self, (id, padding): (Id, Vec<u64>)) -> (Id, u64) {
        let executed = &self.witness.executed;
        executed.lock().unwrap_or_else(PoisonError::into_inner).push((self.trustee, id));
        (id, padding.iter().sum::<u64>() + padding.len() as u64)
    }
}

/// A value whose handles are passed on.
struct Token {
    witness: Arc<Witness>,
}

impl Token {
    fn new(witness: &Arc<Witness>) -> Self {
        witness.tokens.fetch_add(1, Ordering::SeqCst);
        Self { witness: Arc::clone(witness) }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.witness.tokens.fetch_sub(1, Ordering::SeqCst);
    }
}

fn error(message: String) -> Error {
    Error::other(message)
}

/// Distinguishes an error that a death explains.
fn is_of_death(error: &Error) -> bool {
    matches!(
        error,
        Error::TrusteeGone(_)
            | Error::NodeUnreachable(_)
            | Error::BarrierBroken(_)
            | Error::DeadlineExceeded(_)
    )
}

/// Runs the program. `mortals` of its threads die, after a number of chains that depends on the seed. A thread whose work takes longer than `limit` fails.
///
/// # Errors
/// What the check has found, or the simulator.
pub fn run(cluster: &Cluster, seed: u64, mortals: u64, limit: Duration, mix: Mix) -> Result<()> {
    let witness = Arc::new(Witness::default());
    if let Some(simulation) = cluster.simulation() {
        for mortal in 0..mortals {
            let chains = 15 + (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (40 + 8 * mortal)) % 220;
            simulation.inject(Fault::crash(1 + mortal as usize).after_chains(chains));
        }
    }
    let ended = cluster.run_surviving(THREADS, async |ct| ct.within(limit, work(ct, &witness, mix)).await);
    let died = match ended {
        Ok(ended) => ended.iter().filter(|ended| ended.is_none()).count(),
        // A thread can not do without links that are cut for longer than the timeout: it ends as if it were dead.
        Err(Error::NodeUnreachable(_)) => THREADS,
        Err(error) => return Err(error),
    };
    witness.check(died)
}

/// Publishes a value's handle, and returns those of all threads. `None` for a thread that has died.
async fn meet(ct: &ComputeThread, witness: &Arc<Witness>) -> Result<Vec<Option<Trust<Log>>>> {
    let log = Log { witness: Arc::clone(witness), trustee: ct.index(), tokens: Vec::new() };
    let stored = ct.entrust(log).await?.store(ct).await?;
    ct.publish(&format!("log {}", ct.index()), stored).await?;
    let _ = ct.barrier("published").await;
    let mut logs = Vec::new();
    for thread in 0..THREADS {
        let log = async {
            let root: RemotePtr<StoredTrust<Log>> = ct.lookup(&format!("log {thread}")).await?;
            Trust::open(root, ct).await
        };
        logs.push(match log.await {
            Ok(log) => Some(log),
            Err(Error::RootNotFound(_)) => None,
            Err(error) if is_of_death(&error) => None,
            Err(error) => return Err(error),
        });
    }
    Ok(logs)
}

async fn work(ct: &ComputeThread, witness: &Arc<Witness>, mix: Mix) -> Result<()> {
    let logs = meet(ct, witness).await?;
    let _ = ct.barrier("met").await;
    let kept = RefCell::new(Vec::new());
    ct.tasks(TASKS, async |task| {
        for number in 0..REQUESTS {
            let trustee = ct.random_range(0..THREADS);
            let Some(log) = &logs[trustee] else { continue };
            match mix.draw(ct) {
                0..=4 => request(ct, log, trustee, (ct.index() as u64, task as u64, number), witness).await?,
                5 => send_token(ct, log, witness).await?,
                6 | 9 | 10 => use_token(ct, log, &kept).await?,
                7 => pass_on(ct, log, &logs).await?,
                8 | 11.. => hand_back(ct, log, &kept).await?,
            }
        }
        Ok(())
    })
    .await?;
    // Long after the deaths of those who have sent them, the tokens that were received are still there.
    ct.sleep(Duration::from_micros(600)).await;
    for token in kept.take() {
        touch(ct, &token).await?;
    }
    let _ = ct.barrier("worked").await;
    if let Some(Some(log)) = logs.get(ct.index()) {
        log.apply(ct, (), |log, ()| log.tokens.clear()).await?;
    }
    drop(logs);
    // Handles are dropped, and the drops arrive.
    let _ = ct.barrier("dropped").await;
    for _ in 0..20 {
        ct.sleep(Duration::from_micros(40)).await;
    }
    // Beyond a broken barrier, another thread may still open the handle.
    if ct.barrier("counted").await.is_err() {
        return Ok(());
    }
    let stored: RemotePtr<StoredTrust<Log>> = ct.unpublish(&format!("log {}", ct.index())).await?;
    drop(Trust::take(stored, ct).await?);
    Ok(())
}

/// A numbered request: awaited, abandoned, or posted.
async fn request(
    ct: &ComputeThread,
    log: &Trust<Log>,
    trustee: usize,
    id: Id,
    witness: &Arc<Witness>,
) -> Result<()> {
    let length = match ct.random_range(0..16_u8) {
        0 => 90,
        short => u64::from(short % 6),
    };
    let padding: Vec<u64> = (0..length).collect();
    let expected = padding.iter().sum::<u64>() + length;
    witness.knows(trustee, id, Known::Unknown);
    let call = log.apply(ct, (id, padding), Log::execute);
    let result = if ct.random_chance(0.1) {
        let deadline = Duration::from_nanos(ct.random_range(0..4000));
        ct.within(deadline, call).await
    } else {
        call.await
    };
    match result {
        Ok(result) if result == (id, expected) => witness.knows(trustee, id, Known::Acknowledged),
        Ok(result) => return Err(error(format!("the result of {id:?} is {result:?}"))),
        Err(Error::TrusteeGone(gone)) if !gone.may_have_run => {
            witness.knows(trustee, id, Known::NotExecuted);
        }
        Err(error) if is_of_death(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Sends a handle of a new value of this thread.
async fn send_token(ct: &ComputeThread, log: &Trust<Log>, witness: &Arc<Witness>) -> Result<()> {
    let token = ct.entrust(Token::new(witness)).await?;
    let sent = log.apply(ct, token.clone(), |log, token: Trust<Token>| log.tokens.push(token)).await;
    match sent {
        Err(error) if !is_of_death(&error) => Err(error),
        _ => token.apply(ct, (), |_, ()| ()).await,
    }
}

/// Uses a value of some thread through a handle of another, and keeps it.
async fn use_token(ct: &ComputeThread, log: &Trust<Log>, kept: &RefCell<Vec<Trust<Token>>>) -> Result<()> {
    let newest = |log: &mut Log, ()| log.tokens.last().cloned();
    let found = log.apply(ct, (), newest).await;
    let token = match found {
        Ok(Some(token)) => token,
        Ok(None) => return Ok(()),
        Err(error) if is_of_death(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    touch(ct, &token).await?;
    kept.borrow_mut().push(token);
    Ok(())
}

/// Sends a handle away that this thread has kept, perhaps the last one, and perhaps to the value's trustee.
async fn hand_back(ct: &ComputeThread, log: &Trust<Log>, kept: &RefCell<Vec<Trust<Token>>>) -> Result<()> {
    let Some(token) = kept.borrow_mut().pop() else { return Ok(()) };
    match log.apply(ct, token, |log, token: Trust<Token>| log.tokens.push(token)).await {
        Err(error) if !is_of_death(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Makes a request of no effect.
async fn touch(ct: &ComputeThread, token: &Trust<Token>) -> Result<()> {
    match token.apply(ct, (), |_, ()| ()).await {
        Err(error) if !is_of_death(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Has one trustee send a handle to another.
async fn pass_on(ct: &ComputeThread, log: &Trust<Log>, logs: &[Option<Trust<Log>>]) -> Result<()> {
    let Some(Some(to)) = logs.get(ct.random_range(0..THREADS)) else { return Ok(()) };
    let forward = |log: &mut Log, context: &Context<'_>, to: Trust<Log>| {
        let Some(token) = log.tokens.pop() else { return };
        // The other trustee may have gone.
        let _ = context.post(&to, token, |log: &mut Log, token: Trust<Token>| log.tokens.push(token));
    };
    match log.apply_with(ct, to.clone(), forward).await {
        Err(error) if !is_of_death(&error) => Err(error),
        _ => Ok(()),
    }
}

impl Witness {
    fn check(&self, died: usize) -> Result<()> {
        let executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut times: HashMap<(usize, Id), u32> = HashMap::new();
        let mut last: HashMap<(usize, u64, u64), u64> = HashMap::new();
        for &(trustee, id) in &*executed {
            *times.entry((trustee, id)).or_default() += 1;
            let (client, task, number) = id;
            let before = last.insert((trustee, client, task), number);
            if before.is_some_and(|before| before >= number) {
                return Err(error(format!("trustee {trustee} has executed {id:?} after {before:?}")));
            }
        }
        for (key, times) in &times {
            if *times > 1 {
                return Err(error(format!("{key:?} was executed {times} times")));
            }
        }
        for (key, known) in &*known {
            let was_executed = times.contains_key(key);
            match known {
                Known::Acknowledged if !was_executed => {
                    return Err(error(format!("{key:?} was acknowledged, and was not executed")));
                }
                Known::NotExecuted if was_executed => {
                    return Err(error(format!(
                        "{key:?} was executed, and its client was told that it was not"
                    )));
                }
                _ => {}
            }
        }
        let tokens = self.tokens.load(Ordering::SeqCst);
        if died == 0 && tokens != 0 {
            return Err(error(format!("{tokens} tokens were not dropped, and no thread has died")));
        }
        Ok(())
    }
}
