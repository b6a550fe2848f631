//! Threads of this process: the compute threads of a run, and background threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{self, Error, Result};
use crate::stall::blocked;

/// The most compute threads of a process, of all its runs together.
///
/// A thread takes four mappings: its stack, the stack of its signal handler, and a guard page for each. By default Linux allows a process 65,530
/// mappings. If they run out, the system still starts a thread, but the thread aborts the process, because it gets no stack for its signal handler.
/// So the limit is half of what fits.
pub(super) const MAX_THREADS: usize = 8192;

/// The number of compute threads that this process has reserved.
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// A reservation of compute threads, until it is dropped.
pub struct ThreadReservation(usize);

impl ThreadReservation {
    /// # Errors
    /// [`Error::InvalidArgument`] if the process would have more than 8192.
    pub fn new(threads: usize) -> Result<Self> {
        let more = |reserved: usize| reserved.checked_add(threads).filter(|sum| *sum <= MAX_THREADS);
        match RESERVED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self(threads)),
            Err(_) => Err(Error::from(error::InvalidArgument {
                argument: "threads",
                value: threads.to_string().into(),
                reason: "a process has at most 8192 compute threads at a time",
            })),
        }
    }
}

impl Drop for ThreadReservation {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Runs `body(0)` to `body(threads - 1)`, each on a thread of its own, and returns their results in order.
///
/// # Errors
/// [`Error::System`] if the system starts no more threads. `missing` is called with the indices of the missing threads first, so that started threads
/// do not wait for them; then the started threads are joined.
///
/// # Panics
/// With the panic of the first thread, by index, that panicked.
pub fn run_threads<R: Send>(
    &ThreadReservation(threads): &ThreadReservation,
    body: impl Fn(usize) -> R + Sync,
    missing: impl FnOnce(std::ops::Range<usize>),
) -> Result<Vec<R>> {
    thread::scope(|scope| {
        let body = &body;
        let mut handles = Vec::with_capacity(threads);
        let mut refused = None;
        for index in 0..threads {
            let builder = thread::Builder::new().name(format!("compute-{index}"));
            match builder.spawn_scoped(scope, move || body(index)) {
                Ok(handle) => handles.push(handle),
                Err(cause) => {
                    missing(index..threads);
                    refused = Some(Error::from(error::System { action: "start a compute thread", cause }));
                    break;
                }
            }
        }
        let results: Vec<_> = handles.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let values =
            results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect();
        refused.map_or(Ok(values), Err)
    })
}

/// Returns the first line of a panic's message, so that an error with it is one line.
pub fn first_line(panic: Box<dyn Any + Send>) -> String {
    let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    let message = message.unwrap_or_else(|| "its payload is not text".to_owned());
    // A payload may panic when it is dropped.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    message.lines().next().unwrap_or_default().to_owned()
}

/// A background thread. Dropping this stops the thread and joins it.
pub struct BackgroundThread {
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

/// The signal that stops a background thread.
#[derive(Default)]
pub struct StopSignal {
    is_told: Mutex<bool>,
    told: Condvar,
}

impl StopSignal {
    /// Waits for a duration, or for the signal. Returns whether the thread must stop.
    pub fn wait(&self, duration: Duration) -> bool {
        let is_told = self.is_told.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(is_told, duration, |is_told| !*is_told);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl BackgroundThread {
    /// # Errors
    /// [`Error::System`] if the system starts no more threads.
    pub fn start(name: &str, body: impl FnOnce(&StopSignal) + Send + 'static) -> Result<Self> {
        let stop = Arc::new(StopSignal::default());
        let of_thread = Arc::clone(&stop);
        let started = thread::Builder::new().name(name.to_owned()).spawn(move || body(&of_thread));
        let failed = |cause| Error::from(error::System { action: "start a thread", cause });
        Ok(Self { stop, thread: Some(started.map_err(failed)?) })
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        *self.stop.is_told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.told.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            let _waiting = blocked(|| format!("the thread `{name}` to end"));
            // A panic has been printed by the thread itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_limit_of_compute_threads() {
        // Other tests of this process run at the same time, with a few threads.
        assert!(ThreadReservation::new(MAX_THREADS + 1).is_err());
        assert_eq!(
            ThreadReservation::new(usize::MAX).err().unwrap().to_string(),
            format!(
                "threads is {}: a process has at most {MAX_THREADS} compute threads at a time",
                usize::MAX
            )
        );
        let half = ThreadReservation::new(MAX_THREADS / 2 + 1).unwrap();
        assert!(ThreadReservation::new(MAX_THREADS / 2).is_err(), "of all runs together");
        drop(half);
        drop(ThreadReservation::new(MAX_THREADS / 2).unwrap());
    }
}
