//! Subjects: what is soaked, be it a structure that users use or a copy of one with a planted bug.

use std::marker::PhantomData;
use std::ops::Range;

use farfield_examples::{HarrisList, HashSet, LazyList, LazyListNaive, MsQueue, TreiberStack};
use farfield_testing::{Checker, Faults, Model, Plan, Random, Tested};

use crate::model;
use crate::model::exchange::{Discipline, Exchange, Reply, Values};
use crate::model::register::Access;
use crate::model::set::{Set, SetOperation};
use crate::planted::{Bug, Planted, Structure};
use crate::register::Register;
use crate::soak::{self, Caught, Outcome, Soaked};

/// The name under which the threads find the structure.
pub(crate) const ROOT: &str = "subject";

/// The structure `S`, as it is tested.
#[derive(Debug)]
pub struct Soak<S>(PhantomData<S>);

/// A model from which operations can be drawn.
pub trait Workload: Model {
    /// Something that a client does.
    fn draw(random: &mut Random) -> Self::Operation;
    /// The next step of looking whether everything is there and can still be changed, after `looked` steps, the last of
    /// which returned `last`.
    fn look(
        plan: &Plan<Self::Operation>,
        looked: usize,
        last: Option<&Self::Returned>,
    ) -> Option<Self::Operation>;
    /// Simpler operations than this one.
    fn simpler(operation: &Self::Operation) -> Vec<Self::Operation>;
}

impl Workload for Set {
    fn draw(random: &mut Random) -> SetOperation {
        let keys = [1, 2, 2, 3][random.once("keys", 0..4) as usize];
        let [gets, inserts] =
            [[10, 45], [30, 35], [40, 15], [60, 20]][random.once("gets and inserts", 0..4) as usize];
        let key = random.range(0..keys);
        match random.range(0..100) {
            percent if percent < gets => SetOperation::Get(key),
            percent if percent < gets + inserts => SetOperation::Insert(key),
            _ => SetOperation::Remove(key),
        }
    }

    fn look(plan: &Plan<SetOperation>, looked: usize, _: Option<&bool>) -> Option<SetOperation> {
        let operation = [SetOperation::Get, SetOperation::Insert, SetOperation::Remove][looked % 3];
        let (key, last) = (looked as u64 / 3, plan.operations().map(|operation| operation.key()).max()?);
        (key <= last).then_some(operation(key))
    }

    fn simpler(operation: &SetOperation) -> Vec<SetOperation> {
        (0..operation.key()).map(|key| operation.with_key(key)).collect()
    }
}

impl Workload for model::register::Register {
    fn draw(random: &mut Random) -> Access {
        let writes_percent = [20, 30, 45][random.once("writes", 0..3) as usize];
        if random.percent(writes_percent) { Access::Write(random.fresh()) } else { Access::Read }
    }

    /// A value that a dead writer has left half-written is lost; it can be written again.
    fn look(_: &Plan<Access>, looked: usize, _: Option<&u64>) -> Option<Access> {
        [Access::Read, Access::Write(LAST_VALUE), Access::Read].get(looked).copied()
    }

    fn simpler(access: &Access) -> Vec<Access> {
        if *access == Access::Read { vec![] } else { vec![Access::Read] }
    }
}

/// What is put in before everything is taken out. No client puts it in.
const LAST_VALUE: u64 = 0;

impl<D: Discipline> Workload for Values<D> {
    fn draw(random: &mut Random) -> Exchange {
        let puts_percent = [20, 30, 45][random.once("puts", 0..3) as usize];
        if random.percent(puts_percent) { Exchange::Put(random.fresh()) } else { Exchange::Take }
    }

    fn look(plan: &Plan<Exchange>, looked: usize, last: Option<&Reply>) -> Option<Exchange> {
        // A broken structure may go on giving values for ever.
        let more = last != Some(&Reply::Empty) && looked <= plan.operations().count() + 2;
        more.then_some(if looked == 0 { Exchange::Put(LAST_VALUE) } else { Exchange::Take })
    }

    fn simpler(_: &Exchange) -> Vec<Exchange> {
        vec![]
    }
}

/// A structure that is soaked, or a bug that is hunted, whatever its type.
#[derive(Clone, Copy)]
pub struct Subject {
    /// What it is, or is a copy of.
    pub structure: Structure,
    /// The bug in it.
    pub planted: Option<&'static Planted>,
    run: fn(u64, Faults, &str) -> Outcome,
    soak: fn(&Checker) -> Soaked,
}

impl Subject {
    /// The structure as users use it.
    pub const fn real(structure: Structure) -> Self {
        match structure {
            Structure::LazyList => Self::of::<LazyList<u64>>(structure),
            Structure::LazyListNaive => Self::of::<LazyListNaive<u64>>(structure),
            Structure::HarrisList => Self::of::<HarrisList<u64>>(structure),
            Structure::HashSet => Self::of::<HashSet>(structure),
            Structure::TreiberStack => Self::of::<TreiberStack<u64>>(structure),
            Structure::MsQueue => Self::of::<MsQueue<u64>>(structure),
            Structure::Register => Self::of::<Register>(structure),
        }
    }

    /// A broken copy of a structure.
    pub(crate) const fn mutant<S>(planted: &'static Planted) -> Self
    where
        Soak<S>: Tested,
    {
        Self { planted: Some(planted), ..Self::of::<S>(planted.structure) }
    }

    /// A structure as users use it, on a broken runtime.
    pub(crate) const fn on_broken_runtime(planted: &'static Planted) -> Self {
        Self { planted: Some(planted), ..Self::real(planted.structure) }
    }

    const fn of<S>(structure: Structure) -> Self
    where
        Soak<S>: Tested,
    {
        Self { structure, planted: None, run: soak::run::<Soak<S>>, soak: soak::soak::<Soak<S>> }
    }

    /// What it is called in reports.
    pub fn name(&self) -> &'static str {
        self.planted.map_or(self.structure.name(), |planted| planted.name)
    }

    /// Runs what a seed stands for.
    pub fn run_seed(&self, seed: u64, faults: Faults) -> Outcome {
        self.run_with(seed, faults, self.options())
    }

    /// Runs what a seed stands for, with these options of the cluster's URL besides.
    pub fn run_with(&self, seed: u64, faults: Faults, options: &str) -> Outcome {
        (self.run)(seed, faults, options)
    }

    /// The first of `seeds` under which the check that must catch the planted bug does, and what it says; none for a structure as users
    /// use it, or if all seeds miss the bug.
    pub fn hunt(&self, seeds: Range<u64>) -> Option<(u64, Caught)> {
        let bug = self.planted?;
        let faults = if bug.needs_faults { Faults::Injected } else { Faults::None };
        seeds.into_iter().find_map(|seed| {
            let outcome = self.run_seed(seed, faults);
            outcome.caught.into_iter().find(|caught| caught.by == bug.caught_by).map(|caught| (seed, caught))
        })
    }

    /// Runs many seeds.
    pub fn soak(&self, checker: &Checker) -> Soaked {
        (self.soak)(&checker.clone().options(self.options()))
    }

    /// The options by which the runtime is broken.
    fn options(&self) -> &'static str {
        match self.planted.map(|planted| planted.bug) {
            Some(Bug::Runtime(options)) => options,
            Some(Bug::Edit { .. } | Bug::Edits(_)) | None => "",
        }
    }
}

/// The part of [`Tested`] that all structures have in the same words.
macro_rules! whole_life {
    ($structure:ty, $model:ty, $lock_free:literal) => {
        type Model = $model;
        type Structure = $structure;
        async fn open(ct: &farfield::ComputeThread) -> farfield::Result<$structure> {
            let root = ct.root_or_init($crate::subject::ROOT, async || <$structure>::create(ct).await);
            <$structure>::attach(root.await?, ct).await
        }
        fn operation(random: &mut farfield_testing::Random) -> farfield_testing::OperationOf<Self> {
            <$model as $crate::subject::Workload>::draw(random)
        }
        fn look(
            plan: &farfield_testing::Plan<farfield_testing::OperationOf<Self>>,
            looked: usize,
            last: Option<&farfield_testing::ReturnedOf<Self>>,
        ) -> Option<farfield_testing::OperationOf<Self>> {
            <$model as $crate::subject::Workload>::look(plan, looked, last)
        }
        fn simpler(
            operation: &farfield_testing::OperationOf<Self>,
        ) -> Vec<farfield_testing::OperationOf<Self>> {
            <$model as $crate::subject::Workload>::simpler(operation)
        }
        fn is_lock_free() -> bool {
            $lock_free
        }
        async fn destroy(structure: $structure, ct: &farfield::ComputeThread) -> farfield::Result<()> {
            structure.destroy(ct).await
        }
    };
}
pub(crate) use whole_life;

/// A set whose updates lock nodes.
macro_rules! set {
    ($set:ty $(, $recover:ident)?) => {
        $crate::subject::any_set!($set, false $(, $recover)?);
    };
}
pub(crate) use set;

macro_rules! lock_free_set {
    ($set:ty) => {
        $crate::subject::any_set!($set, true);
    };
}
pub(crate) use lock_free_set;

macro_rules! any_set {
    ($set:ty, $lock_free:literal $(, $recover:ident)?) => {
        impl farfield_testing::Tested for $crate::subject::Soak<$set> {
            $crate::subject::whole_life!($set, $crate::model::set::Set, $lock_free);
            $(async fn $recover(set: &$set, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                set.$recover(ct).await
            })?
            async fn perform(
                set: &$set,
                operation: &$crate::model::set::SetOperation,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<bool> {
                match *operation {
                    $crate::model::set::SetOperation::Get(key) => set.get(key, ct).await,
                    $crate::model::set::SetOperation::Insert(key) => set.insert(key, ct).await,
                    $crate::model::set::SetOperation::Remove(key) => set.remove(key, ct).await,
                }
            }
            async fn verify(set: &$set, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                set.iter(ct).await.map(drop)
            }
        }
    };
}
pub(crate) use any_set;

macro_rules! stack {
    ($stack:ty) => {
        impl farfield_testing::Tested for $crate::subject::Soak<$stack> {
            $crate::subject::whole_life!($stack, $crate::model::exchange::Stack, true);
            async fn perform(
                stack: &$stack,
                operation: &$crate::model::exchange::Exchange,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<$crate::model::exchange::Reply> {
                match *operation {
                    $crate::model::exchange::Exchange::Put(value) => {
                        stack.push(value, ct).await.map(|()| $crate::model::exchange::Reply::Done)
                    }
                    $crate::model::exchange::Exchange::Take => {
                        stack.pop(ct).await.map($crate::model::exchange::Reply::of)
                    }
                }
            }
        }
    };
}
pub(crate) use stack;

macro_rules! queue {
    ($queue:ty) => {
        impl farfield_testing::Tested for $crate::subject::Soak<$queue> {
            $crate::subject::whole_life!($queue, $crate::model::exchange::Queue, true);
            async fn perform(
                queue: &$queue,
                operation: &$crate::model::exchange::Exchange,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<$crate::model::exchange::Reply> {
                match *operation {
                    $crate::model::exchange::Exchange::Put(value) => {
                        queue.enqueue(value, ct).await.map(|()| $crate::model::exchange::Reply::Done)
                    }
                    $crate::model::exchange::Exchange::Take => {
                        queue.dequeue(ct).await.map($crate::model::exchange::Reply::of)
                    }
                }
            }
        }
    };
}
pub(crate) use queue;

impl Tested for Soak<Register> {
    whole_life!(Register, model::register::Register, false);
    async fn perform(
        register: &Register,
        access: &Access,
        ct: &farfield::ComputeThread,
    ) -> farfield::Result<u64> {
        match *access {
            Access::Read => register.read(ct).await,
            Access::Write(value) => register.write(value, ct).await.map(|()| value),
        }
    }
}

set!(LazyList<u64>, recover);
set!(LazyListNaive<u64>, recover);
lock_free_set!(HarrisList<u64>);
set!(HashSet, recover);
stack!(TreiberStack<u64>);
queue!(MsQueue<u64>);
