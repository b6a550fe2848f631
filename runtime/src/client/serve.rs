//! The compute threads of a client: each takes calls and polls them until the client is shut down.
//!
//! A thread polls all its tasks in turn, then takes a call if it has room, and polls that. It takes further calls as long as they complete at their
//! first poll, up to [`CALLS_PER_ROUND`]; then it polls the others again. Without a call to take or a task to poll it sleeps: see `io/idle.rs`.
//!
//! # Reclamation by idle threads
//!
//! A sleeping thread should not hold memory that others could use. After its last call it wakes once more, after [`IDLE_DELAY`], frees objects that
//! it and ended threads have retired, and returns its free blocks to the pool. If other threads hold the epoch back it retries, with increasing
//! delays up to [`MAX_IDLE_DELAY`]. Then it sleeps until the next call.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use super::queue::{Queue, Taken};
use super::work::Task;
use crate::cluster::live;
use crate::error::Result;
use crate::io::operations::*;
use crate::io::{TaskState, block_on};
use crate::session::run::Run;
use crate::session::runs::{ActiveRun, Computing};
use crate::session::{Cluster, ComputeThread};
use farfield_fabric::host::ThreadReservation;

/// The number of calls that a thread takes before it polls its other tasks.
const CALLS_PER_ROUND: usize = 16;
/// The delay between a thread's last call and its reclamation.
const IDLE_DELAY: Duration = Duration::from_millis(5);
/// The longest delay between attempts.
const MAX_IDLE_DELAY: Duration = Duration::from_millis(80);

thread_local! {
    /// The client whose work this thread polls: the address of its queue, or 0.
    static AT_WORK_FOR: Cell<usize> = const { Cell::new(0) };
}

/// Returns whether this thread polls the work of a call of that client.
pub(super) fn is_at_work_for(queue: &Queue) -> bool {
    AT_WORK_FOR.get() == std::ptr::from_ref(queue).addr()
}

/// Marks this thread as one that polls a client's work, until it is dropped.
struct AtWork(usize);

impl AtWork {
    fn for_queue(queue: &Queue) -> Self {
        Self(AT_WORK_FOR.replace(std::ptr::from_ref(queue).addr()))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK_FOR.set(self.0);
    }
}

/// A compute thread of a client, before it starts.
pub(super) struct ClientThread {
    pub(super) cluster: Cluster,
    pub(super) run: Arc<Run>,
    pub(super) reserved: Arc<(ActiveRun, ThreadReservation)>,
    pub(super) end: EndNotice,
}

/// Reports that a thread has ended when it is dropped, also by a panic.
pub(super) struct EndNotice {
    pub(super) queue: Arc<Queue>,
    pub(super) index: usize,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.queue.end(self.index);
    }
}

/// Receives the outcome of the thread's start.
pub(super) type Ready = mpsc::Sender<Result<()>>;

impl ClientThread {
    /// Runs the thread, and then drops its parts: the notice of its end last.
    pub(super) fn run(self, tasks: usize, ready: &Ready) {
        let Self { cluster, run, reserved, end } = self;
        let _computing = Computing::begin(&cluster.shared);
        let ct = ComputeThread::new(&cluster, &run, end.index);
        let body = async |ct: &ComputeThread| {
            let _ = ready.send(Ok(()));
            serve(ct, &end.queue, end.index, tasks).await;
            Ok(())
        };
        if let Err(error) = block_on(ct.worker(), live(&ct, &body)) {
            let _ = ready.send(Err(error));
        }
        drop(ct);
        drop((run, reserved, cluster));
        drop(end);
    }
}

/// Takes calls, and polls them, until the queue is closed and all have completed. Executes at most `max_tasks` concurrently, nested ones excluded.
async fn serve(ct: &ComputeThread, queue: &Queue, thread: usize, max_tasks: usize) {
    if let Some(waits) = &ct.io.stalls {
        waits.serves();
    }
    let changes = Cell::new(0);
    let mut server =
        Server { ct, queue, thread, max_tasks, tasks: Vec::new(), live: 0, stirs: 0, changes: &changes };
    let mut reclamation = pin!(reclaim_when_idle(ct, &changes));
    poll_fn(|context| {
        let polled = server.poll(context);
        // It never completes.
        let _ = reclamation.as_mut().poll(context);
        polled
    })
    .await;
}

struct Server<'a> {
    ct: &'a ComputeThread,
    queue: &'a Queue,
    thread: usize,
    max_tasks: usize,
    /// The running calls, each at a fixed index, and their number.
    tasks: Vec<Option<(TaskState, Task<'a>)>>,
    live: usize,
    /// The number of wakes of its tasks.
    stirs: u64,
    /// The number of times that a call has begun or ended.
    changes: &'a Cell<u64>,
}

impl Server<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.queue.leaves_idle(self.thread);
        let _at_work = AtWork::for_queue(self.queue);
        for place in 0..self.tasks.len() {
            self.poll_task(place, context);
        }
        for _ in 0..CALLS_PER_ROUND {
            match self.queue.take(self.thread, self.live < self.max_tasks, context.waker()) {
                Taken::Call(work) => {
                    let place = self.tasks.iter().position(Option::is_none).unwrap_or_else(|| {
                        self.tasks.push(None);
                        self.tasks.len() - 1
                    });
                    self.tasks[place] = Some((self.ct.io.task_stack.new_task(), work.begin(self.ct)));
                    self.count(1);
                    self.changes.set(self.changes.get() + 1);
                    self.poll_task(place, context);
                }
                Taken::Drained if self.live == 0 => return Poll::Ready(()),
                Taken::Empty | Taken::Drained => return Poll::Pending,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn count(&mut self, calls: isize) {
        self.live = self.live.saturating_add_signed(calls);
        if let Some(waits) = &self.ct.io.stalls {
            waits.add_tasks(calls);
        }
    }

    fn poll_task(&mut self, place: usize, context: &mut Context<'_>) {
        let Some((state, task)) = &mut self.tasks[place] else { return };
        // Work catches its own panics. This catches those of values that it drops implicitly.
        let poll = || catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        let mut round = self.ct.polls_set(&mut self.stirs);
        let polled = round.poll(place as u32, state, poll);
        if !matches!(polled, Ok(Poll::Pending))
            && let Some((mut state, task)) = self.tasks[place].take()
        {
            let drop_task = || catch_unwind(AssertUnwindSafe(|| drop(task)));
            let _ = round.poll(place as u32, &mut state, drop_task);
            round.task_ends(state);
            drop(round);
            self.count(-1);
            self.changes.set(self.changes.get() + 1);
        }
    }
}

/// Frees memory when calls have come and ended. It is polled in each round, so changes need not wake it.
async fn reclaim_when_idle(ct: &ComputeThread, changes: &Cell<u64>) {
    let mut seen = 0;
    loop {
        poll_fn(|_| if changes.get() == seen { Poll::Pending } else { Poll::Ready(()) }).await;
        let mut rest = IDLE_DELAY;
        loop {
            seen = changes.get();
            ct.sleep(rest).await;
            if changes.get() != seen {
                rest = IDLE_DELAY;
                continue;
            }
            ct.take_orphans();
            ct.try_reclaim().await;
            if !ct.has_garbage() {
                break;
            }
            rest = (2 * rest).min(MAX_IDLE_DELAY);
        }
        ct.give_everything();
        ct.wait_for_detached().await;
    }
}
