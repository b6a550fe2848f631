//! One plan's run, and what is wrong with it.
//!
//! The threads work on the structure. When all have ended, another run's only thread looks at everything that remains, as further
//! operations of the history, and destroys the structure, so that whatever is still allocated is a leak. Then the history is compared
//! with the model.
//!
//! # What faults excuse
//!
//! A run with faults may fail in the ways in which faults make a structure fail, and must be right in all others. What a dead thread, or
//! one that got no answer, was doing may have taken effect or not; nothing else may go wrong.
//! - It may end with the errors that tell of a fault: a node that is unreachable or died, a broken barrier, a root that was never
//!   made, a value that a dead thread left half-written.
//! - It may leave memory behind where links are cut, since no thread can tell whether an object whose link was not answered is in use; and
//!   where a process died whose memory nothing sweeps up. Where it is swept (a [`Dead`](crate::Dead) of the plan) nothing may be
//!   lost: when all threads have ended, the simulator has memory swept once more and counts what is left.
//! - A structure with locks may be stuck where links are cut ([`Tested::is_lock_free`]).

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use farfield::sim::{Event, Fault, Finding, Happened, History, Simulation};
use farfield::{Cluster, ComputeThread, Error, Result};

use crate::life::{Life, Of};
use crate::linearizability::{SEARCH_LIMIT, Undecided, Verdict, check_within};
use crate::model::{AT_THE_END, EventOf, Model};
use crate::plan::{Plan, Scripted};
use crate::tested::{Meaning, OperationOf, Tested};

/// Longer than a chain can be under way: the timeout, or until a link heals.
const LONGEST_FLIGHT: Duration = Duration::from_millis(1);

/// How often the thread that looks tries to reach the structure. Links that are cut by chance heal much sooner.
const ATTEMPTS: usize = 100;

/// What can find something wrong with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// No order of the operations explains what they returned.
    Linearizability,
    /// Freed memory was used or freed again, or a pointer led nowhere.
    Memory,
    /// Memory was still allocated when the structure had been destroyed.
    Leak,
    /// All threads waited for each other, or tried the same again without any effect.
    Stuck,
    /// The run took longer than its limit. That says little about the cause.
    OutOfTime,
    /// An operation failed or panicked, or the structure was out of order at a quiescent point.
    Error,
}

impl Check {
    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linearizability => "linearizability",
            Self::Memory => "memory",
            Self::Leak => "leak",
            Self::Stuck => "stuck",
            Self::OutOfTime => "out-of-time",
            Self::Error => "error",
        }
    }
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What found it.
    pub by: Check,
    /// What it is; of several lines if it is a history.
    pub message: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by.name(), self.message)
    }
}

/// What became of a run.
pub struct Outcome<M: Model> {
    /// What is wrong, if anything is.
    pub found: Vec<Found>,
    /// The parts of the history that are too hard to be checked.
    pub undecided: Vec<Undecided>,
    /// What the clients did. The last operations may be those of [`AT_THE_END`].
    pub history: Vec<EventOf<M>>,
    /// The cluster as the run left it, with its trace; none if it could not be made.
    pub simulation: Option<Simulation>,
}

impl<M: Model> Outcome<M> {
    /// How many operations began.
    pub fn operations(&self) -> usize {
        self.history.iter().filter(|event| matches!(event.happened, Happened::Invoked(_))).count()
    }
}

impl<M: Model> fmt::Debug for Outcome<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, undecided, history, simulation } = self;
        f.debug_struct("Outcome")
            .field("found", found)
            .field("undecided", undecided)
            .field("history", history)
            .field("simulation", simulation)
            .finish()
    }
}

/// Runs a plan and judges what happened, by searches of at most [`SEARCH_LIMIT`] steps.
pub fn run<T: Tested>(plan: &Plan<OperationOf<T>>) -> Outcome<T::Model> {
    run_within::<T>(plan, SEARCH_LIMIT)
}

/// The same with searches of at most `limit` steps.
pub fn run_within<T: Tested>(plan: &Plan<OperationOf<T>>, limit: u64) -> Outcome<T::Model> {
    run_life(&Of::<T>::new(), plan, limit)
}

/// The same, whatever the structure's type is.
pub(crate) fn run_life<M: Model>(life: &dyn Life<M>, plan: &Plan<M::Operation>, limit: u64) -> Outcome<M> {
    let (worked, looked) = (History::new(), History::new());
    let mut found: Vec<Found> = Vec::new();
    let mut simulation = None;
    match Cluster::connect(&plan.url()) {
        Err(error) => found.push(Found { by: Check::Error, message: error.to_string() }),
        Ok(cluster) => {
            simulation = cluster.simulation();
            if let Some(simulation) = &simulation {
                plan.script
                    .iter()
                    .filter_map(|scripted| scripted.fault())
                    .for_each(|fault| simulation.inject(fault));
            }
            let lived = AssertUnwindSafe(|| live_and_die(&cluster, plan, life, &worked, &looked));
            found.extend(match catch_unwind(lived) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => judge(plan, life, &error),
                Err(panic) => Some(Found { by: Check::Error, message: panicked(&*panic) }),
            });
        }
    }
    let at_the_end = looked.into_events().into_iter().map(|event| Event { client: AT_THE_END, ..event });
    let history: Vec<_> = worked.into_events().into_iter().chain(at_the_end).collect();
    let undecided = match check_within::<M>(&history, limit) {
        Verdict::Explained => vec![],
        Verdict::Undecided(parts) => parts,
        Verdict::Refuted(contradiction) => {
            found.push(Found { by: Check::Linearizability, message: contradiction.to_string() });
            vec![]
        }
    };
    Outcome { found, undecided, history, simulation }
}

/// What a panic said.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", said.unwrap_or("no message"))
}

type HistoryOf<M> = History<<M as Model>::Operation, <M as Model>::Returned>;

/// The structure's life: threads work on it, one looks at what remains and destroys it.
fn live_and_die<M: Model>(
    cluster: &Cluster,
    plan: &Plan<M::Operation>,
    life: &dyn Life<M>,
    worked: &HistoryOf<M>,
    looked: &HistoryOf<M>,
) -> Result<()> {
    let simulation = cluster.simulation();
    let inject = |fault: Fault| simulation.iter().for_each(|simulation| simulation.inject(fault));
    let run = Run { plan, life, history: worked };
    let work = cluster.run_surviving(plan.threads.len(), async |ct| work(ct, &run, &inject).await);
    match work {
        Err(error) if judge(plan, life, &error).is_some() => return Err(error),
        _ => {}
    }
    let run = Run { history: looked, ..run };
    cluster.run_surviving(1, async |ct| look(ct, &run).await).map(drop)
}

/// What the threads of a run share.
struct Run<'a, M: Model> {
    plan: &'a Plan<M::Operation>,
    life: &'a dyn Life<M>,
    history: &'a HistoryOf<M>,
}

/// One thread's share of the work.
async fn work<M: Model>(ct: &ComputeThread, run: &Run<'_, M>, inject: &impl Fn(Fault)) -> Result<()> {
    let structure = &*run.life.open(ct).await?;
    let tasks = &run.plan.threads[ct.index()];
    ct.tasks(tasks.len(), async |task| {
        let mut death = Death::of(run.plan, ct.index()).filter(|_| task == 0);
        for (number, step) in (1..).zip(&tasks[task]) {
            if !step.pause.is_zero() {
                ct.sleep(step.pause).await;
            }
            match death.as_mut() {
                None => run.perform(structure.perform(&step.operation, ct), &step.operation, ct).await?,
                Some(death) => {
                    let mut doing = structure.perform(&step.operation, ct);
                    death.begins(number, ct);
                    let watched = poll_fn(|context| {
                        let polled = doing.as_mut().poll(context);
                        if let Some(after) = death.is_due(number, ct) {
                            let compute = ct.index() / run.plan.threads_per_node.max(1) as usize;
                            inject(Fault::crash(compute).at(ct.now() + after));
                        }
                        polled
                    });
                    run.perform(watched, &step.operation, ct).await?
                }
            };
            if step.reclaims {
                ct.try_reclaim().await;
            }
        }
        Ok(())
    })
    .await
    .map(drop)
}

/// A thread's death in the middle of an operation.
struct Death {
    operation: usize,
    changes: u64,
    after: Duration,
    /// The thread's changes before that operation.
    before: u64,
    is_past: bool,
}

impl Death {
    /// The first that the plan has for a thread.
    fn of<O>(plan: &Plan<O>, of: usize) -> Option<Self> {
        plan.script.iter().find_map(|scripted| match *scripted {
            Scripted::Death { thread, operation, changes, after_ns } if thread == of => {
                let after = Duration::from_nanos(after_ns);
                Some(Self { operation, changes, after, before: 0, is_past: false })
            }
            _ => None,
        })
    }

    /// The thread's operation of this number begins.
    fn begins(&mut self, number: usize, ct: &ComputeThread) {
        if number == self.operation {
            self.before = changes(ct);
        }
    }

    /// How long from now it happens, if this is the moment from which that is counted.
    fn is_due(&mut self, number: usize, ct: &ComputeThread) -> Option<Duration> {
        let due = !self.is_past && number >= self.operation && changes(ct) >= self.before + self.changes;
        self.is_past |= due;
        due.then_some(self.after)
    }
}

/// How often a thread has changed far memory. Too many by those CAS under way that will fail.
fn changes(ct: &ComputeThread) -> u64 {
    let metrics = ct.metrics();
    metrics.writes + metrics.cas - metrics.cas_failed + metrics.faa
}

impl<M: Model> Run<'_, M> {
    /// Performs an operation of the history; returns the answer unless the outcome is unknown.
    async fn perform(
        &self,
        doing: impl Future<Output = Result<M::Returned>>,
        operation: &M::Operation,
        ct: &ComputeThread,
    ) -> Result<Option<M::Returned>> {
        let recorded = self.history.record(ct, operation.clone(), async || {
            doing.await.or_else(|error| match self.life.meaning(operation, &error) {
                Meaning::Answer(returned) => Ok(returned),
                Meaning::Unknown | Meaning::Failure => Err(error),
            })
        });
        match recorded.await {
            Ok(returned) => Ok(Some(returned)),
            Err(error)
                if self.plan.may_fail() && self.life.meaning(operation, &error) == Meaning::Unknown =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Looks at everything that remains, and destroys it. Links that are cut heal, so it goes on where one is.
async fn look<M: Model>(ct: &ComputeThread, run: &Run<'_, M>) -> Result<()> {
    let (plan, life) = (run.plan, run.life);
    let mut attempts = 1..ATTEMPTS;
    let structure = loop {
        match life.open(ct).await {
            Err(Error::NodeUnreachable(_)) if attempts.next().is_some() => {}
            opened => break opened?,
        }
    };
    if plan.recovers_first && plan.may_fail() && !plan.may_lose_locks() {
        ct.sleep(LONGEST_FLIGHT).await;
        structure.recover(ct).await?;
        structure.verify(ct).await?;
    }
    let (mut looked, mut last) = (0, None);
    while let Some(operation) = life.look(plan, looked, last.as_ref()) {
        last = run.perform(structure.perform(&operation, ct), &operation, ct).await?.or(last);
        looked += 1;
    }
    if plan.may_fail() {
        // What the failed operations of this thread had posted must not come after the end.
        ct.sleep(LONGEST_FLIGHT).await;
    }
    if !plan.may_lose_locks() {
        if plan.may_fail() {
            structure.recover(ct).await?;
        }
        structure.verify(ct).await?;
    }
    structure.destroy(ct).await
}

/// What a run's error says about the structure; nothing, if faults explain it.
fn judge<M: Model>(plan: &Plan<M::Operation>, life: &dyn Life<M>, error: &Error) -> Option<Found> {
    let by = match error {
        Error::Simulation(simulation) => match simulation.finding {
            Finding::Leak => Check::Leak,
            Finding::OutOfTime => Check::OutOfTime,
            Finding::UseAfterFree | Finding::WildAccess | Finding::DoubleFree | Finding::DoubleAllocation => {
                Check::Memory
            }
            // The others say that threads make no progress.
            _ => Check::Stuck,
        },
        Error::InvalidPointer(_) | Error::InvalidValue(_) => Check::Memory,
        Error::NodeUnreachable(_)
        | Error::ComputeNodeDied(_)
        | Error::BarrierBroken(_)
        | Error::RootNotFound(_)
        | Error::HalfWritten(_)
            if plan.may_fail() =>
        {
            return None;
        }
        _ => Check::Error,
    };
    let is_stuck = matches!(by, Check::Stuck | Check::OutOfTime);
    let excused = is_stuck && plan.may_lose_locks() && !life.is_lock_free();
    (!excused).then(|| Found { by, message: error.to_string() })
}
