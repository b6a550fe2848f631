//! Runs of simulated threads: their life, their death, and what is left.

use std::sync::Arc;

use super::control::{CONTROL_BYTES, HEADER_BYTES};
use super::run::Run;
use super::thread::ComputeThread;
use super::{Cluster, Metrics, Shared, live, members};
use crate::error::{Error, Result};
use crate::fabric::sim::{self, ThreadFuture};
use crate::layout::WORD_BYTES;
use crate::pointer::Address;

/// A run of simulated threads.
pub(super) struct Simulated<'a, B> {
    cluster: &'a Cluster,
    run: Arc<Run>,
    body: B,
}

impl<'a, B> Simulated<'a, B> {
    pub(super) fn new(cluster: &'a Cluster, run: Arc<Run>, body: B) -> Self {
        Self { cluster, run, body }
    }
}

impl<R: Send, B: AsyncFn(&ComputeThread) -> Result<R> + Sync> sim::Body for Simulated<'_, B> {
    type Output = Result<R>;

    fn start(&self, thread: usize) -> ThreadFuture<'_, Result<R>> {
        Box::pin(async move {
            let ct = ComputeThread::new(self.cluster, &self.run, thread);
            live(&ct, &self.body).await
        })
    }

    fn failed(output: &Result<R>) -> bool {
        !matches!(output, Ok(_) | Err(Error::BarrierBroken { .. } | Error::NodeUnreachable { .. }))
    }

    fn died(&self, thread: usize) {
        self.run.died(thread);
        self.run.depart(thread, Metrics::default());
    }
}

/// Looks for objects that are neither freed nor reachable, at the end of a run.
pub(super) fn look_for_leaks(world: &sim::Shared) -> Result<()> {
    let mut world = world.lock();
    if !world.config().leaks_fail {
        return Ok(());
    }
    let words = |segment, offsets: std::ops::Range<u64>| {
        offsets.step_by(WORD_BYTES).map(move |offset| Address::new(segment, offset))
    };
    let roots = words(0, HEADER_BYTES..CONTROL_BYTES).map(|at| world.peek(at)).collect();
    world.look_for_leaks(roots);
    world.books.finding().map_or(Ok(()), Err)
}

impl Shared {
    /// Evicts a simulated process that is gone: nothing that it has posted is still to come. Returns whether it is evicted; else
    /// survivors have to.
    pub(super) fn evict_simulated(&self, identity: u32) -> bool {
        let Some(world) = self.world() else { return false };
        let world = world.lock();
        #[cfg(test)]
        if world.config().marks_the_dead {
            members::mark_simulated(identity, |at| world.peek(at), |at, word| world.poke(at, word));
            return false;
        }
        if let Some(places) = members::find(identity, |at| world.peek(at)) {
            world.poke(places.slot, 0);
            world.poke(places.record, 0);
        }
        true
    }
}
