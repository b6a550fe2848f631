//! Pacing of background work: its thread does periodic work in between.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use farfield_words::Block;

use crate::session::ComputeThread;

/// The number of READs between two yields.
const READS_PER_YIELD: u32 = 32;

/// Makes a sweep interruptible by its thread's periodic work.
#[derive(Default)]
pub(crate) struct Pace {
    is_parked: Cell<bool>,
    reads: Cell<u32>,
    /// The number of lists that this process has published. It distinguishes them.
    pub(crate) lists: Cell<u32>,
    /// The published list.
    pub(crate) list: Cell<Option<Block>>,
}

impl Pace {
    /// Yields to the thread's other tasks after every [`READS_PER_YIELD`] READs.
    pub(crate) async fn pause(&self, ct: &ComputeThread) {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get().is_multiple_of(READS_PER_YIELD) {
            ct.yield_now().await;
        }
    }

    /// Waits for other processes: until the sweep is resumed the next time.
    pub(crate) async fn park(&self, ct: &ComputeThread) {
        self.is_parked.set(true);
        while self.is_parked.get() {
            ct.yield_now().await;
        }
    }

    /// Polls a sweep until it completes, parks, or is `interrupted`. Returns its outcome if it has completed.
    pub(crate) async fn resume<R>(
        &self,
        mut sweep: Pin<&mut (impl Future<Output = R> + ?Sized)>,
        interrupted: impl Fn() -> bool,
    ) -> Option<R> {
        self.is_parked.set(false);
        poll_fn(|context| match sweep.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if self.is_parked.get() || interrupted() => Poll::Ready(None),
            Poll::Pending => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await
    }
}
