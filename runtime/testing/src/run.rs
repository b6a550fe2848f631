//! Executes one plan and judges the run.
//!
//! The threads operate on the structure. When all have ended, the only thread of another run performs the final operations and destroys the
//! structure, so that every object that is still allocated is a leak. Then the history is compared with the model.
//!
//! # Effects of faults that are no failures
//!
//! In a run with faults the following are no failures. An operation of a dead thread, or one without a response, may have taken effect or
//! not.
//! - The run may end with an error that reports a fault: a node that is unreachable or died, a broken barrier, a root that was never
//!   created, a value that a dead thread left half-written.
//! - Memory may leak where links are cut: without a response, a thread can not know whether the object that it linked is in use. It may leak
//!   where a process died, unless memory is swept. With sweeping (a [`Dead`](crate::Dead) of the plan) no memory may leak: when all threads
//!   have ended, the simulator sweeps once more and counts the remaining objects.
//! - A structure with locks may block where links are cut ([`Tested::is_lock_free`]).

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use farfield::sim::{Event, Fault, Finding, Happened, History, Simulation};
use farfield::{Cluster, ComputeThread, Error, Result};

use crate::check::{Check, Found};
use crate::erased::{DynTested, Typed};
use crate::linearizability::{SEARCH_LIMIT, Undecided, Verdict, check_within};
use crate::model::{AT_THE_END, EventOf, Model};
use crate::plan::{Plan, Scripted};
use crate::tested::{Meaning, OperationOf, Tested};

/// An upper bound of the time that a chain is in flight: the timeout, or until a link heals.
const LONGEST_FLIGHT: Duration = Duration::from_millis(1);

/// Number of attempts of the final thread to open the structure. Links that are cut at random heal much sooner.
const ATTEMPTS: usize = 100;

/// The result of a run.
pub struct Outcome<M: Model> {
    /// The failures; empty if there are none.
    pub found: Vec<Found>,
    /// The undecided parts of the history.
    pub undecided: Vec<Undecided>,
    /// The recorded history. The last operations may be those of [`AT_THE_END`].
    pub history: Vec<EventOf<M>>,
    /// The simulated cluster after the run, with its trace; none if connecting failed.
    pub simulation: Option<Simulation>,
}

impl<M: Model> Outcome<M> {
    /// Number of operations that began.
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

/// Executes a plan and judges the run; each search takes at most [`SEARCH_LIMIT`] steps.
pub fn run<T: Tested>(plan: &Plan<OperationOf<T>>) -> Outcome<T::Model> {
    run_within::<T>(plan, SEARCH_LIMIT)
}

/// As [`run`], with searches of at most `limit` steps.
pub fn run_within<T: Tested>(plan: &Plan<OperationOf<T>>, limit: u64) -> Outcome<T::Model> {
    run_erased(&Typed::<T>::new(), plan, limit)
}

/// As [`run_within`], with the structure's type erased.
pub(crate) fn run_erased<M: Model>(
    tested: &dyn DynTested<M>,
    plan: &Plan<M::Operation>,
    limit: u64,
) -> Outcome<M> {
    let (history, final_history) = (History::new(), History::new());
    let run = |cluster: &Cluster| run_threads(cluster, plan, tested, &history, &final_history);
    let (mut found, simulation) = execute(plan, tested.is_lock_free(), run);
    let final_events =
        final_history.into_events().into_iter().map(|event| Event { client: AT_THE_END, ..event });
    let history: Vec<_> = history.into_events().into_iter().chain(final_events).collect();
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

/// Executes a program on a plan's cluster, with the plan's scripted faults. Returns the error or the panic by which it ends, unless the faults explain it, and the cluster's simulation. [`run`] is such a
/// program; others may use a structure in ways that [`Tested`] does not have.
pub fn execute<O>(
    plan: &Plan<O>,
    is_lock_free: bool,
    program: impl FnOnce(&Cluster) -> Result<()>,
) -> (Vec<Found>, Option<Simulation>) {
    let cluster = match Cluster::connect(&plan.url()) {
        Ok(cluster) => cluster,
        Err(error) => return (vec![Found { by: Check::Error, message: error.to_string() }], None),
    };
    let simulation = cluster.simulation();
    if let Some(simulation) = &simulation {
        let faults = plan.script.iter().filter_map(|scripted| scripted.fault());
        faults.for_each(|fault| simulation.inject(fault));
    }
    let found = match catch_unwind(AssertUnwindSafe(|| program(&cluster))) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => judge(plan, is_lock_free, &error),
        Err(panic) => Some(Found { by: Check::Error, message: panicked(&*panic) }),
    };
    (found.into_iter().collect(), simulation)
}

/// The message of a panic.
fn panicked(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", message.unwrap_or("no message"))
}

type HistoryOf<M> = History<<M as Model>::Operation, <M as Model>::Returned>;

/// Runs the threads; then one thread performs the final operations and destroys the structure.
fn run_threads<M: Model>(
    cluster: &Cluster,
    plan: &Plan<M::Operation>,
    tested: &dyn DynTested<M>,
    history: &HistoryOf<M>,
    final_history: &HistoryOf<M>,
) -> Result<()> {
    let simulation = cluster.simulation();
    let inject = |fault: Fault| simulation.iter().for_each(|simulation| simulation.inject(fault));
    let run = Run { plan, tested, history };
    let work = cluster.run_surviving(plan.threads.len(), async |ct| work(ct, &run, &inject).await);
    match work {
        Err(error) if judge(plan, tested.is_lock_free(), &error).is_some() => return Err(error),
        _ => {}
    }
    let run = Run { history: final_history, ..run };
    cluster.run_surviving(1, async |ct| finish(ct, &run).await).map(drop)
}

/// Context of a run's threads.
struct Run<'a, M: Model> {
    plan: &'a Plan<M::Operation>,
    tested: &'a dyn DynTested<M>,
    history: &'a HistoryOf<M>,
}

/// Performs one thread's operations.
async fn work<M: Model>(ct: &ComputeThread, run: &Run<'_, M>, inject: &impl Fn(Fault)) -> Result<()> {
    let structure = &*run.tested.open(ct).await?;
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

/// A scripted death of a thread in the middle of an operation.
struct Death {
    operation: usize,
    changes: u64,
    after: Duration,
    /// The thread's changes before that operation.
    before: u64,
    is_past: bool,
}

impl Death {
    /// The first death of a thread in the plan.
    fn of<O>(plan: &Plan<O>, of: usize) -> Option<Self> {
        plan.script.iter().find_map(|scripted| match *scripted {
            Scripted::Death { thread, operation, changes, after_ns } if thread == of => {
                let after = Duration::from_nanos(after_ns);
                Some(Self { operation, changes, after, before: 0, is_past: false })
            }
            _ => None,
        })
    }

    /// Called when an operation of the thread begins.
    fn begins(&mut self, number: usize, ct: &ComputeThread) {
        if number == self.operation {
            self.before = changes(ct);
        }
    }

    /// If the moment has come: the delay from now to the death.
    fn is_due(&mut self, number: usize, ct: &ComputeThread) -> Option<Duration> {
        let due = !self.is_past && number >= self.operation && changes(ct) >= self.before + self.changes;
        self.is_past |= due;
        due.then_some(self.after)
    }
}

/// Number of changes of far memory by a thread. CAS in flight count, even if they will fail.
fn changes(ct: &ComputeThread) -> u64 {
    let metrics = ct.metrics();
    metrics.writes + metrics.cas - metrics.cas_failed + metrics.faa
}

impl<M: Model> Run<'_, M> {
    /// Performs and records an operation; returns its result unless the outcome is unknown.
    async fn perform(
        &self,
        doing: impl Future<Output = Result<M::Returned>>,
        operation: &M::Operation,
        ct: &ComputeThread,
    ) -> Result<Option<M::Returned>> {
        let recorded = self.history.record(ct, operation.clone(), async || {
            doing.await.or_else(|error| match self.tested.meaning(operation, &error) {
                Meaning::Answer(returned) => Ok(returned),
                Meaning::Unknown | Meaning::Failure => Err(error),
            })
        });
        match recorded.await {
            Ok(returned) => Ok(Some(returned)),
            Err(error)
                if self.plan.may_fail() && self.tested.meaning(operation, &error) == Meaning::Unknown =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Performs the final operations and destroys the structure. Retries while a link is cut, since links heal.
async fn finish<M: Model>(ct: &ComputeThread, run: &Run<'_, M>) -> Result<()> {
    let (plan, tested) = (run.plan, run.tested);
    let mut attempts = 1..ATTEMPTS;
    let structure = loop {
        match tested.open(ct).await {
            Err(Error::NodeUnreachable(_)) if attempts.next().is_some() => {}
            opened => break opened?,
        }
    };
    // The structure is verified with its contents, too: final operations may remove all of them.
    if !plan.may_fail() {
        structure.verify(ct).await?;
    } else if plan.recovers_first && !plan.may_lose_locks() {
        ct.sleep(LONGEST_FLIGHT).await;
        structure.recover(ct).await?;
        structure.verify(ct).await?;
    }
    let (mut looked, mut last) = (0, None);
    while let Some(operation) = tested.look(plan, looked, last.as_ref()) {
        last = run.perform(structure.perform(&operation, ct), &operation, ct).await?.or(last);
        looked += 1;
    }
    if plan.may_fail() {
        // Operations of this thread that failed may still be in flight: wait until they have ended.
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

/// Classifies the error of a plan's run. `None` if the plan's faults explain it. A program of [`execute`] that goes on after an error uses it, too.
pub fn judge<O>(plan: &Plan<O>, is_lock_free: bool, error: &Error) -> Option<Found> {
    let by = match error {
        Error::Simulation(simulation) => match simulation.finding {
            Finding::Leak => Check::Leak,
            Finding::OutOfTime => Check::OutOfTime,
            Finding::UseAfterFree | Finding::WildAccess | Finding::DoubleFree | Finding::DoubleAllocation => {
                Check::Memory
            }
            // All other findings are about progress.
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
    let excused = is_stuck && plan.may_lose_locks() && !is_lock_free;
    (!excused).then(|| Found { by, message: error.to_string() })
}
