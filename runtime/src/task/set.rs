//! `TaskSet`: futures polled in turn until all are done.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Result;

/// Waits for all of its futures, or for the first error.
pub(crate) struct TaskSet<F, R> {
    tasks: Vec<Task<F, R>>,
}

enum Task<F, R> {
    Running(Pin<Box<F>>),
    Done(R),
}

impl<F: Future<Output = Result<R>>, R> TaskSet<F, R> {
    pub(crate) fn new(futures: impl Iterator<Item = F>) -> Self {
        Self { tasks: futures.map(|future| Task::Running(Box::pin(future))).collect() }
    }
}

// The futures are boxed, and results are never pinned.
impl<F, R> Unpin for TaskSet<F, R> {}

impl<F: Future<Output = Result<R>>, R> Future for TaskSet<F, R> {
    type Output = Result<Vec<R>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = false;
        for task in &mut self.tasks {
            if let Task::Running(future) = task {
                match future.as_mut().poll(context) {
                    Poll::Ready(Ok(value)) => *task = Task::Done(value),
                    Poll::Ready(Err(error)) => {
                        self.tasks.clear();
                        return Poll::Ready(Err(error));
                    }
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return Poll::Pending;
        }
        let done = self.tasks.drain(..).map(|task| match task {
            Task::Done(value) => value,
            Task::Running(_) => unreachable!("nothing waits"),
        });
        Poll::Ready(Ok(done.collect()))
    }
}
