//! `TaskSet`: futures that are polled in turn until all have completed.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::posting::Thread;
use super::task_stack::Polling;
use super::task_stack::TaskState;
use crate::error::Result;

/// Completes when all of its futures have, or with the first error.
pub(crate) struct TaskSet<'a, T: Thread, F, R> {
    ct: &'a T,
    tasks: Vec<Task<F, R>>,
    /// The number of steps that its tasks have made together.
    steps: u64,
}

enum Task<F, R> {
    Running(TaskState, Pin<Box<F>>),
    Done(R),
}

impl<'a, T: Thread, F: Future<Output = Result<R>>, R> TaskSet<'a, T, F, R> {
    pub(crate) fn new(ct: &'a T, futures: impl Iterator<Item = F>) -> Self {
        let tasks = futures.map(|future| Task::Running(ct.io().task_stack.new_task(), Box::pin(future)));
        let set = Self { ct, tasks: tasks.collect(), steps: 0 };
        ct.io().running_tasks.set(ct.io().running_tasks.get() + set.tasks.len());
        if let Some(waits) = &ct.io().stalls {
            waits.add_tasks(set.running());
        }
        set
    }
}

impl<T: Thread, F, R> TaskSet<'_, T, F, R> {
    /// Returns the number of tasks that have not completed.
    fn running(&self) -> isize {
        self.tasks.iter().filter(|task| matches!(task, Task::Running(..))).count().cast_signed()
    }

    /// Drops the tasks that have not completed.
    fn clear(&mut self) {
        let running = self.running().unsigned_abs();
        self.ct.io().running_tasks.set(self.ct.io().running_tasks.get() - running);
        if let Some(waits) = &self.ct.io().stalls {
            waits.add_tasks(-self.running());
            for task in &self.tasks {
                if let Task::Running(state, _) = task {
                    waits.has_ended(state.number());
                }
            }
        }
        self.tasks.clear();
    }
}

impl<T: Thread, F, R> Drop for TaskSet<'_, T, F, R> {
    fn drop(&mut self) {
        self.clear();
    }
}

// The futures are boxed, and results are never pinned.
impl<T: Thread, F, R> Unpin for TaskSet<'_, T, F, R> {}

impl<T: Thread, F: Future<Output = Result<R>>, R> Future for TaskSet<'_, T, F, R> {
    type Output = Result<Vec<R>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { ct, tasks, steps } = &mut *self;
        let mut round = ct.polls_set(steps);
        for (index, task) in tasks.iter_mut().enumerate() {
            if let Task::Running(running, future) = task {
                match round.poll(index as u32, running, || future.as_mut().poll(context)) {
                    Poll::Ready(Ok(value)) => {
                        round.task_ends(*running);
                        ct.io().running_tasks.set(ct.io().running_tasks.get() - 1);
                        if let Some(waits) = &ct.io().stalls {
                            waits.add_tasks(-1);
                        }
                        *task = Task::Done(value);
                    }
                    Poll::Ready(Err(error)) => {
                        drop(round);
                        self.clear();
                        return Poll::Ready(Err(error));
                    }
                    Poll::Pending => {}
                }
            }
        }
        drop(round);
        if tasks.iter().any(|task| matches!(task, Task::Running(..))) {
            return Poll::Pending;
        }
        let done = tasks.drain(..).map(|task| match task {
            Task::Done(value) => value,
            Task::Running(..) => unreachable!("nothing waits"),
        });
        Poll::Ready(Ok(done.collect()))
    }
}
