//! The compute threads of a client: each takes calls and polls them until the client is shut down.
//!
//! A thread polls all its tasks in turn, then takes a call if it has room, and polls that. It goes on taking calls as long as they end
//! at their first poll, up to [`CALLS_PER_ROUND`]; then the others have their turn. With no call to take and nothing that can go on it
//! sleeps: see [`task::idle`](crate::task).
//!
//! # House keeping
//!
//! A thread that sleeps for long should hold nothing that others could use. So one that has worked wakes once more, [`REST`] after its
//! last call, frees what it and ended threads have retired, and gives its free memory back. If others hold the epoch back it
//! tries again, less and less often, at most every [`LONGEST_REST`]. Then it sleeps until there is a call.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::queue::{Queue, Taken};
use super::work::Task;
use crate::io::TaskState;
use crate::io::operations::*;
use crate::session::ComputeThread;

/// How many calls a thread takes before its other tasks have their turn.
const CALLS_PER_ROUND: usize = 16;
/// How long after its last call a thread that sleeps clears up.
const REST: Duration = Duration::from_millis(5);
/// How long at most it sleeps as long as it can not.
const LONGEST_REST: Duration = Duration::from_millis(80);

thread_local! {
    /// Which client's work this thread polls: the address of its queue, or 0.
    static AT_WORK_FOR: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread polls the work of a call of that client.
pub(super) fn is_at_work_for(queue: &Queue) -> bool {
    AT_WORK_FOR.get() == std::ptr::from_ref(queue).addr()
}

/// Marks this thread as one that polls a client's work; undone when it is dropped.
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

/// Takes calls, and polls them, until the queue is closed and all are done. At most `most` are under way at a time, besides nested ones.
pub(super) async fn serve(ct: &ComputeThread, queue: &Queue, thread: usize, most: usize) {
    if let Some(waits) = &ct.io.stalls {
        waits.serves();
    }
    let changes = Cell::new(0);
    let mut server =
        Server { ct, queue, thread, most, tasks: Vec::new(), live: 0, stirs: 0, changes: &changes };
    let mut house_keeping = pin!(keep_house(ct, &changes));
    poll_fn(|context| {
        let polled = server.poll(context);
        // It never ends.
        let _ = house_keeping.as_mut().poll(context);
        polled
    })
    .await;
}

struct Server<'a> {
    ct: &'a ComputeThread,
    queue: &'a Queue,
    thread: usize,
    most: usize,
    /// The calls under way, each in a place that it keeps, and how many there are.
    tasks: Vec<Option<(TaskState, Task<'a>)>>,
    live: usize,
    /// How often its tasks have stirred.
    stirs: u64,
    /// How often a call has begun or ended.
    changes: &'a Cell<u64>,
}

impl Server<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.queue.is_awake(self.thread);
        let _at_work = AtWork::for_queue(self.queue);
        for place in 0..self.tasks.len() {
            self.poll_task(place, context);
        }
        for _ in 0..CALLS_PER_ROUND {
            match self.queue.take(self.thread, self.live < self.most, context.waker()) {
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
                Taken::Over if self.live == 0 => return Poll::Ready(()),
                Taken::Nothing | Taken::Over => return Poll::Pending,
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
        // Work guards against its own panics; what is left are those of values that it drops unasked.
        let poll = || catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        let polled = self.ct.poll_task(place as u32, state, &mut self.stirs, poll);
        if !matches!(polled, Ok(Poll::Pending))
            && let Some((mut state, task)) = self.tasks[place].take()
        {
            let drop_task = || catch_unwind(AssertUnwindSafe(|| drop(task)));
            let _ = self.ct.poll_task(place as u32, &mut state, &mut self.stirs, drop_task);
            self.ct.task_ends(state);
            self.count(-1);
            self.changes.set(self.changes.get() + 1);
        }
    }
}

/// Clears up when calls have come and gone. Polled in each round, so that it need not be woken for that.
async fn keep_house(ct: &ComputeThread, changes: &Cell<u64>) {
    let mut seen = 0;
    loop {
        poll_fn(|_| if changes.get() == seen { Poll::Pending } else { Poll::Ready(()) }).await;
        let mut rest = REST;
        loop {
            seen = changes.get();
            ct.sleep(rest).await;
            if changes.get() != seen {
                rest = REST;
                continue;
            }
            ct.take_orphans();
            ct.try_reclaim().await;
            if !ct.has_garbage() {
                break;
            }
            rest = (2 * rest).min(LONGEST_REST);
        }
        ct.give_everything();
        ct.wait_for_detached().await;
    }
}
