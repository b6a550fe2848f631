//! Subjects of the soak: structures as users use them, and planted bugs.

// Mutants use the rest.
#![cfg_attr(not(feature = "mutants"), allow(dead_code, unused_imports))]

use std::marker::PhantomData;
use std::ops::Range;

use farfield_collections::{
    HashMap, InlineHashMap, InterlockedHashTable, OrderedMap, PriorityQueue, Ring, SkipList,
};
use farfield_examples::{HarrisList, HashSet, LazyList, LazyListNaive, MsQueue, TreiberStack};
use farfield_sim::Plant;
use farfield_testing::{Faults, Found, Model, Plan, Random, Tested};

use crate::kv::{self, KeyValue};
use crate::map::{locking_map, map, ordered_map};
use crate::model::exchange::{Discipline, Exchange, Reply, Values};
use crate::model::priority::Request;
use crate::model::register::Access;
use crate::model::set::{Set, SetOperation};
use crate::mutants::{
    hash_map_with_small_tables, inline_hash_map_with_small_tables as small_inline,
    interlocked_with_small_lists as small_interlocked, kv_with_small_pages,
    ordered_map_with_small_nodes as small_ordered, ring_of_mapped_memory, tall_skip_list,
};
use crate::planted::{Planted, Structure};
use crate::planted_runtime::PlantedInRuntime;
use crate::register::Register;
use crate::soak::{self, Outcome, Soaked};
use crate::{Check, model};

/// The name of the structure's root.
pub(crate) const ROOT: &str = "subject";

/// Implements [`Tested`] for the structure `S`, with the planted bug of this number, or none.
#[derive(Debug)]
pub struct Soak<S, const BUG: usize = 0>(PhantomData<S>);

/// A model with a generator of operations.
pub trait Workload: Model {
    /// Draws a client's operation.
    fn draw(random: &mut Random) -> Self::Operation;
    /// The next final operation, after `looked` of them; the last returned `last`. Final operations read the contents and change them
    /// again.
    fn look(
        plan: &Plan<Self::Operation>,
        looked: usize,
        last: Option<&Self::Returned>,
    ) -> Option<Self::Operation>;
    /// Returns simpler operations.
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

    /// The first READ may fail on a value that a dead writer left half-written; a WRITE replaces it.
    fn look(_: &Plan<Access>, looked: usize, _: Option<&u64>) -> Option<Access> {
        [Access::Read, Access::Write(LAST_VALUE), Access::Read].get(looked).copied()
    }

    fn simpler(access: &Access) -> Vec<Access> {
        if *access == Access::Read { vec![] } else { vec![Access::Read] }
    }
}

/// The value that is inserted before all values are removed. No client inserts it.
const LAST_VALUE: u64 = 0;

impl<D: Discipline> Workload for Values<D> {
    fn draw(random: &mut Random) -> Exchange {
        let puts_percent = [20, 30, 45][random.once("puts", 0..3) as usize];
        if random.percent(puts_percent) { Exchange::Put(random.fresh()) } else { Exchange::Take }
    }

    fn look(plan: &Plan<Exchange>, looked: usize, last: Option<&Reply>) -> Option<Exchange> {
        // A broken structure may return values for ever.
        let more = last != Some(&Reply::Empty) && looked <= plan.operations().count() + 2;
        more.then_some(if looked == 0 { Exchange::Put(LAST_VALUE) } else { Exchange::Take })
    }

    fn simpler(_: &Exchange) -> Vec<Exchange> {
        vec![]
    }
}

impl Workload for model::priority::PriorityQueue {
    fn draw(random: &mut Random) -> Request {
        let pushes_percent = [30, 40, 55][random.once("pushes", 0..3) as usize];
        let peeks_percent = [0, 10, 25][random.once("peeks", 0..3) as usize];
        let priorities = [1, 2, 6, 100][random.once("priorities", 0..4) as usize];
        if random.percent(pushes_percent) {
            Request::Push(random.range(0..priorities), random.fresh())
        } else if random.percent(peeks_percent) {
            Request::Peek
        } else {
            Request::Pop
        }
    }

    fn look(plan: &Plan<Request>, looked: usize, last: Option<&Option<(u64, u64)>>) -> Option<Request> {
        // A broken queue may return values for ever.
        let more = looked < 2 || last != Some(&None) && looked <= plan.operations().count() + 3;
        let request = [Request::Push(0, LAST_VALUE), Request::Peek].get(looked).copied();
        more.then_some(request.unwrap_or(Request::Pop))
    }

    fn simpler(request: &Request) -> Vec<Request> {
        match *request {
            Request::Push(priority, value) => {
                (0..priority).map(|lower| Request::Push(lower, value)).collect()
            }
            Request::Peek | Request::Pop => vec![],
        }
    }
}

/// A subject's planted bug.
#[derive(Clone, Copy)]
pub enum Bug {
    /// The subject is the structure as users use it.
    None,
    /// The subject is a mutant.
    Mutant(&'static Planted),
    /// The runtime has a planted bug that this check must detect.
    Runtime(&'static PlantedInRuntime, Check),
}

/// A structure that is soaked, or a planted bug that is hunted, with the structure's type erased.
#[derive(Clone, Copy)]
pub struct Subject {
    /// The structure, or the original of the mutant.
    pub structure: Structure,
    /// The bug.
    pub bug: Bug,
    run: fn(u64, Faults, Plant) -> Outcome,
    soak: fn(Range<u64>, Faults, usize, Plant) -> Soaked,
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
            Structure::Ring => Self::of::<Ring<u64>>(structure),
            Structure::MappedRing => Self::of::<ring_of_mapped_memory::Ring<u64>>(structure),
            Structure::HashMap => Self::of::<HashMap<u64, u64>>(structure),
            Structure::SmallHashMap => Self::of::<hash_map_with_small_tables::HashMap<u64, u64>>(structure),
            Structure::HashMapOfBytes => {
                Self::of::<hash_map_with_small_tables::HashMap<Vec<u8>, Vec<u8>>>(structure)
            }
            Structure::InlineHashMap => Self::of::<InlineHashMap<u64, u64>>(structure),
            Structure::SmallInlineHashMap => {
                Self::of::<small_inline::inline::InlineHashMap<u64, u64>>(structure)
            }
            Structure::SkipList => Self::of::<SkipList<u64, u64>>(structure),
            Structure::TallSkipList => Self::of::<tall_skip_list::SkipList<u64, u64>>(structure),
            Structure::OrderedMap => Self::of::<OrderedMap<u64, u64>>(structure),
            Structure::SmallOrderedMap => Self::of::<small_ordered::OrderedMap<u64, u64>>(structure),
            Structure::OrderedMapOfBytes => {
                Self::of::<small_ordered::OrderedMap<Vec<u8>, Vec<u8>>>(structure)
            }
            Structure::PriorityQueue => Self::of::<PriorityQueue<u64, u64>>(structure),
            Structure::InterlockedHashTable => Self::of::<InterlockedHashTable<u64, u64>>(structure),
            Structure::SmallInterlockedHashTable => {
                Self::of::<small_interlocked::interlocked::InterlockedHashTable<u64, u64>>(structure)
            }
            Structure::Register => Self::of::<Register>(structure),
            Structure::KeyValueStore => Self::of_store::<farfield_kv::Store>(structure),
            Structure::SmallKeyValueStore => Self::of_store::<kv_with_small_pages::Store>(structure),
        }
    }

    /// A mutant of a structure.
    pub(crate) const fn mutant<S, const BUG: usize>(planted: &'static Planted) -> Self
    where
        Soak<S, BUG>: Tested,
    {
        Self { bug: Bug::Mutant(planted), ..Self::with_bug::<S, BUG>(planted.structure) }
    }

    /// A mutant of the key-value store.
    pub(crate) const fn mutant_of_store<S: KeyValue, const BUG: usize>(planted: &'static Planted) -> Self {
        Self { bug: Bug::Mutant(planted), ..Self::store_with_bug::<S, BUG>(planted.structure) }
    }

    /// The structure that must detect a planted bug of the runtime, if one must.
    pub(crate) fn on_broken_runtime(planted: &'static PlantedInRuntime) -> Option<Self> {
        let (structure, check) = planted.structure?;
        Some(Self { bug: Bug::Runtime(planted, check), ..Self::real(structure) })
    }

    const fn of<S>(structure: Structure) -> Self
    where
        Soak<S>: Tested,
    {
        Self::with_bug::<S, 0>(structure)
    }

    const fn with_bug<S, const BUG: usize>(structure: Structure) -> Self
    where
        Soak<S, BUG>: Tested,
    {
        Self { structure, bug: Bug::None, run: soak::run::<Soak<S, BUG>>, soak: soak::soak::<Soak<S, BUG>> }
    }

    const fn of_store<S: KeyValue>(structure: Structure) -> Self {
        Self::store_with_bug::<S, 0>(structure)
    }

    const fn store_with_bug<S: KeyValue, const BUG: usize>(structure: Structure) -> Self {
        Self { structure, bug: Bug::None, run: kv::run::<S, BUG>, soak: kv::soak::<S, BUG> }
    }

    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self.bug {
            Bug::None => self.structure.name(),
            Bug::Mutant(planted) => planted.name,
            Bug::Runtime(planted, _) => planted.plant.name(),
        }
    }

    /// Runs a seed.
    pub fn run_seed(&self, seed: u64, faults: Faults) -> Outcome {
        self.run_planted(seed, faults, self.plant())
    }

    /// Runs a seed on a runtime with a planted bug.
    pub fn run_planted(&self, seed: u64, faults: Faults, plant: Plant) -> Outcome {
        (self.run)(seed, faults, plant)
    }

    /// The first of `seeds` under which the expected check detects the planted bug, and its finding; none without a bug, or if no seed
    /// detects it.
    pub fn hunt(&self, seeds: Range<u64>) -> Option<(u64, Found)> {
        let (expected, faults) = match self.bug {
            Bug::None => return None,
            Bug::Mutant(Planted { caught_by, needs_faults: true, .. }) => (*caught_by, Faults::Injected),
            Bug::Mutant(Planted { caught_by, .. }) => (*caught_by, Faults::None),
            Bug::Runtime(_, check) => (check, Faults::None),
        };
        seeds.into_iter().find_map(|seed| {
            let outcome = self.run_seed(seed, faults);
            outcome.found.into_iter().find(|found| found.by == expected).map(|found| (seed, found))
        })
    }

    /// Runs many seeds, so many of them in parallel.
    pub fn soak(&self, seeds: Range<u64>, faults: Faults, jobs: usize) -> Soaked {
        (self.soak)(seeds, faults, jobs, self.plant())
    }

    fn plant(&self) -> Plant {
        match self.bug {
            Bug::None | Bug::Mutant(_) => Plant::None,
            Bug::Runtime(planted, _) => planted.plant,
        }
    }
}

/// The part of [`Tested`] that is the same for all structures.
macro_rules! common_items {
    ($structure:ty, $model:ty, $lock_free:literal) => {
        type Model = $model;
        type Structure = $structure;
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
pub(crate) use common_items;

/// [`Tested::open`] of a structure whose handles have no options.
macro_rules! open {
    ($structure:ty) => {
        async fn open(ct: &farfield::ComputeThread) -> farfield::Result<$structure> {
            $crate::mutants::activate(BUG);
            let root = ct.root_or_init($crate::subject::ROOT, async || <$structure>::create(ct).await);
            <$structure>::attach(root.await?, ct).await
        }
    };
}
pub(crate) use open;

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
        impl<const BUG: usize> farfield_testing::Tested for $crate::subject::Soak<$set, BUG> {
            $crate::subject::common_items!($set, $crate::model::set::Set, $lock_free);
            $crate::subject::open!($set);
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
        impl<const BUG: usize> farfield_testing::Tested for $crate::subject::Soak<$stack, BUG> {
            $crate::subject::common_items!($stack, $crate::model::exchange::Stack, true);
            $crate::subject::open!($stack);
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
        impl<const BUG: usize> farfield_testing::Tested for $crate::subject::Soak<$queue, BUG> {
            $crate::subject::common_items!($queue, $crate::model::exchange::Queue, true);
            $crate::subject::open!($queue);
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

/// The item of a ring that stands for a value: of odd ones, a long one, whose halves are equal.
pub(crate) fn item_of(value: u64) -> u64 {
    if value.is_multiple_of(2) { value } else { value << 32 | value }
}

/// The value that an item of a ring stands for, or one that nothing stands for if its halves are of two items.
pub(crate) fn value_of(item: u64) -> u64 {
    let value = item & u64::from(u32::MAX);
    if item_of(value) == item { value } else { u64::MAX }
}

macro_rules! ring {
    ($ring:ty) => {
        impl<const BUG: usize> farfield_testing::Tested for $crate::subject::Soak<$ring, BUG> {
            $crate::subject::common_items!($ring, $crate::model::exchange::Bounded, true);
            async fn open(ct: &farfield::ComputeThread) -> farfield::Result<$ring> {
                const CAPACITY: u64 =
                    <$crate::model::exchange::FewFirst as $crate::model::exchange::Discipline>::MOST as u64;
                $crate::mutants::activate(BUG);
                let create = async || <$ring>::create(CAPACITY, ct).await;
                <$ring>::attach(ct.root_or_init($crate::subject::ROOT, create).await?, ct).await
            }
            async fn perform(
                ring: &$ring,
                operation: &$crate::model::exchange::Exchange,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<$crate::model::exchange::Reply> {
                match operation {
                    $crate::model::exchange::Exchange::Put(value) => {
                        Ok(if ring.try_push(&$crate::subject::item_of(*value), ct).await? {
                            $crate::model::exchange::Reply::Done
                        } else {
                            $crate::model::exchange::Reply::Full
                        })
                    }
                    $crate::model::exchange::Exchange::Take => {
                        let item = ring.try_pop(ct).await?;
                        Ok($crate::model::exchange::Reply::of(item.map($crate::subject::value_of)))
                    }
                }
            }
            async fn verify(ring: &$ring, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                ring.check(ct).await.map(drop)
            }
        }
    };
}
pub(crate) use ring;

macro_rules! priority_queue {
    ($queue:ty) => {
        impl<const BUG: usize> farfield_testing::Tested for $crate::subject::Soak<$queue, BUG> {
            $crate::subject::common_items!($queue, $crate::model::priority::PriorityQueue, true);
            async fn open(ct: &farfield::ComputeThread) -> farfield::Result<$queue> {
                $crate::mutants::activate(BUG);
                let root = ct.root_or_init($crate::subject::ROOT, async || <$queue>::create(ct).await);
                let queue = <$queue>::attach(root.await?, ct).await?;
                Ok(queue.with_cache($crate::map::cache_bytes(ct.index())))
            }
            async fn perform(
                queue: &$queue,
                request: &$crate::model::priority::Request,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<Option<(u64, u64)>> {
                use $crate::map::{Encoded, EncodedKey};
                use $crate::model::priority::Request;
                let first = match *request {
                    Request::Push(priority, value) => {
                        let (priority, value) = (u64::encode_key(priority), u64::encode(value));
                        return queue.push(priority, value, ct).await.map(|()| None);
                    }
                    Request::Pop => queue.pop_min(ct).await?,
                    Request::Peek => queue.peek(ct).await?,
                };
                Ok(first.map(|(priority, value)| (priority.decode_key(), value.decode())))
            }
            async fn recover(queue: &$queue, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                queue.recover(ct).await
            }
            async fn verify(queue: &$queue, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                let (items, counted) = (queue.check(ct).await?, queue.len(ct).await?);
                if items == counted {
                    return Ok(());
                }
                Err(farfield::Error::other(format!(
                    "the queue has {items} items, but its length is {counted}"
                )))
            }
        }
    };
}
pub(crate) use priority_queue;

impl<const BUG: usize> Tested for Soak<Register, BUG> {
    common_items!(Register, model::register::Register, false);
    open!(Register);
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

kv::store!(kv_with_small_pages::Store);
set!(LazyList<u64>, recover);
set!(LazyListNaive<u64>, recover);
lock_free_set!(HarrisList<u64>);
set!(HashSet, recover);
stack!(TreiberStack<u64>);
queue!(MsQueue<u64>);
ring!(Ring<u64>);
ring!(ring_of_mapped_memory::Ring<u64>);
map!(HashMap<u64, u64>, u64);
map!(hash_map_with_small_tables::HashMap<u64, u64>, u64);
map!(hash_map_with_small_tables::HashMap<Vec<u8>, Vec<u8>>, Vec<u8>);
ordered_map!(SkipList<u64, u64>, u64, forwards);
ordered_map!(tall_skip_list::SkipList<u64, u64>, u64, forwards);
ordered_map!(OrderedMap<u64, u64>, u64);
ordered_map!(small_ordered::OrderedMap<u64, u64>, u64);
ordered_map!(small_ordered::OrderedMap<Vec<u8>, Vec<u8>>, Vec<u8>);
priority_queue!(PriorityQueue<u64, u64>);
locking_map!(InlineHashMap<u64, u64>, u64);
locking_map!(small_inline::inline::InlineHashMap<u64, u64>, u64);
locking_map!(InterlockedHashTable<u64, u64>, u64);
locking_map!(small_interlocked::interlocked::InterlockedHashTable<u64, u64>, u64);
