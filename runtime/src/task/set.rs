//! `TaskSet`: futures polled in turn until all are done.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::cluster::ComputeThread;
use crate::error::Result;

/// Waits for all of its futures, or for the first error.
pub(crate) struct TaskSet<'a, F, R> {
    ct: &'a ComputeThread,
    tasks: Vec<Task<F, R>>,
}

enum Task<F, R> {
    Running(Pin<Box<F>>),
    Done(R),
}

impl<'a, F: Future<Output = Result<R>>, R> TaskSet<'a, F, R> {
    pub(crate) fn new(ct: &'a ComputeThread, futures: impl Iterator<Item = F>) -> Self {
        Self { ct, tasks: futures.map(|future| Task::Running(Box::pin(future))).collect() }
    }
}

// The futures are boxed, and results are never pinned.
impl<F, R> Unpin for TaskSet<'_, F, R> {}

impl<F: Future<Output = Result<R>>, R> Future for TaskSet<'_, F, R> {
    type Output = Result<Vec<R>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = false;
        let ct = self.ct;
        for (index, task) in self.tasks.iter_mut().enumerate() {
            if let Task::Running(future) = task {
                let outer = ct.enter_task(index as u32);
                let polled = future.as_mut().poll(context);
                ct.enter_task(outer);
                match polled {
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
