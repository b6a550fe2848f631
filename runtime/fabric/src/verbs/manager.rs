//! The connection manager (`rdma_cm`): events of connections, and requests for them.
//!
//! No function here waits without a deadline.
//!
//! A channel has a lock, which is held for every call of the library with the channel or with an identifier of it. So the library need not support
//! concurrent calls. No call under the lock waits: taking an event does not wait for one.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::binding::sys;
use super::binding::sys::rdma_cm_event_type as cm_event;
use super::device::{Device, last_error, set_nonblocking_fd};
use super::identifier::Id;
use crate::error::Result;
use crate::handshake;
use crate::stall::blocked;

/// An event channel of connections.
///
/// Invariant: `raw` was created by `new` and is destroyed by `drop` only; its identifiers own shares in the channel, so they are destroyed by
/// then. `fd` is its descriptor, which is open for as long.
#[derive(Debug)]
pub(super) struct Channel {
    raw: Mutex<NonNull<sys::rdma_event_channel>>,
    fd: RawFd,
}

// SAFETY: the library binds a channel to no thread. It is destroyed once, by `drop`, which has the only reference left.
unsafe impl Send for Channel {}
// SAFETY: `&self` reaches the library through `locked` only, so on one thread at a time; the descriptor is the kernel's, which locks it.
unsafe impl Sync for Channel {}

/// An event of an end of a connection.
#[derive(Debug)]
pub(super) struct CmEvent {
    pub(super) kind: EventKind,
    /// Identifies the end in its channel.
    pub(super) id: usize,
}

#[derive(Debug)]
pub(super) enum EventKind {
    AddressResolved,
    RouteResolved,
    /// A client requests a connection: its identifier here, the data of the request, and the most unanswered READs of the client.
    Request {
        id: Id,
        data: Vec<u8>,
        reads: u8,
    },
    /// The connection is established: the data of the reply, and the most unanswered READs of this end.
    Established {
        data: Vec<u8>,
        reads: u8,
    },
    /// The request was refused: by the memory node, with its reason, or by the other machine.
    Refused(String),
    /// The connection has ended.
    Ended,
    Failed(&'static str),
    /// An event of no interest.
    Other,
}

impl Channel {
    pub(super) fn new() -> Result<Arc<Self>> {
        const ACTION: &str = "use the RDMA connection manager";
        // SAFETY: the function has no conditions: it makes a channel, or returns null.
        let raw = unsafe { sys::rdma_create_event_channel() };
        let raw = NonNull::new(raw).ok_or_else(|| last_error(ACTION))?;
        // SAFETY: the channel is new and nothing else has seen it; the library has filled it in.
        let fd = unsafe { raw.as_ref().fd };
        // From here on it is destroyed if the rest fails.
        let channel = Arc::new(Self { raw: Mutex::new(raw), fd });
        set_nonblocking_fd(channel.as_fd(), ACTION)?;
        Ok(channel)
    }

    /// Runs `work` under the lock. It may use the channel, which is alive, or an identifier of it.
    pub(super) fn locked<R>(&self, work: impl FnOnce(*mut sys::rdma_event_channel) -> R) -> R {
        // A panic under the lock does not change the library's structures.
        let raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        work(raw.as_ptr())
    }

    /// Returns the next event, if any.
    pub(super) fn next(self: &Arc<Self>) -> Option<CmEvent> {
        self.locked(|channel| {
            let mut event = null_mut();
            // SAFETY: the channel is alive and locked, and the call writes to `event`, which is ours.
            if unsafe { sys::rdma_get_cm_event(channel, &raw mut event) } != 0 {
                return None;
            }
            // SAFETY: the call has returned an event, which the library zeroes before it fills it in, so all of it is initialised. It is this
            // function's until it is acknowledged, and `seen` and `conn` are not used after that.
            let seen = unsafe { &*event };
            // SAFETY: every variant of the union is made of integers and pointers, for which all bits are valid. `private_data` is followed only
            // for kinds of events that have one.
            let conn = unsafe { &seen.param.conn };
            let data = || {
                let (bytes, length) = (conn.private_data.cast::<u8>(), usize::from(conn.private_data_len));
                if bytes.is_null() || length == 0 {
                    return Vec::new();
                }
                // SAFETY: the library points a connection's event to so many bytes inside the event itself. They are copied here.
                unsafe { std::slice::from_raw_parts(bytes, length) }.to_vec()
            };
            let kind = match seen.event {
                cm_event::RDMA_CM_EVENT_ADDR_RESOLVED => EventKind::AddressResolved,
                cm_event::RDMA_CM_EVENT_ROUTE_RESOLVED => EventKind::RouteResolved,
                cm_event::RDMA_CM_EVENT_CONNECT_REQUEST => match NonNull::new(seen.id) {
                    Some(id) => {
                        let data = data();
                        // SAFETY: the identifier of a request is one that the library has made for it, on the listener's channel, which is this one. It
                        // has no queue pair yet. The library reports it once, and leaves its destruction to the receiver of the event.
                        let id = unsafe { Id::of(id, self) };
                        EventKind::Request { id, data, reads: conn.responder_resources }
                    }
                    None => EventKind::Other,
                },
                cm_event::RDMA_CM_EVENT_ESTABLISHED => {
                    EventKind::Established { data: data(), reads: conn.initiator_depth }
                }
                cm_event::RDMA_CM_EVENT_REJECTED => EventKind::Refused(handshake::printable_reason(&data())),
                cm_event::RDMA_CM_EVENT_DISCONNECTED | cm_event::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                    EventKind::Ended
                }
                cm_event::RDMA_CM_EVENT_ADDR_ERROR => {
                    EventKind::Failed("no RDMA device of this machine reaches this address")
                }
                cm_event::RDMA_CM_EVENT_ROUTE_ERROR => EventKind::Failed("there is no route to this address"),
                cm_event::RDMA_CM_EVENT_UNREACHABLE => EventKind::Failed("it does not answer"),
                cm_event::RDMA_CM_EVENT_CONNECT_ERROR => {
                    EventKind::Failed("the connection could not be made")
                }
                _ => EventKind::Other,
            };
            let id = seen.id.addr();
            // SAFETY: it was taken above, and is acknowledged once. All that was read from it has been copied.
            unsafe { sys::rdma_ack_cm_event(event) };
            Some(CmEvent { kind, id })
        })
    }

    /// Waits for an event until a deadline.
    pub(super) fn wait(self: &Arc<Self>, until: Instant) -> Option<CmEvent> {
        loop {
            if let Some(event) = self.next() {
                return Some(event);
            }
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return None;
            }
            wait_for(&[self.as_fd()], remaining);
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel is alive (the invariant), which the borrow ensures.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: `new` created it and nothing destroys it but this, which runs once. All its identifiers are destroyed (the invariant).
        self.locked(|channel| unsafe { sys::rdma_destroy_event_channel(channel) });
    }
}

/// Waits until one of the descriptors is readable, or until the time is over.
pub(super) fn wait_for(descriptors: &[BorrowedFd<'_>], time: Duration) {
    let mut waited: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = Timespec { tv_sec, tv_nsec: time.subsec_nanos().into() };
    // An interruption counts as a spurious wake.
    let _ = poll(&mut waited, Some(&time));
}

/// Makes an identifier with a resolved route to an address, to be connected.
pub(super) fn resolve(
    address: SocketAddr,
    deadline: Instant,
    ack_timeout: impl FnOnce(Device) -> u8,
) -> Result<(Id, Device), String> {
    Device::all().map_err(|error| error.to_string())?;
    let failed = |error: io::Error| error.to_string();
    let channel = Channel::new().map_err(|error| error.to_string())?;
    let id = Id::new(&channel).map_err(|error| error.to_string())?;
    let _waiting = blocked(|| format!("the connection manager to find a route to {address}"));
    id.resolve_address(address).map_err(failed)?;
    expect(&id, deadline, |kind| matches!(kind, EventKind::AddressResolved))?;
    let device = id.device().ok_or("no RDMA device of this machine reaches this address")?;
    id.set_ack_timeout(ack_timeout(device));
    id.resolve_route().map_err(failed)?;
    expect(&id, deadline, |kind| matches!(kind, EventKind::RouteResolved))?;
    Ok((id, device))
}

/// Requests the connection and waits until it is established. Returns the data of the reply, and the most unanswered READs.
pub(super) fn connect(id: &Id, data: &[u8], reads: u8, deadline: Instant) -> Result<(Vec<u8>, u8), String> {
    let _waiting = blocked(|| "the connection manager to make a connection".to_owned());
    id.connect(data, 0, reads).map_err(|error| error.to_string())?;
    match expect(id, deadline, |kind| matches!(kind, EventKind::Established { .. }))? {
        EventKind::Established { data, reads } => Ok((data, reads)),
        _ => unreachable!("it was expected"),
    }
}

/// Waits for an event of an identifier, which is the only one of its channel.
fn expect(id: &Id, deadline: Instant, is_it: impl Fn(&EventKind) -> bool) -> Result<EventKind, String> {
    loop {
        let Some(event) = id.channel().wait(deadline) else { return Err("it does not answer".to_owned()) };
        match event.kind {
            kind if is_it(&kind) => return Ok(kind),
            EventKind::Refused(reason) if reason.is_empty() => {
                return Err("no memory node listens there, or it refuses connections".to_owned());
            }
            EventKind::Refused(reason) => return Err(reason),
            EventKind::Failed(reason) => return Err(reason.to_owned()),
            EventKind::Ended => return Err("it has closed the connection".to_owned()),
            _ => {}
        }
    }
}
