//! Runs: the loop that polls compute threads as their completions arrive.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::SharedWorld;
use super::events::Event;
use super::world::{ComputeNode, MANY_THREADS, RunState, Thread, ThreadState, World};
use crate::config::duration;
use farfield_fabric::error::{self, Error, Result};

/// How a simulated thread ended.
pub enum ThreadOutcome<R> {
    /// Its future returned this.
    Returned(R),
    /// A fault killed its compute node.
    Died,
}

/// The future of a compute thread.
pub type ThreadFuture<'a, R> = Pin<Box<dyn Future<Output = R> + 'a>>;

/// The program of a run: its threads' futures, and its reaction to deaths.
pub trait Body {
    /// The output of a thread.
    type Output;
    /// Makes the future of a thread.
    fn start(&self, thread: usize) -> ThreadFuture<'_, Self::Output>;
    /// Returns whether a thread's output is a failure.
    fn failed(output: &Self::Output) -> bool;
    /// Called when a fault has killed a thread, so that no other thread waits for it.
    fn died(&self, thread: usize);
}

/// Runs `threads` compute threads to their ends, in virtual time.
///
/// # Errors
/// [`Error::Simulation`] with the run's first finding. [`Error::InvalidArgument`] if another run is under way: concurrent runs would depend on the
/// system's scheduler.
///
/// # Panics
/// With the panic of a thread; the other threads are not polled again.
pub fn simulate<B: Body>(
    world: &SharedWorld,
    threads: usize,
    first_id: u64,
    body: &B,
) -> Result<Vec<ThreadOutcome<B::Output>>> {
    world.lock().begin(threads, first_id)?;
    let mut futures: Vec<Option<ThreadFuture<'_, B::Output>>> = Vec::new();
    futures.resize_with(threads, || None);
    let mut outcomes: Vec<ThreadOutcome<B::Output>> = Vec::new();
    outcomes.resize_with(threads, || ThreadOutcome::Died);
    let mut context = Context::from_waker(Waker::noop());
    let mut panicked = None;
    let watched = world.lock().stalls.clone();
    loop {
        let (next, died, stalled) = {
            let mut world = world.lock();
            (world.advance(), std::mem::take(&mut world.died), world.stalled.take())
        };
        if let (Some(watched), Some(stalled)) = (&watched, stalled) {
            watched.report(&stalled);
        }
        for thread in died {
            body.died(thread as usize);
        }
        let Some(thread) = next else { break };
        let thread = thread as usize;
        if let Some(watched) = &watched {
            watched.set_polled_thread(thread as u32, duration(world.lock().now()));
        }
        let future = futures[thread].get_or_insert_with(|| body.start(thread));
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context))) {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(output)) => {
                // Dropped before it counts as ended, so that its destructors run at this moment of virtual time.
                futures[thread] = None;
                world.lock().ended(thread as u32, B::failed(&output));
                outcomes[thread] = ThreadOutcome::Returned(output);
            }
            Err(panic) => {
                panicked = Some(panic);
                break;
            }
        }
    }
    if let Some(watched) = &watched {
        watched.run_ended();
    }
    {
        let mut world = world.lock();
        if panicked.is_some() || world.books.finding().is_some() {
            world.run_state = RunState::Abandoning;
            world.books.trace.freeze();
        }
    }
    // Drops the futures of dead threads and of abandoned runs. What their destructors post takes no effect.
    futures.clear();
    world.lock().end();
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
    match world.lock().books.finding() {
        Some(finding) => Err(finding),
        None => Ok(outcomes),
    }
}

impl World {
    fn begin(&mut self, threads: usize, first_id: u64) -> Result<()> {
        if self.run_state.is_running() {
            let reason = "a simulated cluster has one run at a time";
            let value = "a second `run`".into();
            return Err(Error::from(error::InvalidArgument { argument: "run", value, reason }));
        }
        if let Some(finding) = self.books.finding() {
            return Err(finding);
        }
        self.threads.clear();
        self.threads.resize_with(threads, Thread::default);
        let compute_nodes = threads.div_ceil(self.config.threads_per_node as usize);
        self.compute_nodes.clear();
        self.compute_nodes.resize(compute_nodes, ComputeNode::default());
        self.books.first_id = first_id;
        self.books.run_begins(self.now);
        self.monitor.begin(self.now);
        self.run_state = RunState::Running;
        self.unfinished = threads;
        self.fetches_ahead = threads >= MANY_THREADS;
        self.schedule_script();
        for thread in 0..threads {
            self.events.push(self.now, Event::Start(thread as u32));
        }
        Ok(())
    }

    /// Advances time until a thread is to be polled. Returns `None` if the run is over.
    fn advance(&mut self) -> Option<u32> {
        self.check_progress_if_due();
        loop {
            if self.books.finding().is_some() {
                return None;
            }
            let running = self.unfinished > 0;
            let Some((at, event)) = self.events.pop() else {
                if running {
                    self.report_deadlock();
                }
                return None;
            };
            if at >= self.look_for_stalls_at {
                self.look_for_stalls(at);
            }
            if !running {
                // Posted chains take effect; faults that are not due yet stay for the next run.
                if !matches!(event, Event::Fault(_)) {
                    self.handle_event(at, event);
                }
                continue;
            }
            if at > self.monitor.give_up_at {
                self.report_out_of_time();
                return None;
            }
            let next = self.handle_event(at, event);
            self.announce_deaths();
            if let Some(thread) = next {
                self.threads[thread as usize].has_changes = false;
                self.polled = next;
                return next;
            }
        }
    }

    fn ended(&mut self, thread: u32, failed: bool) {
        let now = self.now;
        let ended = &mut self.threads[thread as usize];
        if ended.state == ThreadState::Running {
            ended.state = ThreadState::Ended;
            self.unfinished -= 1;
            self.hosted.end_of_thread(thread);
        }
        self.books.ended(thread, now, failed);
        if failed {
            self.books.trace.freeze();
        }
    }

    fn end(&mut self) {
        self.finish_work();
        self.polled = None;
        self.events.clear();
        self.memory_nodes.iter_mut().for_each(|memory| memory.queue.clear());
        self.hosted.clear();
        self.memory_nodes.truncate(self.geometry.nodes().into());
        self.cuts.clear();
        self.dying.clear();
        self.run_state = if self.run_state.is_abandoned() { RunState::Abandoned } else { RunState::Idle };
        self.fetches_ahead = false;
    }
}
