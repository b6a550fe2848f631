//! The life of a client's compute thread, from when it is ready until it has ended.

use std::sync::{Arc, mpsc};

use super::queue::Queue;
use super::serve::serve;
use crate::cluster::live;
use crate::error::Result;
use crate::io::block_on;
use crate::session::run::Run;
use crate::session::runs::{Computing, UnderWay};
use crate::session::{Cluster, ComputeThread};
use farfield_fabric::host::ThreadReservation;

/// What a thread of a client has. Dropped from the last to the first.
pub(super) struct Life {
    pub(super) cluster: Cluster,
    pub(super) run: Arc<Run>,
    pub(super) at_end: Arc<(UnderWay, ThreadReservation)>,
    pub(super) end: End,
}

/// Says that a thread has ended when it is dropped, also if it panics.
pub(super) struct End {
    pub(super) queue: Arc<Queue>,
    pub(super) index: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        self.queue.end(self.index);
    }
}

pub(super) type Ready = mpsc::Sender<Result<()>>;

impl Life {
    pub(super) fn live(self, tasks: usize, ready: &Ready) {
        let Self { cluster, run, at_end, end } = self;
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
        drop((run, at_end, cluster));
        drop(end);
    }
}
