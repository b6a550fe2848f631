//! Connections over RDMA to a memory node.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::config::VerbsConfig;
use super::device::{Device, SPARE_COMPLETIONS, ack_timeout, check};
use super::manager::{EventKind, connect, resolve, wait_for};
use super::queue::{Completions, Messages, RECEIVED};
use super::queue_pair::QueuePair;
use super::region::{Access, Domain, Region};
use crate::chain::SINGLE_WORDS;
use crate::error::{Error, Result};
use crate::handshake::{HELLO_BYTES, JOIN_BYTES, MAX_WELCOME_BYTES};
use crate::lanes;
use crate::lanes::node::Network;
use crate::lanes::pipeline::{Credits, MOST_REQUESTS, Request};
use crate::lanes::wire::{Completion, Outcome, Refused, Wire};
use crate::question::Transport;
use crate::stall::blocked;
use farfield_words::WORD_BYTES;

/// The requests in a lane's send queue, if the device allows as many: enough for a few tens of tasks.
const REQUESTS: u32 = MOST_REQUESTS as u32;
/// The places of single operations in a lane's ring: more than most threads have in flight. Those beyond are copied once more.
const PLACES: usize = 512;
/// The size of the rest of a lane's ring, into which it reads and from which it writes.
const RING_BYTES: u64 = 128 << 10;
/// WRITEs up to this size are inline in their work request: the words of a small node.
const INLINE_BYTES: u32 = 64;

/// RDMA over the devices of this machine.
pub struct Rdma {
    /// The timeout of an operation, and the exponent of the time after which the device sends a packet again, if the URL sets it.
    timeout: Duration,
    ack_timeout: Option<u8>,
}

impl Rdma {
    /// # Errors
    /// [`Error::System`] if there is no device, or it may not be used.
    pub(super) fn new(timeout: Duration, ack_timeout: Option<u8>) -> Result<Self> {
        Device::all()?;
        Ok(Self { timeout, ack_timeout })
    }
}

/// A process's connections.
pub type Client = lanes::client::Client<Rdma>;
/// One thread's access to far memory.
pub type Verbs = lanes::endpoint::LaneEndpoint<Rdma>;

impl Client {
    /// Connects to all memory nodes of a cluster, whose memory must have this version of the layout.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) if there is no device, or it may not be used; [`Error::CannotConnect`](crate::Error::CannotConnect)
    /// naming the first memory node that can not be connected to.
    pub fn connect(config: &VerbsConfig, layout: u64) -> Result<Self> {
        let network = Rdma::new(config.nodes.timeout, config.ack_timeout)?;
        Self::connect_by(network, &config.nodes, &config.nodes.secret()?, layout)
    }
}

/// The control connection.
pub(crate) struct Control {
    queue_pair: QueuePair,
    completions: Arc<Completions>,
    messages: Messages,
    /// True if a receive buffer is posted.
    expects: bool,
}

impl Network for Rdma {
    type Control = Control;
    type Wire = Connection;

    fn open_control(
        &self,
        address: SocketAddr,
        hello: &[u8; HELLO_BYTES],
        deadline: Instant,
    ) -> Result<(Control, Vec<u8>), String> {
        let text = |error: Error| error.to_string();
        let (id, device) = resolve(address, deadline, |device| ack_timeout(device, self.timeout))?;
        check(device)?;
        let domain = Domain::new(device).map_err(text)?;
        let completions = Completions::new(device, SPARE_COMPLETIONS, true).map_err(text)?;
        let messages = Messages::new(&domain, MAX_WELCOME_BYTES.max(JOIN_BYTES)).map_err(text)?;
        let queue_pair = QueuePair::new(id, &domain, &completions, 4, 0).map_err(|(_, error)| text(error))?;
        messages.expect(&queue_pair).map_err(text)?;
        let (reply, _) = connect(queue_pair.id(), hello, 0, deadline)?;
        Ok((Control { queue_pair, completions, messages, expects: true }, reply))
    }

    fn open_lane(
        &self,
        address: SocketAddr,
        hello: &[u8; HELLO_BYTES],
        deadline: Instant,
    ) -> Result<Connection, String> {
        let text = |error: Error| error.to_string();
        let (id, device) = resolve(address, deadline, |device| {
            self.ack_timeout.unwrap_or_else(|| ack_timeout(device, self.timeout))
        })?;
        let limits = check(device)?;
        let domain = Domain::new(device).map_err(text)?;
        let requests =
            REQUESTS.min(limits.requests).min(limits.completions.saturating_sub(SPARE_COMPLETIONS));
        let completions = Completions::new(device, requests + SPARE_COMPLETIONS, false).map_err(text)?;
        let places = (PLACES * SINGLE_WORDS * WORD_BYTES) as u64;
        let ring = Region::new(&domain, places + RING_BYTES, Access::Local).map_err(text)?;
        // A device that supports fewer inline bytes may refuse.
        let queue_pair = QueuePair::new(id, &domain, &completions, requests, INLINE_BYTES)
            .or_else(|(id, _)| QueuePair::new(id, &domain, &completions, requests, 0))
            .map_err(|(_, error)| text(error))?;
        let (_, reads) = connect(queue_pair.id(), hello, limits.reads_out, deadline)?;
        if reads == 0 {
            return Err("its device answers no READs".to_owned());
        }
        let credits = Credits {
            requests: requests as usize,
            reads: usize::from(reads),
            words: RING_BYTES as usize / WORD_BYTES,
            places: PLACES,
            inline_words: queue_pair.inline_bytes().min(INLINE_BYTES) as usize / WORD_BYTES,
        };
        let batch = Batch::new(credits.requests, &ring);
        Ok(Connection { queue_pair, completions, ring, credits, batch })
    }
}

impl Control {
    /// Posts a receive buffer, unless one is still posted for an answer that never arrived.
    fn expect(&mut self) -> Result<(), String> {
        if !self.expects {
            self.messages.expect(&self.queue_pair).map_err(|error| error.to_string())?;
            self.expects = true;
        }
        Ok(())
    }
}

impl Transport for Control {
    fn send(&mut self, message: &[u8], _until: Instant) -> Result<(), String> {
        self.expect()?;
        self.messages.send(&self.queue_pair, message).map_err(|error| error.to_string())
    }

    fn receive(&mut self, until: Instant) -> Result<Vec<u8>, String> {
        let _waiting = blocked(|| "a memory node's answer on the control connection".to_owned());
        self.expect()?;
        while Instant::now() < until {
            self.completions.rearm();
            let (mut arrived, mut has_failed) = (None, false);
            self.completions.take(|completion| match completion.outcome {
                Outcome::Done if completion.number == RECEIVED => arrived = Some(completion.bytes),
                Outcome::Done => {}
                _ => has_failed = true,
            });
            if let Some(bytes) = arrived {
                self.expects = false;
                return Ok(self.messages.received(bytes));
            } else if has_failed {
                return Err("it has closed the connection".to_owned());
            }
            let descriptors: Vec<_> = self.completions.descriptor().into_iter().collect();
            wait_for(&descriptors, until.saturating_duration_since(Instant::now()));
        }
        Err("it does not answer".to_owned())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.queue_pair.id().disconnect();
    }
}

/// A connection and its resources. The queue pair is destroyed first: after that the device does not touch the ring.
pub(crate) struct Connection {
    queue_pair: QueuePair,
    completions: Arc<Completions>,
    ring: Region,
    credits: Credits,
    batch: Batch,
}

impl Wire for Connection {
    type Ring = Region;
    const LOOKS: u32 = 32;

    fn credits(&self) -> Credits {
        self.credits
    }
    #[inline]
    fn ring(&self) -> &Region {
        &self.ring
    }
    #[allow(clippy::inline_always)] // as `Batch::add`
    #[inline(always)]
    fn add(&mut self, request: Request) {
        self.batch.add(request);
    }
    fn signal_last(&mut self) {
        self.batch.signal_last();
    }
    #[inline]
    fn post(&mut self) -> Result<(), Refused> {
        self.batch.post(&self.queue_pair, &self.ring)
    }
    #[inline]
    fn completions(&mut self, each: impl FnMut(Completion)) -> usize {
        self.completions.take(each)
    }
    fn has_ended(&mut self) -> bool {
        self.queue_pair.id().channel().next().is_some_and(|event| matches!(event.kind, EventKind::Ended))
    }
    fn state(&mut self) -> &'static str {
        self.queue_pair.queue_pair_state()
    }
    fn stop(&mut self) {
        self.queue_pair.stop();
    }
}
