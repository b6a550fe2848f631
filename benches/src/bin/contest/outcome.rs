//! What a run of the contest has measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::workload::Phase;

/// Significant digits of latencies.
const DIGITS: u8 = 3;

/// What an engine has done in all phases.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) phases: Vec<Measured>,
    /// The most bytes of local memory that the engine has counted.
    pub(crate) local_bytes: Option<u64>,
    pub(crate) fault: Option<String>,
}

/// What an engine has done in a phase.
pub(crate) struct Measured {
    pub(crate) phase: Phase,
    pub(crate) time: Duration,
    /// Nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Bytes of keys and values at its end.
    pub(crate) live_bytes: u64,
    /// Bytes of memory that they take.
    pub(crate) stored_bytes: u64,
    /// The part of the records that were found in local memory.
    pub(crate) hit_rate: Option<f64>,
}

impl Measured {
    /// Bytes of memory over bytes of keys and values.
    #[allow(clippy::cast_precision_loss)] // a ratio
    pub(crate) fn amplification(&self) -> f64 {
        self.stored_bytes as f64 / self.live_bytes as f64
    }
}

/// What the threads of a phase share.
#[derive(Default)]
pub(crate) struct Shared {
    latencies: Mutex<Option<Histogram<u64>>>,
    live_bytes: AtomicU64,
    fault: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an empty histogram of latencies.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("one to five digits are possible")
}

/// Records a latency, as that of so many requests.
pub(crate) fn record(latencies: &mut Histogram<u64>, latency: Duration, requests: u64) {
    let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    latencies.record_n(nanoseconds, requests).expect("its range grows");
}

impl Shared {
    /// Adds what a thread or a task has measured.
    pub(crate) fn add(&self, latencies: Histogram<u64>, live_bytes: u64) {
        self.live_bytes.fetch_add(live_bytes, Ordering::Relaxed);
        let mut all = locked(&self.latencies);
        match &mut *all {
            Some(all) => all.add(latencies).expect("its range grows"),
            None => *all = Some(latencies),
        }
    }

    /// Keeps the first fault.
    pub(crate) fn fault(&self, fault: String) {
        locked(&self.fault).get_or_insert(fault);
    }

    pub(crate) fn take_fault(&self) -> Option<String> {
        locked(&self.fault).take()
    }

    /// Returns the latencies of the phase, and the bytes of all keys and values.
    pub(crate) fn take(&self) -> (Histogram<u64>, u64) {
        let latencies = locked(&self.latencies).take().unwrap_or_else(latencies);
        (latencies, self.live_bytes.swap(0, Ordering::Relaxed))
    }
}
