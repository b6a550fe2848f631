//! A key-value store in the simulator: processes open it one after the other, and each may die at any moment.
//!
//! A store belongs to one process, whose threads share it; so its handles are not those of [`Tested`](farfield_testing::Tested), and this module runs its own program. Each compute node is a
//! process. Its first thread waits until it can open the store, shares it with the others, and closes it when all have ended. All threads operate on few keys.
//!
//! An operation is acknowledged when the WRITEs are over that it depends on: its own, and those of the operations whose results it may have seen. On the simulator as on every network, posted WRITEs
//! may be lost with their process.
//!
//! Checked are:
//!
//! - the history of each key is linearizable, over all processes: an operation that was not acknowledged may take effect as a whole, or not at all;
//! - the budget of local memory is kept at any time;
//! - when no operation runs, the figures of the store are those of its keys;
//! - no nonce is used by two records;
//! - of two live records of a key, which a process leaves that dies before it buries the older one, opening takes the younger one;
//! - when all keys are deleted, no page is left but those to which records are added; and the simulator finds no object that is not reachable.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use farfield::error::Error;
use farfield::prelude::*;
use farfield::sim::{Event, Happened, History};
use farfield_sim::Plant;
use farfield_testing::{
    AT_THE_END, Check, Faults, Found, Plan, Random, SEARCH_LIMIT, Scripted, Step, Verdict, check_within,
    execute, in_parallel, judge,
};

use crate::map::{Encoded, INVALID};
use crate::model::map::Keys;
use crate::model::store::{Answer, KeyValueStore, Request};
use crate::mutants;
use crate::soak::{Outcome, Soaked, options};

/// The name of the store's root.
pub(crate) const NAME: &str = "store";
/// How long a process waits for the one that has the store, in virtual time.
const PATIENCE: Duration = Duration::from_millis(100);
/// Virtual time of a run.
const LIMIT_MS: u64 = 2000;
/// The chains of an opening, or so.
const OPENING: u64 = 15;
/// Pause between two looks at what another thread of the process has done.
const LOOK: Duration = Duration::from_nanos(500);
/// Number of attempts of the final thread to open the store, while a link is cut.
const ATTEMPTS: usize = 100;

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Compute threads of the process.
    pub threads: usize,
    /// Bytes of local memory beyond the least.
    pub more_bytes: usize,
    /// See `Options`.
    pub far_bytes: u64,
    /// See `Options`.
    pub rebuild_percent: u32,
    /// See `Options`.
    pub patience: Duration,
}

/// The figures of a store that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Keys.
    pub records: u64,
    /// Bytes of their records.
    pub live_bytes: u64,
    /// Pages.
    pub pages: u64,
    /// Bytes of local memory.
    pub local_bytes: u64,
}

/// A store: the engine's, or a copy of its source.
#[allow(async_fn_in_trait)] // its futures stay on their compute thread
pub trait KeyValue: Send + Sync + Sized + 'static {
    /// A store that a thread has opened.
    type Opened<'ct>: Deref<Target = Self>;
    /// The most bytes of a value.
    const MOST_VALUE_BYTES: usize;
    /// The bytes of a page's copy in local memory.
    const COPY_BYTES: usize;

    /// Returns the budget of local memory.
    fn budget(setting: &Setting) -> usize;
    /// Opens the store.
    async fn open<'ct>(setting: &Setting, ct: &'ct ComputeThread) -> Result<Self::Opened<'ct>>;
    /// Returns the store for the other threads of the process.
    fn share(opened: &Self::Opened<'_>) -> Arc<Self>;
    /// Performs an operation.
    async fn perform(&self, request: Request, ct: &ComputeThread) -> Result<Answer>;
    /// Waits for the WRITEs of this thread.
    async fn flush(&self, ct: &ComputeThread) -> Result<()>;
    /// Returns the figures of the store.
    fn figures(&self) -> Figures;
    /// Returns the words after the heads of all encrypted records in far memory. Records that a rebuild has moved occur twice.
    async fn encrypted(&self, ct: &ComputeThread) -> Result<Vec<Vec<u64>>>;
    /// Makes the last dead record of each key live again in far memory, if a live record of the key is younger: as it is if the process dies before the burial. Returns how many there were.
    async fn revive(&self, ct: &ComputeThread) -> Result<usize>;
}

/// Implements [`KeyValue`] for the store of a module.
macro_rules! store {
    (farfield_kv::Store) => {
        $crate::kv::store!(farfield_kv, 16 << 10, async |_, _| Ok(vec![]), async |_, _| Ok(0));
    };
    ($module:ident::Store) => {
        $crate::kv::store!(
            $module,
            $module::pages::COPY_BYTES,
            async |store: &$module::Store, ct: &farfield::ComputeThread| {
                use farfield::op;
                let (g, mut found) = (&ct.pin(), Vec::new());
                let all = 0..store.most_pages();
                for link in g.chain(op::load_range(store.root.pages(), all)).submit().await? {
                    if link.is_null() {
                        continue;
                    }
                    let all = 0..$module::pages::PAGE_WORDS as u64;
                    let words = g.chain(op::load_range(link.as_ptr().words(), all)).submit().await?;
                    let records = $module::store::records(&words).map(|(_, record)| record);
                    let is_encrypted = |record: &&[u64]| {
                        $module::record::is_whole(record)
                            && $module::record::Head::of_word(record[0])
                                .is_some_and(|head| head.is_encrypted())
                    };
                    found.extend(records.filter(is_encrypted).map(|record| record[1..].to_vec()));
                }
                Ok(found)
            },
            async |store: &$module::Store, ct: &farfield::ComputeThread| {
                use farfield::op;
                let g = &ct.pin();
                let all = 0..store.most_pages();
                // The youngest record of each key and state: its age, its page, and its first word.
                let mut youngest = std::collections::BTreeMap::new();
                for link in g.chain(op::load_range(store.root.pages(), all)).submit().await? {
                    if link.is_null() {
                        continue;
                    }
                    let (page, all) = (link.as_ptr(), 0..$module::pages::PAGE_WORDS as u64);
                    let read = (op::load(page.sequence()), op::load_range(page.words(), all));
                    let (sequence, words) = g.chain(read).submit().await?;
                    let records = $module::store::records(&words);
                    for (first, record) in records.take_while(|(_, record)| $module::record::is_whole(record))
                    {
                        let key = $module::record::decode(record, false, store.cipher.as_ref())?.key;
                        let is_live =
                            $module::record::Head::of_word(record[0]).is_some_and(|head| head.is_live());
                        let new = ((sequence, first), page, record[0]);
                        let known = youngest.entry((key, is_live)).or_insert(new);
                        if known.0 < new.0 {
                            *known = new;
                        }
                    }
                }
                let mut revived = 0;
                for ((key, is_live), ((sequence, first), page, word)) in &youngest {
                    let live = youngest.get(&(*key, true)).filter(|_| !is_live);
                    if let Some((age, _, head)) = live
                        && *age > (*sequence, *first)
                    {
                        // The state is the lowest byte of the first word.
                        let word = word & !0xff | head & 0xff;
                        g.chain(op::store(page.words().at(*first as u64), word)).submit().await?;
                        revived += 1;
                    }
                }
                Ok(revived)
            }
        );
    };
    ($module:ident, $copy_bytes:expr, $encrypted:expr, $revive:expr) => {
        impl $crate::kv::KeyValue for $module::Store {
            type Opened<'ct> = $module::Opened<'ct>;
            const MOST_VALUE_BYTES: usize = $module::MOST_VALUE_BYTES;
            const COPY_BYTES: usize = $copy_bytes;

            fn budget(setting: &$crate::kv::Setting) -> usize {
                let options = $module::Options::new(0, setting.far_bytes);
                options.least_local_bytes($crate::kv::NAME, setting.threads) + setting.more_bytes
            }

            async fn open<'ct>(
                setting: &$crate::kv::Setting,
                ct: &'ct farfield::ComputeThread,
            ) -> farfield::Result<$module::Opened<'ct>> {
                let budget = <Self as $crate::kv::KeyValue>::budget(setting);
                let mut options = $module::Options::new(budget, setting.far_bytes).with_key([7; 32]);
                options.rebuild_percent = setting.rebuild_percent;
                options.patience = setting.patience;
                $module::Store::open($crate::kv::NAME, &options, ct).await
            }

            fn share(opened: &$module::Opened<'_>) -> std::sync::Arc<Self> {
                opened.share()
            }

            async fn perform(
                &self,
                request: $crate::model::store::Request,
                ct: &farfield::ComputeThread,
            ) -> farfield::Result<$crate::model::store::Answer> {
                use $crate::kv::{decoded, is_encrypted, key, value};
                use $crate::model::store::{Answer, Request};
                let of = |number| value(number, Self::MOST_VALUE_BYTES);
                let decode =
                    |value: Option<Vec<u8>>| value.map(|value| decoded(&value, Self::MOST_VALUE_BYTES));
                Ok(match request {
                    Request::Read(number) => Answer::Value(decode(self.read(&key(number), ct).await?)),
                    Request::Write(number, new) => {
                        self.write(&key(number), &of(new), is_encrypted(new), ct).await?;
                        Answer::Done
                    }
                    Request::Update(number, new) => {
                        Answer::Flag(self.update(&key(number), &of(new), is_encrypted(new), ct).await?)
                    }
                    Request::Delete(number) => Answer::Flag(self.delete(&key(number), ct).await?),
                    Request::GetMany(numbers) => {
                        let keys: Vec<[u8; 16]> = numbers.all().map(key).collect();
                        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                        Answer::Values(self.get_many(&keys, ct).await?.into_iter().map(decode).collect())
                    }
                    Request::Rebuild(percent) => {
                        self.rebuild(percent, ct).await?;
                        Answer::Done
                    }
                })
            }

            async fn flush(&self, ct: &farfield::ComputeThread) -> farfield::Result<()> {
                $module::Store::flush(self, ct).await
            }

            fn figures(&self) -> $crate::kv::Figures {
                let stats = self.stats();
                $crate::kv::Figures {
                    records: stats.records,
                    live_bytes: stats.live_bytes,
                    pages: stats.pages,
                    local_bytes: stats.local_bytes,
                }
            }

            async fn encrypted(&self, ct: &farfield::ComputeThread) -> farfield::Result<Vec<Vec<u64>>> {
                ($encrypted)(self, ct).await
            }

            async fn revive(&self, ct: &farfield::ComputeThread) -> farfield::Result<usize> {
                ($revive)(self, ct).await
            }
        }
    };
}
pub(crate) use store;

store!(farfield_kv::Store);

// ---- keys and values -----------------------------------------------------------------------------------------------

/// The key of a number.
pub(crate) fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&u64::encode(number).to_le_bytes());
    key[8..].copy_from_slice(&u64::encode(!number).to_le_bytes());
    key
}

/// The bytes of a number's value: few in most cases.
fn value_bytes(number: u64, most: usize) -> usize {
    [8, most / 16, most / 8, most / 4, most][(number % 5) as usize]
}

/// The value of a number: the number, repeated.
pub(crate) fn value(number: u64, most: usize) -> Vec<u8> {
    u64::encode(number).to_le_bytes().into_iter().cycle().take(value_bytes(number, most)).collect()
}

/// The number of a value; [`INVALID`] if it has none.
pub(crate) fn decoded(bytes: &[u8], most: usize) -> u64 {
    let number = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes).decode());
    number.filter(|number| value(*number, most) == bytes).unwrap_or(INVALID)
}

/// Returns whether the value of a number is encrypted.
pub(crate) fn is_encrypted(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// The bytes of a record, as the crate's documentation says.
fn record_bytes(number: u64, most: usize) -> u64 {
    let more = if is_encrypted(number) { 32 } else { 0 };
    8 + (16 + value_bytes(number, most) as u64 + more).next_multiple_of(8)
}

// ---- the plan ------------------------------------------------------------------------------------------------------

/// The plan of a seed. Node 0 opens the store last, and does not die.
fn plan(seed: u64, faults: Faults, plant: Plant) -> Plan<Request> {
    let mut plan = Plan::draw(seed, faults, draw);
    let mut random = Random::new(!seed);
    let random = &mut random;
    let processes = if faults == Faults::Injected { random.range(2..4) } else { random.range(1..4) };
    plan.threads_per_node = random.range(1..4);
    // With few keys, histories of more tasks are hard to check.
    let tasks = match keys(&Random::new(!seed)) {
        1 => 1,
        2..=3 => random.range(1..3),
        _ => random.range(1..5),
    };
    let steps = random.one_of(&[4, 12, 24]) / tasks.min(2);
    // WRITEs of one process overtake each other on the way to different memory nodes, most of all if one is slow or has much to do.
    plan.nodes = random.one_of(&[1, 2, 2, 2]);
    plan.slow_percent = random.one_of(&[0, 40, 40]);
    if random.percent(60) {
        plan.rate_million = Some(1);
    }
    let mut task = || (0..steps).map(|_| step(random)).collect();
    let mut thread = || (0..tasks).map(|_| task()).collect();
    plan.threads = (0..processes * plan.threads_per_node).map(|_| thread()).collect();
    plan.crash_permille = 0;
    plan.script = Vec::new();
    if faults == Faults::Injected {
        for compute in 1..processes as usize {
            if random.percent(95) {
                let most = random.one_of(&[40, 100, 300]);
                let after_chains = OPENING + random.range(0..most) - random.range(0..OPENING);
                plan.script.push(Scripted::Crash { compute, after_chains });
            }
        }
    }
    // A link that is cut while memory is short loses what is just given back: it must not be short then.
    plan.size_kib = if plan.cut_permille > 0 { 16 << 10 } else { 2 << 10 };
    (plan.limit_ms, plan.recovers_first) = (LIMIT_MS, false);
    plan.options = options(plant);
    plan
}

/// The keys of a plan: few in most, so that tasks compete for them. In others they need more pages than there is local memory for.
fn keys(random: &Random) -> u64 {
    [1, 2, 3, 6, 40][random.once("keys", 0..5) as usize]
}

fn draw(random: &mut Random) -> Request {
    let keys = keys(random);
    let key = random.range(0..keys);
    let [reads, deletes, rebuilds] =
        [[20, 15, 5], [40, 5, 1], [10, 10, 15]][random.once("mix", 0..3) as usize];
    match random.range(0..100) {
        percent if percent < reads => Request::Read(key),
        percent if percent < reads + 5 => {
            Request::GetMany(Keys { first: key, count: random.range(1..keys - key + 1) })
        }
        percent if percent < reads + 5 + deletes => Request::Delete(key),
        percent if percent < reads + 5 + deletes + rebuilds => Request::Rebuild(random.range(1..101)),
        percent if percent < 80 => Request::Write(key, random.fresh()),
        _ => Request::Update(key, random.fresh()),
    }
}

fn step(random: &mut Random) -> Step<Request> {
    let pause = if random.percent(20) { Duration::from_nanos(random.range(0..6000)) } else { Duration::ZERO };
    Step { pause, operation: draw(random), reclaims: random.percent(90) }
}

/// How the store of a plan is opened by a run of so many threads. There is room for few copies besides those of the pages that are filled.
fn setting<S: KeyValue>(plan: &Plan<Request>, threads: usize) -> Setting {
    let random = Random::new(plan.seed);
    let more = random.once("more", 0..5);
    let pages = 3 * plan.threads.len() as u64 + 1 + if is_tight(plan) { 4 * more } else { 100 };
    let more_copies = more as usize * S::COPY_BYTES;
    Setting {
        threads,
        more_bytes: if is_tight(plan) { more_copies * 2 / 3 } else { more_copies + (16 << 10) },
        far_bytes: pages * S::COPY_BYTES as u64,
        rebuild_percent: [0, 12, 100][random.once("rebuilds", 0..3) as usize],
        patience: PATIENCE,
    }
}

/// Returns whether the store of a plan has so little room that it refuses some writes.
fn is_tight(plan: &Plan<Request>) -> bool {
    Random::new(plan.seed).once("tight", 0..2) == 0
}

// ---- the program ---------------------------------------------------------------------------------------------------

/// What an operation of a process has become.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Its WRITEs may not be over.
    Running,
    /// They are.
    Durable,
    /// One of them may have failed.
    Lost,
}

/// An operation of a process. It is lost unless it is said to be durable.
struct Running<'a, S> {
    process: &'a Process<S>,
    number: usize,
}

impl<'a, S> Running<'a, S> {
    fn begins(process: &'a Process<S>) -> Self {
        let number = process.progress(|all| {
            all.push(Progress::Running);
            all.len() - 1
        });
        Self { process, number }
    }

    fn is_durable(&self) {
        self.process.progress(|all| all[self.number] = Progress::Durable);
    }
}

impl<S> Drop for Running<'_, S> {
    fn drop(&mut self) {
        self.process.progress(|all| {
            if all[self.number] == Progress::Running {
                all[self.number] = Progress::Lost;
            }
        });
    }
}

/// A process that opens the store, as its threads see it.
struct Process<S> {
    store: OnceLock<Arc<S>>,
    /// True if the store could not be opened.
    is_refused: AtomicBool,
    /// Threads that have ended.
    ended: AtomicUsize,
    progress: Mutex<Vec<Progress>>,
}

impl<S> Default for Process<S> {
    fn default() -> Self {
        Self {
            store: OnceLock::new(),
            is_refused: AtomicBool::new(false),
            ended: AtomicUsize::new(0),
            progress: Mutex::default(),
        }
    }
}

impl<S> Process<S> {
    fn progress<R>(&self, change: impl FnOnce(&mut Vec<Progress>) -> R) -> R {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The context of a run's threads.
struct Run<'a, S> {
    plan: &'a Plan<Request>,
    setting: Setting,
    history: &'a History<Request, Answer>,
    processes: &'a [Process<S>],
    counts: &'a Counts,
}

/// What a run has done.
#[derive(Default)]
struct Counts {
    /// Operations that began.
    operations: AtomicU64,
    /// Operations of which a READ or a WRITE failed.
    failed: AtomicU64,
}

fn error(message: String) -> Error {
    Error::other(message)
}

/// An error of an operation that takes no effect, since there is no room.
fn is_refusal(error: &Error) -> bool {
    let text = error.to_string();
    text.contains("is exhausted") || text.contains("is full")
}

/// What the store says when it can not be used any more.
const OPEN_AGAIN: &str = "open the store again";

/// An error after which the process can not use the store any more.
fn is_failed(error: &Error) -> bool {
    error.to_string().contains(OPEN_AGAIN)
}

impl<S: KeyValue> Run<'_, S> {
    /// Performs and records an operation. Returns `None` if its outcome is unknown.
    async fn perform(
        &self,
        store: &S,
        process: &Process<S>,
        request: Request,
        ct: &ComputeThread,
    ) -> Result<Option<Answer>> {
        self.counts.operations.fetch_add(1, Ordering::Relaxed);
        let performed = self.history.record(ct, request, async || {
            let running = Running::begins(process);
            let answer = store.perform(request, ct).await;
            self.check_budget(store)?;
            let answer = match answer {
                Err(error) if is_tight(self.plan) && is_refusal(&error) => Ok(Answer::Refused),
                answer => answer,
            };
            // Without deaths, WRITEs need not be over.
            if !self.plan.may_fail() {
                return answer;
            }
            let seen = process.progress(|all| all.len());
            store.flush(ct).await?;
            running.is_durable();
            let answer = answer?;
            while process.progress(|all| all[..seen].contains(&Progress::Running)) {
                ct.sleep(LOOK).await;
            }
            if process.progress(|all| all[..seen].contains(&Progress::Lost)) {
                return Err(error(format!("an operation was lost: {OPEN_AGAIN}")));
            }
            Ok(answer)
        });
        match performed.await {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::NodeUnreachable(_)) if self.plan.may_fail() => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => {
                self.counts.failed.fetch_add(is_failed(&error).into(), Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn keys(&self) -> u64 {
        keys(&Random::new(!self.plan.seed))
    }

    fn check_budget(&self, store: &S) -> Result<()> {
        let (used, budget) = (store.figures().local_bytes, S::budget(&self.setting));
        if used <= budget as u64 {
            return Ok(());
        }
        Err(error(format!("{used} bytes of local memory are used, and the budget is {budget}")))
    }

    /// Compares the figures with the values of all keys, and the nonces with each other. No operation runs.
    async fn check_contents(&self, store: &S, process: &Process<S>, ct: &ComputeThread) -> Result<()> {
        let (mut records, mut live_bytes) = (0, 0);
        for key in 0..self.keys() {
            match self.perform(store, process, Request::Read(key), ct).await? {
                Some(Answer::Value(Some(value))) => {
                    records += 1;
                    live_bytes += record_bytes(value, S::MOST_VALUE_BYTES);
                }
                Some(_) => {}
                None => return Ok(()),
            }
        }
        let figures = store.figures();
        if (figures.records, figures.live_bytes) != (records, live_bytes) {
            return Err(error(format!(
                "{records} keys have {live_bytes} bytes, and the store says {figures:?}"
            )));
        }
        check_nonces(&store.encrypted(ct).await?)
    }
}

/// Checks that no two different records have the same key and nonce.
fn check_nonces(records: &[Vec<u64>]) -> Result<()> {
    let mut known: HashMap<&[u64], &[u64]> = HashMap::new();
    for record in records {
        let (nonce, rest) = record.split_at(2);
        if known.insert(nonce, rest).is_some_and(|other| other != rest) {
            return Err(error(format!("two records have the nonce {nonce:x?}")));
        }
    }
    Ok(())
}

/// What one thread does.
async fn work<S: KeyValue>(ct: &ComputeThread, run: &Run<'_, S>) -> Result<()> {
    let threads = run.plan.threads_per_node as usize;
    let number = ct.index() / threads;
    let process = &run.processes[number];
    let opened = if ct.index().is_multiple_of(threads) {
        // Later processes come first.
        ct.sleep(Duration::from_micros(3) * (run.processes.len() - 1 - number) as u32).await;
        let opened = S::open(&run.setting, ct).await;
        if let Ok(opened) = &opened {
            run.check_budget(opened)?;
        }
        match &opened {
            Ok(opened) => drop(process.store.set(S::share(opened))),
            Err(_) => process.is_refused.store(true, Ordering::Relaxed),
        }
        match opened {
            Err(error) if run.plan.may_lose_locks() && error.to_string().contains("another process") => {
                return Ok(());
            }
            opened => Some(opened?),
        }
    } else {
        None
    };
    let store = loop {
        if let Some(store) = process.store.get() {
            break &**store;
        }
        if process.is_refused.load(Ordering::Relaxed) {
            return Ok(());
        }
        ct.sleep(10 * LOOK).await;
    };
    let worked = operate(ct, store, process, run).await;
    process.ended.fetch_add(1, Ordering::Relaxed);
    let has_failed = match worked {
        Err(error) if run.plan.may_fail() && is_failed(&error) => true,
        worked => {
            worked?;
            false
        }
    };
    let Some(_opened) = opened else { return Ok(()) };
    while process.ended.load(Ordering::Relaxed) < threads {
        ct.sleep(LOOK).await;
    }
    match run.check_contents(store, process, ct).await {
        Err(error) if run.plan.may_fail() && (has_failed || is_failed(&error)) => Ok(()),
        Err(Error::NodeUnreachable(_)) if run.plan.may_fail() => Ok(()),
        checked => checked,
    }
}

/// Performs the operations of a thread.
async fn operate<S: KeyValue>(
    ct: &ComputeThread,
    store: &S,
    process: &Process<S>,
    run: &Run<'_, S>,
) -> Result<()> {
    let tasks = &run.plan.threads[ct.index()];
    let worked = ct.tasks(tasks.len(), async |task| {
        for step in &tasks[task] {
            if !step.pause.is_zero() {
                ct.sleep(step.pause).await;
            }
            run.perform(store, process, step.operation, ct).await?;
            if step.reclaims {
                ct.try_reclaim().await;
            }
        }
        Ok(())
    });
    worked.await?;
    // The next process must find them.
    store.flush(ct).await
}

/// What the last process does each time when it opens the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// It writes all keys, and dies before their old records are buried.
    Writes,
    /// It deletes them.
    Deletes,
    /// It finds none.
    Finds,
}

/// Opens the store when all processes have ended, checks it, writes all keys, deletes them, and checks it again. Begins anew if a link was cut, since links heal.
async fn finish<S: KeyValue>(ct: &ComputeThread, run: &Run<'_, S>) -> Result<()> {
    let mut last = Last::Writes;
    for _ in 0..ATTEMPTS {
        match finish_once(ct, run, last).await {
            Ok(()) => match last {
                Last::Writes => last = Last::Deletes,
                Last::Deletes => last = Last::Finds,
                Last::Finds => return Ok(()),
            },
            Err(Error::NodeUnreachable(_)) if run.plan.may_lose_locks() => {}
            Err(error) if run.plan.may_lose_locks() && is_failed(&error) => {}
            // The release of a lock was lost.
            Err(error) if run.plan.may_lose_locks() && error.to_string().contains("another process") => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn finish_once<S: KeyValue>(ct: &ComputeThread, run: &Run<'_, S>, last: Last) -> Result<()> {
    let opened = S::open(&run.setting, ct).await?;
    let (store, process) = (&*opened, &Process::default());
    run.check_budget(store)?;
    run.check_contents(store, process, ct).await?;
    if last == Last::Writes {
        for key in 0..run.keys() {
            run.perform(store, process, Request::Write(key, LAST_VALUE), ct).await?;
        }
        run.check_contents(store, process, ct).await?;
        store.flush(ct).await?;
        store.revive(ct).await?;
        return Ok(());
    }
    for key in 0..run.keys() {
        run.perform(store, process, Request::Delete(key), ct).await?;
    }
    run.perform(store, process, Request::Rebuild(1), ct).await?;
    store.flush(ct).await?;
    let figures = store.figures();
    if (figures.records, figures.live_bytes) != (0, 0) || figures.pages > 2 {
        return Err(error(format!("all keys were deleted, and the store says {figures:?}")));
    }
    Ok(())
}

/// The value that all keys have in the end. No client writes it.
const LAST_VALUE: u64 = 0;

/// Runs one seed.
pub(crate) fn run<S: KeyValue, const BUG: usize>(seed: u64, faults: Faults, plant: Plant) -> Outcome {
    let plan = plan(seed, faults, plant);
    let (history, final_history) = (History::new(), History::new());
    let counts = Counts::default();
    let (mut found, simulation) = execute(&plan, false, |cluster| {
        run_processes::<S, BUG>(cluster, &plan, &history, &final_history, &counts)
    });
    let final_events =
        final_history.into_events().into_iter().map(|event| Event { client: AT_THE_END, ..event });
    let history: Vec<_> = history.into_events().into_iter().chain(final_events).collect();
    let mut undecided = vec![];
    if counts.failed.load(Ordering::Relaxed) > 0 {
        // A link that is cut may lose a WRITE and execute later ones, as no reliable connection does: then what was acknowledged may be lost.
        let answers = history.iter().filter_map(|event| match &event.happened {
            Happened::Returned(answer) => Some(answer),
            Happened::Invoked(_) => None,
        });
        if answers.into_iter().any(is_wrong) {
            let message = "a value was read that no operation has written".to_owned();
            found.push(Found { by: Check::Linearizability, message });
        }
    } else {
        match check_within::<KeyValueStore>(&history, SEARCH_LIMIT) {
            Verdict::Explained => {}
            Verdict::Undecided(parts) => undecided = parts,
            Verdict::Refuted(contradiction) => {
                found.push(Found { by: Check::Linearizability, message: contradiction.to_string() });
            }
        }
    }
    let shown = plan.show(<KeyValueStore as farfield_testing::Model>::show);
    let operations = counts.operations.into_inner() as usize;
    Outcome { found, undecided, operations, plan: shown, simulation }
}

/// Returns whether an answer has a value that is none.
fn is_wrong(answer: &Answer) -> bool {
    match answer {
        Answer::Value(value) => *value == Some(INVALID),
        Answer::Values(values) => values.contains(&Some(INVALID)),
        Answer::Done | Answer::Flag(_) | Answer::Refused => false,
    }
}

/// Runs the processes, and then one that finds what they have left.
fn run_processes<S: KeyValue, const BUG: usize>(
    cluster: &Cluster,
    plan: &Plan<Request>,
    history: &History<Request, Answer>,
    final_history: &History<Request, Answer>,
    counts: &Counts,
) -> Result<()> {
    let threads = plan.threads.len();
    let processes: Vec<Process<S>> =
        (0..threads / plan.threads_per_node as usize).map(|_| Process::default()).collect();
    let run = Run { plan, setting: setting::<S>(plan, threads), history, processes: &processes, counts };
    let work = async |ct: &ComputeThread| {
        mutants::activate(BUG);
        work(ct, &run).await
    };
    match cluster.run_surviving(threads, work) {
        Err(error) if judge(plan, false, &error).is_some() => return Err(error),
        _ => {}
    }
    let run = Run { history: final_history, setting: setting::<S>(plan, 1), ..run };
    let finish = async |ct: &ComputeThread| {
        mutants::activate(BUG);
        finish(ct, &run).await
    };
    cluster.run_surviving(1, finish).map(drop)
}

/// Runs many seeds.
pub(crate) fn soak<S: KeyValue, const BUG: usize>(
    seeds: std::ops::Range<u64>,
    faults: Faults,
    jobs: usize,
    plant: Plant,
) -> Soaked {
    let count = (seeds.end - seeds.start) as usize;
    let runs = in_parallel(jobs, count, |index| {
        let outcome = run::<S, BUG>(seeds.start + index as u64, faults, plant);
        (outcome.operations, !outcome.undecided.is_empty(), outcome.found)
    });
    let mut soaked = Soaked { operations: 0, undecided: vec![], failing: vec![], smallest: None };
    for (seed, (operations, is_undecided, found)) in seeds.zip(runs) {
        soaked.operations += operations;
        soaked.undecided.extend(is_undecided.then_some(seed));
        soaked.failing.extend((!found.is_empty()).then_some((seed, found)));
    }
    soaked
}
