//! The engine of `farfield-kv`.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use farfield::prelude::*;
use farfield::{Error, Result};
use farfield_kv::{Options, Stats, Store};
use indicatif::ProgressBar;

use crate::outcome::{Measured, Outcome, Shared, latencies, record};
use crate::workload::{self, Phase, Plan, Request, Worker};

/// The name of the store.
const STORE: &str = "contest";
/// The engine's own work for a request, which the simulator charges: about what one takes on `local:`.
const OWN_WORK: Duration = Duration::from_micros(1);
/// Requests between two looks at the local memory.
const REQUESTS_PER_LOOK: u64 = 256;

/// How the engine is run.
pub(crate) struct Setting<'a> {
    pub(crate) url: &'a str,
    pub(crate) threads: usize,
    pub(crate) tasks: usize,
    pub(crate) options: Options,
    pub(crate) is_encrypted: bool,
    pub(crate) phases: &'a [Phase],
    pub(crate) progress: &'a ProgressBar,
}

struct Run<'a> {
    setting: &'a Setting<'a>,
    plan: &'a Plan,
    store: OnceLock<Arc<Store>>,
    shared: Shared,
    most_local_bytes: AtomicU64,
    measured: Mutex<Vec<Measured>>,
}

/// Runs the phases on a new store.
pub(crate) fn run(setting: &Setting<'_>, plan: &Plan) -> Result<Outcome> {
    let run = Run {
        setting,
        plan,
        store: OnceLock::new(),
        shared: Shared::default(),
        most_local_bytes: AtomicU64::new(0),
        measured: Mutex::default(),
    };
    Cluster::connect(setting.url)?.run(setting.threads, async |ct| run.thread(ct).await)?;
    Ok(Outcome {
        phases: run.measured.into_inner().unwrap_or_else(PoisonError::into_inner),
        local_bytes: Some(run.most_local_bytes.into_inner()),
        fault: run.shared.take_fault(),
    })
}

impl Run<'_> {
    async fn thread(&self, ct: &ComputeThread) -> Result<()> {
        let mut owner = None;
        if ct.index() == 0 {
            let opened = Store::open(STORE, &self.setting.options, ct).await?;
            if opened.stats().records > 0 {
                return Err(Error::other("the cluster has the store of another run of the contest"));
            }
            let _ = self.store.set(opened.share());
            owner = Some(opened);
        }
        ct.barrier("opened").await?;
        let store = self.store.get().ok_or_else(|| Error::other("no store was opened"))?;
        let first = ct.index() * self.setting.tasks;
        let mut workers: Vec<Worker<'_>> =
            (first..first + self.setting.tasks).map(|index| Worker::new(self.plan, index as u64)).collect();
        for phase in self.setting.phases {
            workers = self.phase(*phase, workers, store, ct).await?;
        }
        self.check_all(workers, store, ct).await?;
        ct.barrier("checked").await?;
        match owner {
            Some(opened) => opened.destroy(ct).await,
            None => Ok(()),
        }
    }

    async fn phase<'a>(
        &self,
        phase: Phase,
        workers: Vec<Worker<'a>>,
        store: &Store,
        ct: &ComputeThread,
    ) -> Result<Vec<Worker<'a>>> {
        let before = store.stats();
        let workers: Vec<_> = workers.into_iter().map(|worker| Cell::new(Some(worker))).collect();
        ct.barrier("begun").await?;
        let began = ct.now();
        let workers = ct.tasks(workers.len(), async |task| {
            let mut worker = workers[task].take().ok_or_else(|| Error::other("a worker is missing"))?;
            worker.begin(phase);
            self.work(&mut worker, phase == Phase::Hot, store, ct).await?;
            Ok(worker)
        });
        let workers = workers.await?;
        ct.flush().await?;
        ct.barrier("ended").await?;
        if ct.index() == 0 {
            let time = ct.now().saturating_sub(began);
            let ((latencies, live_bytes), stats) = (self.shared.take(), store.stats());
            let measured = Measured {
                phase,
                time,
                latencies,
                live_bytes,
                stored_bytes: stats.far_bytes,
                hit_rate: hit_rate(before, stats),
            };
            self.measured.lock().unwrap_or_else(PoisonError::into_inner).push(measured);
        }
        ct.barrier("measured").await?;
        Ok(workers)
    }

    async fn work(
        &self,
        worker: &mut Worker<'_>,
        is_hot: bool,
        store: &Store,
        ct: &ComputeThread,
    ) -> Result<()> {
        let (mut latencies, mut requests) = (latencies(), 0_u64);
        // A request's time begins when the one before ends: so the clock is read once, and its time has that of making the request.
        let mut began = ct.now();
        // The next ones are known before one is carried out, as those are that a thread sends to a server at once.
        let (mut next, mut after) = (worker.next(), worker.next());
        let hint_of = |request: &Option<Request>| request.as_ref().map(|request| store.hint(request.key()));
        let mut hint = hint_of(&after);
        while let Some(request) = next {
            next = std::mem::replace(&mut after, worker.next());
            let hinted = std::mem::replace(&mut hint, hint_of(&after));
            // Only in the hot phase are records written that are there.
            if let (Some(next), Some(mut hint)) = (&next, hinted)
                && (is_hot || !matches!(next, Request::Write { .. }))
            {
                hint.look_up();
                hint.fetch(matches!(next, Request::Read { .. }), ct);
            }
            ct.compute(OWN_WORK);
            let answer = match &request {
                Request::Write { key, value } => {
                    store.write(key, value, self.setting.is_encrypted, ct).await?;
                    None
                }
                Request::Delete { key } => {
                    if !store.delete(key, ct).await? {
                        self.shared.fault("a record to delete was missing".to_owned());
                    }
                    None
                }
                Request::Read { key, .. } => store.read(key, ct).await?,
            };
            let ended = ct.now();
            record(&mut latencies, ended.saturating_sub(began), 1);
            began = ended;
            if let Request::Read { record, expected, .. } = request {
                workload::check(record, expected, answer.as_deref())
                    .unwrap_or_else(|fault| self.shared.fault(fault));
            }
            requests += 1;
            if requests.is_multiple_of(REQUESTS_PER_LOOK) {
                self.setting.progress.inc(REQUESTS_PER_LOOK);
                self.most_local_bytes.fetch_max(store.stats().local_bytes, Ordering::Relaxed);
            }
        }
        self.shared.add(latencies, worker.live_bytes);
        Ok(())
    }

    /// Reads all records.
    async fn check_all(&self, workers: Vec<Worker<'_>>, store: &Store, ct: &ComputeThread) -> Result<()> {
        ct.tasks(workers.len(), async |task| {
            for request in workers[task].all() {
                let Request::Read { key, record, expected } = request else { continue };
                let value = store.read(&key, ct).await?;
                workload::check(record, expected, value.as_deref())
                    .unwrap_or_else(|fault| self.shared.fault(fault));
            }
            Ok(())
        })
        .await
        .map(drop)
    }
}

/// The part of the records that were found in local memory, of those that were looked for between two times.
#[allow(clippy::cast_precision_loss)] // a ratio
fn hit_rate(before: Stats, after: Stats) -> Option<f64> {
    let hits = after.hits - before.hits;
    let misses = after.record_reads - before.record_reads;
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}
