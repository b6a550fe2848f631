//! The soak: one seed's run, and what is wrong with it.
//!
//! The threads work on the structure. When all have ended, another run's only thread looks at everything that is left,
//! as further operations of the history, and destroys the structure, so that whatever is still allocated is a leak. Then
//! the history is compared with the model.
//!
//! A run with faults may fail in the ways in which faults make a structure fail, and must be right in all others: what a
//! dead thread, or one that got no answer, was doing may have taken effect or not, but nothing else may go wrong. It may
//! leave memory behind, since nobody can tell whether an object whose link was not answered is in use. A structure with
//! locks may also be stuck, behind a lock whose owner lives but could not reach it to give it back.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::time::Duration;

use farfield::sim::{Fault, Finding, Happened, History, Simulation};
use farfield::{Cluster, ComputeThread, Error, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::model::Model;
use crate::model::linearizability::{self, Verdict};
use crate::plan::{Death, Faults, Plan};
use crate::planted::Check;
use crate::subject::{Life, Subject, Workload};

/// Longer than a chain can be under way: the timeout, or until a link heals.
const LONGEST_FLIGHT: Duration = Duration::from_millis(1);

/// The longest pause of a client between two operations: a few round trips.
const LONGEST_PAUSE_NS: u64 = 6000;

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What is wrong, if anything is.
    pub caught: Vec<Caught>,
    /// Whether the history was too hard to be checked.
    pub undecided: bool,
    /// How many operations began.
    pub operations: usize,
    /// What was run.
    pub plan: Plan,
    /// The cluster as the run left it, with its trace; none if it could not be made.
    pub simulation: Option<Simulation>,
}

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// What caught it.
    pub by: Check,
    /// What it is.
    pub message: String,
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by.name(), self.message)
    }
}

/// The first of `seeds` under which what must catch a planted bug does, and what it says; none for a structure as users
/// use it, or if all seeds miss the bug.
pub fn hunt(subject: &Subject, seeds: Range<u64>) -> Option<(u64, Caught)> {
    let bug = subject.planted?;
    let faults = if bug.needs_faults { Faults::Injected } else { Faults::None };
    seeds.into_iter().find_map(|seed| {
        let outcome = subject.run_seed(seed, faults);
        outcome.caught.into_iter().find(|caught| caught.by == bug.caught_by).map(|caught| (seed, caught))
    })
}

type HistoryOf<M> = History<<M as Model>::Operation, <M as Model>::Returned>;

/// Runs a plan and judges what happened.
pub(crate) fn run<M: Workload>(plan: &Plan, life: &Life<M>) -> Outcome {
    let history = History::new();
    let (simulation, error) = match Cluster::connect(&plan.url()) {
        Ok(cluster) => (cluster.simulation(), live_and_die(&cluster, plan, life, &history).err()),
        Err(error) => (None, Some(error)),
    };
    let events = history.into_events();
    let mut caught: Vec<Caught> = error.and_then(|error| judge(plan, &error)).into_iter().collect();
    let verdict = linearizability::check::<M>(&events);
    let undecided = verdict == Verdict::Undecided;
    if let Verdict::Refuted(message) = verdict {
        caught.push(Caught { by: Check::Linearizability, message });
    }
    let operations = events.iter().filter(|event| matches!(event.happened, Happened::Invoked(_))).count();
    Outcome { caught, undecided, operations, plan: plan.clone(), simulation }
}

/// The structure's life: threads work on it, one looks at what is left and destroys it.
fn live_and_die<M: Workload>(
    cluster: &Cluster,
    plan: &Plan,
    life: &Life<M>,
    history: &HistoryOf<M>,
) -> Result<()> {
    let simulation = cluster.simulation();
    let inject = |fault: Fault| simulation.iter().for_each(|simulation| simulation.inject(fault));
    let worked = cluster.run_surviving(plan.threads, async |ct| work(ct, plan, life, history, &inject).await);
    match worked {
        Err(error) if judge(plan, &error).is_some() => return Err(error),
        _ => {}
    }
    cluster.run_surviving(1, async |ct| look(ct, plan, life, history).await).map(drop)
}

/// One thread's share of the work.
async fn work<M: Workload>(
    ct: &ComputeThread,
    plan: &Plan,
    life: &Life<M>,
    history: &HistoryOf<M>,
    inject: &impl Fn(Fault),
) -> Result<()> {
    let subject = &(life.open)(ct).await?;
    ct.tasks(plan.tasks, async |task| {
        let client = (ct.index() * plan.tasks + task) as u64;
        let mut rng = SmallRng::seed_from_u64(plan.seed.rotate_left(32) ^ client);
        let mut death = plan.deaths.iter().find(|death| task == 0 && death.thread == ct.index());
        let mut before = 0;
        for number in 1..=plan.operations {
            if rng.random_range(0..100) < plan.pauses_percent {
                ct.sleep(Duration::from_nanos(rng.random_range(0..LONGEST_PAUSE_NS))).await;
            }
            let fresh = (client + 1) * 100 + number as u64;
            let operation = M::draw(plan, &mut rng, fresh);
            if death.is_some_and(|death| death.operation == number) {
                before = changes(ct);
            }
            let performed = history.record(ct, operation, async || {
                let mut doing = subject.perform(operation, ct);
                poll_fn(|context| {
                    let polled = doing.as_mut().poll(context);
                    let is_due = |death: &mut &Death| {
                        death.operation <= number && changes(ct) >= before + death.changes
                    };
                    if let Some(due) = death.take_if(is_due) {
                        inject(Fault::crash(ct.index() / plan.threads_per_node).at(ct.now() + due.after));
                    }
                    polled
                })
                .await
            });
            match performed.await {
                // It may have taken effect or not; the client goes on with something else.
                Err(Error::NodeUnreachable(_)) if plan.faults == Faults::Injected => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            // Memory comes back soon only if somebody asks for it.
            if rng.random_range(0..8) > 0 {
                ct.try_reclaim().await;
            }
        }
        Ok(())
    })
    .await
    .map(drop)
}

/// How often a thread has changed far memory. Too many by those CAS under way that will fail.
fn changes(ct: &ComputeThread) -> u64 {
    let metrics = ct.metrics();
    metrics.writes + metrics.cas - metrics.cas_failed + metrics.faa
}

/// Looks at everything that is left, and destroys it. Links that are cut heal, so it goes on where one is.
async fn look<M: Workload>(
    ct: &ComputeThread,
    plan: &Plan,
    life: &Life<M>,
    history: &HistoryOf<M>,
) -> Result<()> {
    let subject = loop {
        match (life.find)(ct).await {
            Err(Error::NodeUnreachable(_)) => {}
            attached => break attached?,
        }
    };
    if plan.recovers_first && !plan.may_lose_locks() {
        ct.sleep(LONGEST_FLIGHT).await;
        subject.recover(ct).await?;
        subject.verify(ct).await?;
    }
    let (mut looked, mut last) = (0, None);
    while let Some(operation) = M::look(plan, looked, last) {
        match history.record(ct, operation, async || subject.perform(operation, ct).await).await {
            Err(Error::NodeUnreachable(_)) => {}
            returned => last = Some(returned?),
        }
        looked += 1;
    }
    match plan.faults {
        Faults::None => subject.verify(ct).await?,
        Faults::Injected => {
            // What the failed operations of this thread had posted must not come after the end.
            ct.sleep(LONGEST_FLIGHT).await;
            if !plan.may_lose_locks() {
                subject.recover(ct).await?;
                subject.verify(ct).await?;
            }
        }
    }
    subject.destroy(ct).await
}

/// What a run's error says about the structure; nothing, if faults explain it.
fn judge(plan: &Plan, error: &Error) -> Option<Caught> {
    let by = match error {
        Error::Simulation(simulation) => match simulation.finding {
            Finding::Leak => Check::Leak,
            Finding::Deadlock | Finding::Livelock | Finding::Starved => Check::Stuck,
            Finding::OutOfTime => Check::OutOfTime,
            _ => Check::Memory,
        },
        Error::InvalidPointer(_) | Error::InvalidValue(_) => Check::Memory,
        Error::NodeUnreachable(_)
        | Error::ComputeNodeDied(_)
        | Error::BarrierBroken(_)
        | Error::RootNotFound(_)
        | Error::HalfWritten(_)
            if plan.faults == Faults::Injected =>
        {
            return None;
        }
        _ => Check::Error,
    };
    let excused = matches!(by, Check::Stuck | Check::OutOfTime)
        && plan.may_lose_locks()
        && !plan.structure.is_lock_free();
    (!excused).then(|| Caught { by, message: error.to_string() })
}
