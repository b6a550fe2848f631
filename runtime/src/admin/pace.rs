//! The pace of work in the background: it lets its thread do what must be done on time.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use farfield_words::Block;

use crate::session::ComputeThread;

/// How many READs are done at a stretch.
const READS_PER_BREATH: u32 = 32;

/// Lets a sweep be interrupted by what its thread must do on time.
#[derive(Default)]
pub(crate) struct Pace {
    is_parked: Cell<bool>,
    reads: Cell<u32>,
    /// Tells lists of one process apart.
    pub(crate) count: Cell<u32>,
    /// The list that is published.
    pub(crate) list: Cell<Option<Block>>,
}

impl Pace {
    /// Lets others have the thread now and then.
    pub(crate) async fn breathe(&self, ct: &ComputeThread) {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get().is_multiple_of(READS_PER_BREATH) {
            ct.yield_now().await;
        }
    }

    /// Waits for others to do something.
    pub(crate) async fn park(&self, ct: &ComputeThread) {
        self.is_parked.set(true);
        while self.is_parked.get() {
            ct.yield_now().await;
        }
    }

    /// Goes on with a sweep until it is over, which gives its outcome, or rests, or is `interrupted`.
    pub(crate) async fn go_on<R>(
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
