//! Subjects: what is soaked, be it a structure that users use or a copy of one with a planted bug.

use std::pin::Pin;

use farfield::{ComputeThread, Remote, RemotePtr, Result};
use farfield_examples::{HarrisList, HashSet, LazyList, LazyListNaive, MsQueue, TreiberStack};
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::model::exchange::{Discipline, Exchange, Reply};
use crate::model::register::Access;
use crate::model::set::{Set, SetOperation};
use crate::model::{self, Model};
use crate::mutants::MUTANTS;
use crate::plan::{Faults, Plan};
use crate::planted::{Bug, Planted, Structure};
use crate::register::Register;
use crate::soak::{self, Outcome};

/// A structure in far memory that can be compared with a model.
#[allow(async_fn_in_trait)] // its futures stay on their compute thread, so nobody needs them to be `Send`
pub trait Soaked: Remote + Sized + 'static {
    /// What it must look like.
    type Model: Workload + 'static;

    /// A new, empty one.
    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>>;
    /// A handle to one.
    async fn attach(root: RemotePtr<Self>, ct: &ComputeThread) -> Result<Self>;
    /// Performs an operation.
    async fn perform(
        &self,
        operation: <Self::Model as Model>::Operation,
        ct: &ComputeThread,
    ) -> Result<<Self::Model as Model>::Returned>;
    /// Puts right what threads that died have left. A structure without locks is always right.
    async fn recover(&self, _: &ComputeThread) -> Result<()> {
        Ok(())
    }
    /// Looks whether it is in order, at a quiescent point. A structure that its operations show in full needs no look.
    async fn verify(&self, _: &ComputeThread) -> Result<()> {
        Ok(())
    }
    /// Frees it.
    async fn destroy(self, ct: &ComputeThread) -> Result<()>;
}

/// What becomes of something that is done.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// A handle to a structure, whatever its type.
pub trait Handle<M: Model> {
    /// As [`Soaked::perform`].
    fn perform<'a>(&'a self, operation: M::Operation, ct: &'a ComputeThread) -> Doing<'a, M::Returned>;
    /// As [`Soaked::recover`].
    fn recover<'a>(&'a self, ct: &'a ComputeThread) -> Doing<'a, ()>;
    /// As [`Soaked::verify`].
    fn verify<'a>(&'a self, ct: &'a ComputeThread) -> Doing<'a, ()>;
    /// As [`Soaked::destroy`].
    fn destroy(self: Box<Self>, ct: &ComputeThread) -> Doing<'_, ()>;
}

impl<M: Model, S: Soaked<Model = M>> Handle<M> for S {
    fn perform<'a>(&'a self, operation: M::Operation, ct: &'a ComputeThread) -> Doing<'a, M::Returned> {
        Box::pin(Soaked::perform(self, operation, ct))
    }
    fn recover<'a>(&'a self, ct: &'a ComputeThread) -> Doing<'a, ()> {
        Box::pin(Soaked::recover(self, ct))
    }
    fn verify<'a>(&'a self, ct: &'a ComputeThread) -> Doing<'a, ()> {
        Box::pin(Soaked::verify(self, ct))
    }
    fn destroy(self: Box<Self>, ct: &ComputeThread) -> Doing<'_, ()> {
        Box::pin(Soaked::destroy(*self, ct))
    }
}

/// The name under which the threads find the structure.
const ROOT: &str = "subject";

/// How the threads of a run come by the structure. Everything else is compiled once for each model, and not for each of the
/// many copies with a planted bug.
pub struct Life<M: Model> {
    /// A handle to the structure, which is made by the first thread that asks.
    pub open: for<'a> fn(&'a ComputeThread) -> Doing<'a, Box<dyn Handle<M>>>,
    /// A handle to the structure, if it is there.
    pub find: for<'a> fn(&'a ComputeThread) -> Doing<'a, Box<dyn Handle<M>>>,
}

impl<M: Model> Life<M> {
    fn of<S: Soaked<Model = M>>() -> Self {
        Self {
            open: |ct| {
                Box::pin(async move {
                    let root = ct.root_or_init(ROOT, async || S::create(ct).await).await?;
                    Ok(Box::new(S::attach(root, ct).await?) as Box<dyn Handle<M>>)
                })
            },
            find: |ct| {
                Box::pin(async move {
                    let root = ct.lookup(ROOT).await?;
                    Ok(Box::new(S::attach(root, ct).await?) as Box<dyn Handle<M>>)
                })
            },
        }
    }
}

fn run<S: Soaked>(plan: &Plan) -> Outcome {
    soak::run(plan, &Life::of::<S>())
}

/// A model from which operations can be drawn.
pub trait Workload: Model {
    /// Something that a client does. `fresh` is a value that nobody else puts in.
    fn draw(plan: &Plan, rng: &mut SmallRng, fresh: u64) -> Self::Operation;
    /// The next step of looking whether everything is there and can still be changed, after `looked` steps, the last of
    /// which returned `last`.
    fn look(plan: &Plan, looked: u64, last: Option<Self::Returned>) -> Option<Self::Operation>;
}

impl Workload for Set {
    fn draw(plan: &Plan, rng: &mut SmallRng, _: u64) -> SetOperation {
        let key = rng.random_range(0..plan.keys);
        let [gets, inserts] = plan.gets_and_inserts_percent;
        match rng.random_range(0..100) {
            percent if percent < gets => SetOperation::Get(key),
            percent if percent < gets + inserts => SetOperation::Insert(key),
            _ => SetOperation::Remove(key),
        }
    }

    fn look(plan: &Plan, looked: u64, _: Option<bool>) -> Option<SetOperation> {
        let key = looked / 3;
        let operation =
            [SetOperation::Get, SetOperation::Insert, SetOperation::Remove][(looked % 3) as usize];
        (key < plan.keys).then_some(operation(key))
    }
}

impl Workload for model::register::Register {
    fn draw(plan: &Plan, rng: &mut SmallRng, fresh: u64) -> Access {
        if rng.random_range(0..100) < plan.puts_percent { Access::Write(fresh) } else { Access::Read }
    }

    /// A value that a dead writer has left half-written is lost; it can be written again.
    fn look(_: &Plan, looked: u64, _: Option<u64>) -> Option<Access> {
        [Access::Read, Access::Write(LAST_VALUE), Access::Read].get(looked as usize).copied()
    }
}

/// What is put in before everything is taken out. No client puts it in.
const LAST_VALUE: u64 = 1;

impl<D: Discipline> Workload for D {
    fn draw(plan: &Plan, rng: &mut SmallRng, fresh: u64) -> Exchange {
        if rng.random_range(0..100) < plan.puts_percent { Exchange::Put(fresh) } else { Exchange::Take }
    }

    fn look(plan: &Plan, looked: u64, last: Option<Reply>) -> Option<Exchange> {
        // A broken structure may go on giving values for ever.
        let more = last != Some(Reply::Empty) && looked <= plan.values() + 2;
        more.then_some(if looked == 0 { Exchange::Put(LAST_VALUE) } else { Exchange::Take })
    }
}

/// A structure that is soaked, or a bug that is hunted, whatever its type.
#[derive(Clone, Copy)]
pub struct Subject {
    /// What it is, or is a copy of.
    pub structure: Structure,
    /// The bug in it.
    pub planted: Option<&'static Planted>,
    run: fn(&Plan) -> Outcome,
}

impl Subject {
    /// The structure as users use it.
    pub const fn real(structure: Structure) -> Self {
        let run: fn(&Plan) -> Outcome = match structure {
            Structure::LazyList => run::<LazyList<u64>>,
            Structure::LazyListNaive => run::<LazyListNaive<u64>>,
            Structure::HarrisList => run::<HarrisList<u64>>,
            Structure::HashSet => run::<HashSet>,
            Structure::TreiberStack => run::<TreiberStack<u64>>,
            Structure::MsQueue => run::<MsQueue<u64>>,
            Structure::Register => run::<Register>,
        };
        Self { structure, planted: None, run }
    }

    /// A subject for each planted bug.
    pub fn with_planted_bugs() -> &'static [Self] {
        MUTANTS
    }

    /// A broken copy of a structure.
    pub(crate) const fn mutant<S: Soaked>(planted: &'static Planted) -> Self {
        Self { structure: planted.structure, planted: Some(planted), run: run::<S> }
    }

    /// A structure as users use it, on a broken runtime.
    pub(crate) const fn on_broken_runtime(planted: &'static Planted) -> Self {
        Self { planted: Some(planted), ..Self::real(planted.structure) }
    }

    /// What it is called in reports.
    pub fn name(&self) -> &'static str {
        self.planted.map_or(self.structure.name(), |planted| planted.name)
    }

    /// Runs what a seed stands for.
    pub fn run_seed(&self, seed: u64, faults: Faults) -> Outcome {
        self.run(&self.plan(seed, faults))
    }

    /// What a seed stands for.
    pub fn plan(&self, seed: u64, faults: Faults) -> Plan {
        let options = match self.planted.map(|planted| planted.bug) {
            Some(Bug::Runtime(options)) => options,
            Some(Bug::Edit { .. } | Bug::Edits(_)) | None => "",
        };
        Plan { options, ..Plan::new(self.structure, seed, faults) }
    }

    /// Runs a plan.
    pub fn run(&self, plan: &Plan) -> Outcome {
        (self.run)(plan)
    }
}

/// The part of [`Soaked`] that all structures have in the same words.
macro_rules! whole_life {
    () => {
        async fn create(ct: &farfield::ComputeThread) -> farfield::Result<farfield::RemotePtr<Self>> {
            Self::create(ct).await
        }
        async fn attach(
            root: farfield::RemotePtr<Self>,
            ct: &farfield::ComputeThread,
        ) -> farfield::Result<Self> {
            Self::attach(root, ct).await
        }
        async fn destroy(self, ct: &farfield::ComputeThread) -> farfield::Result<()> {
            self.destroy(ct).await
        }
    };
}
pub(crate) use whole_life;

macro_rules! set {
    ($set:ty $(, $recover:ident)?) => {
        impl $crate::subject::Soaked for $set {
            type Model = $crate::model::set::Set;
            $crate::subject::whole_life!();
            $(async fn $recover(&self, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                self.$recover(ct).await
            })?
            async fn perform(
                &self,
                operation: $crate::model::set::SetOperation,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<bool> {
                match operation {
                    $crate::model::set::SetOperation::Get(key) => self.get(key, ct).await,
                    $crate::model::set::SetOperation::Insert(key) => self.insert(key, ct).await,
                    $crate::model::set::SetOperation::Remove(key) => self.remove(key, ct).await,
                }
            }
            async fn verify(&self, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                self.iter(ct).await.map(drop)
            }
        }
    };
}
pub(crate) use set;

macro_rules! stack {
    ($stack:ty) => {
        impl $crate::subject::Soaked for $stack {
            type Model = $crate::model::exchange::Stack;
            $crate::subject::whole_life!();
            async fn perform(
                &self,
                operation: $crate::model::exchange::Exchange,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<$crate::model::exchange::Reply> {
                match operation {
                    $crate::model::exchange::Exchange::Put(value) => {
                        self.push(value, ct).await.map(|()| $crate::model::exchange::Reply::Done)
                    }
                    $crate::model::exchange::Exchange::Take => {
                        self.pop(ct).await.map($crate::model::exchange::Reply::of)
                    }
                }
            }
        }
    };
}
pub(crate) use stack;

macro_rules! queue {
    ($queue:ty) => {
        impl $crate::subject::Soaked for $queue {
            type Model = $crate::model::exchange::Queue;
            $crate::subject::whole_life!();
            async fn perform(
                &self,
                operation: $crate::model::exchange::Exchange,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<$crate::model::exchange::Reply> {
                match operation {
                    $crate::model::exchange::Exchange::Put(value) => {
                        self.enqueue(value, ct).await.map(|()| $crate::model::exchange::Reply::Done)
                    }
                    $crate::model::exchange::Exchange::Take => {
                        self.dequeue(ct).await.map($crate::model::exchange::Reply::of)
                    }
                }
            }
        }
    };
}
pub(crate) use queue;

impl Soaked for Register {
    type Model = model::register::Register;
    whole_life!();
    async fn perform(&self, operation: Access, ct: &ComputeThread) -> Result<u64> {
        match operation {
            Access::Read => self.read(ct).await,
            Access::Write(value) => self.write(value, ct).await.map(|()| value),
        }
    }
}

set!(LazyList<u64>, recover);
set!(LazyListNaive<u64>, recover);
set!(HarrisList<u64>);
set!(HashSet, recover);
stack!(TreiberStack<u64>);
queue!(MsQueue<u64>);
