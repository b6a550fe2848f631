//! A run: tasks in roles, the queues between them, and what they have measured.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use farfield::prelude::*;
use farfield::{Error, Remote};
use farfield_examples::program::counted;

use crate::check::{Items, fault};
use crate::depth::Depth;
use crate::queue::{Order, Queue};

/// Items of a producer in a row that have equal priorities.
const PER_PRIORITY: u64 = 8;

/// How the tasks of all threads divide the work. Role 0 is that of the producers, role `stages` that of the consumers, those between are the movers'.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles {
    /// Tasks of all threads.
    pub(crate) workers: u64,
    /// Tasks of each thread.
    pub(crate) tasks: u64,
    /// Queues.
    pub(crate) stages: u64,
    pub(crate) items: u64,
}

impl Roles {
    fn role(&self, worker: u64) -> u64 {
        worker % (self.stages + 1)
    }

    /// Returns the number of tasks with a role.
    pub(crate) fn count(&self, role: u64) -> u64 {
        (self.workers - role).div_ceil(self.stages + 1)
    }

    /// Returns the first item of a producer, given its number among them.
    fn start(&self, producer: u64) -> u64 {
        // No overflow: 2^26 items, and fewer than 2^34 tasks.
        self.items * producer / self.count(0)
    }

    /// Returns the items of a producer.
    fn share(&self, worker: u64) -> Range<u64> {
        let producer = worker / (self.stages + 1);
        self.start(producer)..self.start(producer + 1)
    }

    /// Returns the number of the producer of an item.
    fn producer(&self, item: u64) -> u64 {
        // The last one that begins at the item or before it.
        ((item + 1) * self.count(0)).div_ceil(self.items.max(1)).saturating_sub(1)
    }

    /// Returns the priority of an item: those of a producer ascend. An item that the queue has made up has one, too.
    fn priority(&self, item: u64) -> u64 {
        if item < self.items { (item - self.start(self.producer(item))) / PER_PRIORITY } else { 0 }
    }
}

/// Counts of operations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pushes: u64,
    pub(crate) pops: u64,
    /// The chains of pushes and pops that have succeeded.
    pub(crate) push_chains: u64,
    pub(crate) pop_chains: u64,
    /// Attempts in vain.
    pub(crate) push_waits: u64,
    pub(crate) pop_waits: u64,
}

/// An item that a task has passed.
#[derive(Clone, Copy, Debug)]
struct Passed {
    item: u64,
    /// When its pop ended; a producer's, when its push began.
    arrived: Duration,
    /// When its push ended; a consumer's, as `arrived`.
    left: Duration,
}

/// The results of a task.
struct Work {
    role: u64,
    passed: Vec<Passed>,
    tally: Tally,
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// From the beginning of the first push to the end of the last pop.
    pub(crate) duration: Duration,
    pub(crate) tally: Tally,
    /// Of each item that has passed all queues.
    pub(crate) latencies: Vec<Duration>,
    /// Of each queue.
    pub(crate) depths: Vec<Depth>,
    /// The first that was found.
    pub(crate) fault: Option<String>,
}

/// The number of tasks that may still push into a queue.
#[remote]
struct Gate {
    open: Atomic<u64>,
}

/// A thread's handle of a queue.
struct End<Q> {
    queue: Q,
    gate: RemotePtr<Gate>,
}

/// What the threads of a run share: the first error of a task. Tasks that wait then give up, since they may wait for the one that has failed.
#[derive(Default)]
struct Failure(OnceLock<String>);

impl Failure {
    /// Returns an error if a task has failed.
    fn check(&self) -> Result<()> {
        if self.0.get().is_some() { Err(Error::other("another task has failed")) } else { Ok(()) }
    }
}

fn names(stage: u64) -> [String; 2] {
    ["queue", "gate"].map(|what| format!("pipeline {what} {stage}"))
}

/// Removes a root that an earlier run has left.
async fn forget<T: Remote>(name: &str, ct: &ComputeThread) -> Result<()> {
    match ct.unpublish::<T>(name).await {
        Ok(_) | Err(Error::RootNotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Runs a pipeline on a cluster, which has no other work meanwhile.
///
/// # Errors
/// The first error of a task, as one line.
pub(crate) fn run<Q: Queue>(
    cluster: &Cluster,
    threads: u64,
    roles: Roles,
    capacity: u64,
) -> Result<Outcome, String> {
    let failure = Failure::default();
    let ran = cluster.run(threads as usize, async |ct| {
        let done = thread::<Q>(roles, capacity, &failure, ct).await;
        if let Err(error) = &done {
            let _ = failure.0.set(error.to_string());
        }
        done
    });
    let done = ran.map_err(|error| failure.0.get().cloned().unwrap_or_else(|| error.to_string()))?;
    let (work, broken): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let work = work.into_iter().flatten().collect();
    Ok(outcome::<Q>(roles, work, broken.into_iter().flatten().next()))
}

/// Returns what the tasks of this thread have passed, and the first fault of a queue itself.
async fn thread<Q: Queue>(
    roles: Roles,
    capacity: u64,
    failure: &Failure,
    ct: &ComputeThread,
) -> Result<(Vec<Work>, Option<String>)> {
    if ct.index() == 0 {
        for stage in 0..roles.stages {
            let [queue, gate] = names(stage);
            if !ct.cluster().is_private() {
                forget::<Q::Root>(&queue, ct).await?;
                forget::<Gate>(&gate, ct).await?;
            }
            ct.publish(&queue, Q::create(capacity, ct).await?).await?;
            let made = Gate::new_in(ct, Gate::init().open(roles.count(stage))).await?.write(ct).await?;
            ct.publish(&gate, made).await?;
        }
    }
    ct.barrier("created").await?;
    let mut ends = Vec::new();
    for stage in 0..roles.stages {
        let [queue, gate] = names(stage);
        let queue = Q::open(ct.lookup(&queue).await?, ct).await?;
        ends.push(End { queue, gate: ct.lookup(&gate).await? });
    }
    ct.barrier("opened").await?;

    let body = async |task: usize| {
        let worker = ct.index() as u64 * roles.tasks + task as u64;
        let done = work(roles, worker, &ends, failure, ct).await;
        if let Err(error) = &done {
            let _ = failure.0.set(error.to_string());
        }
        done
    };
    let done = ct.tasks(roles.tasks as usize, body).await?;

    ct.barrier("passed").await?;
    let mut broken = None;
    if ct.index() == 0 {
        for (stage, End { queue, gate }) in ends.into_iter().enumerate() {
            let [name, gate_name] = names(stage as u64);
            ct.unpublish::<Q::Root>(&name).await?;
            ct.unpublish::<Gate>(&gate_name).await?;
            ct.delete(gate).await?;
            if let Err(error) = queue.check_and_destroy(ct).await {
                broken = broken.or(Some(format!("queue {stage}: {error}")));
            }
        }
    }
    Ok((done, broken))
}

/// The work of one task.
async fn work<Q: Queue>(
    roles: Roles,
    worker: u64,
    ends: &[End<Q>],
    failure: &Failure,
    ct: &ComputeThread,
) -> Result<Work> {
    let role = roles.role(worker);
    let (mut tally, mut passed) = (Tally::default(), Vec::new());
    let from = role.checked_sub(1).map(|queue| &ends[queue as usize]);
    let to = ends.get(role as usize);
    let mut share = roles.share(worker);
    loop {
        let item = match from {
            Some(from) => pop(from, &mut tally, failure, ct).await?,
            None => share.next(),
        };
        let Some(item) = item else { break };
        let arrived = ct.now();
        let mut left = arrived;
        if let Some(to) = to {
            push(&to.queue, item, roles.priority(item), &mut tally, failure, ct).await?;
            left = ct.now();
        }
        passed.push(Passed { item, arrived, left });
    }
    if let Some(to) = to {
        to.gate.open().fetch_add(ct, 1_u64.wrapping_neg()).await?;
    }
    Ok(Work { role, passed, tally })
}

/// Pushes an item, and waits while the queue is full.
async fn push<Q: Queue>(
    queue: &Q,
    item: u64,
    priority: u64,
    tally: &mut Tally,
    failure: &Failure,
    ct: &ComputeThread,
) -> Result<()> {
    let mut backoff = ct.backoff();
    loop {
        let (pushed, chains) = counted(queue.try_push(item, priority, ct), ct).await;
        if pushed? {
            tally.pushes += 1;
            tally.push_chains += chains;
            return Ok(());
        }
        tally.push_waits += 1;
        failure.check()?;
        backoff.wait().await;
    }
}

/// Pops an item, and waits while the queue is empty. Returns `None` if it is empty and closed.
async fn pop<Q: Queue>(
    end: &End<Q>,
    tally: &mut Tally,
    failure: &Failure,
    ct: &ComputeThread,
) -> Result<Option<u64>> {
    let mut backoff = ct.backoff();
    let mut is_closed = false;
    loop {
        let (popped, chains) = counted(end.queue.try_pop(ct), ct).await;
        if let Some(item) = popped? {
            tally.pops += 1;
            tally.pop_chains += chains;
            return Ok(Some(item));
        }
        // Only if it was closed before it was found empty: the last item may have been pushed in between.
        if is_closed {
            return Ok(None);
        }
        is_closed = end.gate.open().load(ct).await? == 0;
        if !is_closed {
            tally.pop_waits += 1;
            failure.check()?;
            backoff.wait().await;
        }
    }
}

/// Verifies and sums up.
fn outcome<Q: Queue>(roles: Roles, work: Vec<Work>, broken: Option<String>) -> Outcome {
    let mut tally = Tally::default();
    for Work { tally: one, .. } in &work {
        tally.pushes += one.pushes;
        tally.pops += one.pops;
        tally.push_chains += one.push_chains;
        tally.pop_chains += one.pop_chains;
        tally.push_waits += one.push_waits;
        tally.pop_waits += one.pop_waits;
    }
    let of_role = |role: u64| work.iter().filter(move |work| work.role == role);
    let items = |role: u64| -> Vec<Items> {
        of_role(role).map(|work| work.passed.iter().map(|passed| passed.item).collect()).collect()
    };
    let times = |role: u64, time: fn(&Passed) -> Duration| -> Vec<Duration> {
        of_role(role).flat_map(|work| &work.passed).map(time).collect()
    };
    let producer = |item| (Q::ORDER == Order::Priority).then(|| roles.producer(item));
    let faults = (0..roles.stages).filter_map(|stage| {
        let fault = fault(&items(stage), &items(stage + 1), producer);
        fault.map(|fault| format!("queue {stage}: {fault}"))
    });
    let fault = faults.chain(broken).next();
    let depths = (0..roles.stages)
        .map(|stage| Depth::of(times(stage, |passed| passed.left), times(stage + 1, |passed| passed.arrived)))
        .collect();
    let mut began = vec![None; roles.items as usize];
    for passed in of_role(0).flat_map(|work| &work.passed) {
        began[passed.item as usize] = Some(passed.arrived);
    }
    let mut latencies = Vec::new();
    let mut ended = Duration::ZERO;
    for passed in of_role(roles.stages).flat_map(|work| &work.passed) {
        ended = ended.max(passed.arrived);
        // An item that the queue has made up has no beginning.
        if let Some(Some(began)) = began.get(passed.item as usize) {
            latencies.push(passed.arrived.saturating_sub(*began));
        }
    }
    let first = began.into_iter().flatten().min().unwrap_or_default();
    Outcome { duration: ended.saturating_sub(first), tally, latencies, depths, fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_roles_in_turn_and_producers_divide_the_items() {
        for (workers, stages, items) in
            [(2, 1, 10), (7, 2, 100), (9, 1, 3), (5, 4, 1), (64, 3, 1000), (3, 1, 0)]
        {
            let roles = Roles { workers, tasks: 1, stages, items };
            for role in 0..=stages {
                let tasks = (0..workers).filter(|worker| roles.role(*worker) == role).count() as u64;
                assert_eq!(roles.count(role), tasks);
                assert!(tasks > 0, "each role has a task");
            }
            let mut next = 0;
            for worker in (0..workers).filter(|worker| roles.role(*worker) == 0) {
                for item in roles.share(worker) {
                    assert_eq!((item, roles.producer(item)), (next, worker / (stages + 1)));
                    next += 1;
                }
            }
            assert_eq!(next, items);
        }
    }

    #[test]
    fn the_priorities_of_a_producer_ascend_and_some_are_equal() {
        let roles = Roles { workers: 4, tasks: 1, stages: 1, items: 40 };
        let priorities: Vec<_> = (20..40).map(|item| roles.priority(item)).collect();
        assert_eq!(priorities, [[0; 8], [1; 8]].concat().into_iter().chain([2; 4]).collect::<Vec<_>>());
        assert_eq!(roles.priority(u64::MAX), 0, "of an item that no producer has made");
    }
}
