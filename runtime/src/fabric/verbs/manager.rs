//! The connection manager (`rdma_cm`): addresses, requests for connections, and their ends.
//!
//! Nothing here waits without a deadline, whatever the other side does or fails to do.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::binding::sys::rdma_cm_event_type as kind;
use super::binding::{OPTION_ID, OPTION_ID_ACK_TIMEOUT, sys};
use super::device::{Device, Domain, gone, last_error, made};
use super::queue::Completions;
use crate::error::{self, Error, Result};
use crate::fabric::handshake;
use crate::fabric::stall::blocked;

/// How often a packet is sent again before the connection is given up. The most that there is.
const RETRIES: u8 = 7;
/// How long the kernel may look for an address or a route.
const RESOLVE_MS: i32 = 2_000;

/// Where events of connections arrive.
#[derive(Debug)]
pub(super) struct Channel(NonNull<sys::rdma_event_channel>);

// SAFETY: the library's functions may be called with it on any thread, and it is destroyed once, by the last owner.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// An end of a connection, or a listener, and its queue pair if it has one.
///
/// Invariant: all events of it are acknowledged before it is destroyed, as [`Channel::next`] acknowledges each at once. If it has a queue
/// pair, `parts` has what that was made from: a domain or a queue that is in use can not be destroyed.
#[derive(Debug)]
pub(super) struct Id {
    raw: NonNull<sys::rdma_cm_id>,
    channel: Arc<Channel>,
    parts: OnceLock<(Arc<Domain>, Arc<Completions>)>,
}

// SAFETY: as for `Channel`.
unsafe impl Send for Id {}
// SAFETY: as for `Channel`.
unsafe impl Sync for Id {}

/// What happened to which end of a connection.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) what: What,
    /// Tells the ends of a channel apart.
    pub(super) id: usize,
}

#[derive(Debug)]
pub(super) enum What {
    AddressResolved,
    RouteResolved,
    /// Somebody asks for a connection: its end here, what came with the request, and how many READs without an
    /// answer the other end would have.
    Request {
        id: Id,
        data: Vec<u8>,
        reads: u8,
    },
    /// The connection is there, with what came with the reply, and how many READs without an answer this end may have.
    Established {
        data: Vec<u8>,
        reads: u8,
    },
    /// The request was refused: by the other program, with its words, or by the other machine.
    Refused(String),
    /// The connection has ended.
    Ended,
    Failed(&'static str),
    /// Nothing that anybody waits for.
    Other,
}

impl Channel {
    pub(super) fn new() -> Result<Arc<Self>> {
        // SAFETY: there is nothing to uphold.
        let channel = unsafe { sys::rdma_create_event_channel() };
        let channel =
            Self(NonNull::new(channel).ok_or_else(|| last_error("use the RDMA connection manager"))?);
        let fd = channel.as_raw_fd();
        // SAFETY: the descriptor is open. Reading an event must not wait for one.
        if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) } < 0 {
            return Err(last_error("use the RDMA connection manager"));
        }
        Ok(Arc::new(channel))
    }

    /// The next event, if there is one.
    pub(super) fn next(self: &Arc<Self>) -> Option<Event> {
        let mut event = null_mut();
        // SAFETY: the channel is there and `event` may be written. What is taken from the event is copied before it is
        // acknowledged, and the identifier of a request, which is new, gets its one owner.
        unsafe {
            if sys::rdma_get_cm_event(self.0.as_ptr(), &raw mut event) != 0 {
                return None;
            }
            let seen = &*event;
            let conn = &seen.param.conn;
            let data = || {
                let bytes = conn.private_data.cast::<u8>();
                let length = if bytes.is_null() { 0 } else { usize::from(conn.private_data_len) };
                if length == 0 { Vec::new() } else { std::slice::from_raw_parts(bytes, length).to_vec() }
            };
            let what = match seen.event {
                kind::RDMA_CM_EVENT_ADDR_RESOLVED => What::AddressResolved,
                kind::RDMA_CM_EVENT_ROUTE_RESOLVED => What::RouteResolved,
                kind::RDMA_CM_EVENT_CONNECT_REQUEST => match NonNull::new(seen.id) {
                    Some(id) => {
                        What::Request { id: Id::of(id, self), data: data(), reads: conn.responder_resources }
                    }
                    None => What::Other,
                },
                kind::RDMA_CM_EVENT_ESTABLISHED => {
                    What::Established { data: data(), reads: conn.initiator_depth }
                }
                kind::RDMA_CM_EVENT_REJECTED => What::Refused(handshake::reason(&data())),
                kind::RDMA_CM_EVENT_DISCONNECTED | kind::RDMA_CM_EVENT_DEVICE_REMOVAL => What::Ended,
                kind::RDMA_CM_EVENT_ADDR_ERROR => What::Failed("no RDMA device leads to this address"),
                kind::RDMA_CM_EVENT_ROUTE_ERROR => What::Failed("there is no route to this address"),
                kind::RDMA_CM_EVENT_UNREACHABLE => What::Failed("it does not answer"),
                kind::RDMA_CM_EVENT_CONNECT_ERROR => What::Failed("the connection could not be made"),
                _ => What::Other,
            };
            let event = Event { what, id: seen.id.addr() };
            sys::rdma_ack_cm_event(std::ptr::from_ref(seen).cast_mut());
            Some(event)
        }
    }

    /// Waits for an event until a deadline.
    pub(super) fn wait(self: &Arc<Self>, until: Instant) -> Option<Event> {
        loop {
            if let Some(event) = self.next() {
                return Some(event);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            wait_for(&[self.as_raw_fd()], left);
        }
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is there.
        unsafe { self.0.as_ref().fd }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: it was created, and all of its identifiers, which hold references to it, are gone.
        unsafe { sys::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// Waits until one of the descriptors has something to read, or until the time is over.
pub(super) fn wait_for(descriptors: &[RawFd], time: Duration) {
    let mut polled: Vec<libc::pollfd> =
        descriptors.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let ms = i32::try_from(time.as_millis() + 1).unwrap_or(i32::MAX);
    // SAFETY: the array may be written. Being interrupted is as good as waking up for nothing.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, ms) };
}

/// An address as the system takes it.
pub(super) fn to_sockaddr(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all-zero integers are valid, and the storage is large and aligned enough for either form.
    unsafe {
        let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
        match address {
            SocketAddr::V4(address) => {
                let form = storage.as_mut_ptr().cast::<libc::sockaddr_in>();
                (*form).sin_family = libc::AF_INET as libc::sa_family_t;
                (*form).sin_port = address.port().to_be();
                (*form).sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
            }
            SocketAddr::V6(address) => {
                let form = storage.as_mut_ptr().cast::<libc::sockaddr_in6>();
                (*form).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                (*form).sin6_port = address.port().to_be();
                (*form).sin6_addr.s6_addr = address.ip().octets();
                (*form).sin6_scope_id = address.scope_id();
            }
        }
        storage.assume_init()
    }
}

impl Id {
    pub(super) fn new(channel: &Arc<Channel>) -> Result<Self> {
        let mut id = null_mut();
        // SAFETY: the channel is there and `id` may be written.
        let result = unsafe {
            sys::rdma_create_id(
                channel.0.as_ptr(),
                &raw mut id,
                null_mut(),
                sys::rdma_port_space::RDMA_PS_TCP,
            )
        };
        match NonNull::new(id) {
            Some(id) if result == 0 => Ok(Self::of(id, channel)),
            _ => Err(last_error("use the RDMA connection manager")),
        }
    }

    fn of(raw: NonNull<sys::rdma_cm_id>, channel: &Arc<Channel>) -> Self {
        made();
        Self { raw, channel: Arc::clone(channel), parts: OnceLock::new() }
    }

    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Tells the ends of a channel apart.
    pub(super) fn number(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// The device that the connection is over, once that is known.
    pub(super) fn device(&self) -> Option<Device> {
        // SAFETY: the identifier is there.
        Device::of(unsafe { self.raw.as_ref().verbs })
    }

    /// Its queue pair; null if it has none.
    pub(super) fn qp(&self) -> *mut sys::ibv_qp {
        // SAFETY: the identifier is there.
        unsafe { self.raw.as_ref().qp }
    }

    pub(super) fn listen(&self, address: SocketAddr) -> io::Result<()> {
        let mut address = to_sockaddr(address);
        // SAFETY: the identifier and the address are there.
        let result = unsafe {
            match sys::rdma_bind_addr(self.raw.as_ptr(), (&raw mut address).cast()) {
                0 => sys::rdma_listen(self.raw.as_ptr(), 128),
                failed => failed,
            }
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The port that it listens on.
    pub(super) fn port(&self) -> u16 {
        // SAFETY: the identifier is there, and either form of an address has the port in the same place.
        u16::from_be(unsafe { self.raw.as_ref().route.addr.src_addr_union.src_sin.sin_port })
    }

    /// Begins to look for the device that leads to an address.
    pub(super) fn resolve_address(&self, address: SocketAddr) -> io::Result<()> {
        let mut address = to_sockaddr(address);
        // SAFETY: the identifier and the address are there.
        let result = unsafe {
            sys::rdma_resolve_addr(self.raw.as_ptr(), null_mut(), (&raw mut address).cast(), RESOLVE_MS)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sets how long the device waits for an answer before it sends a packet again: 4.096 us times two to this power.
    ///
    /// Before the route is resolved. Kernels that do not know it choose themselves.
    pub(super) fn set_ack_timeout(&self, exponent: u8) {
        let mut exponent = exponent;
        // SAFETY: the identifier and the value are there.
        unsafe {
            sys::rdma_set_option(
                self.raw.as_ptr(),
                OPTION_ID,
                OPTION_ID_ACK_TIMEOUT,
                (&raw mut exponent).cast(),
                size_of::<u8>(),
            );
        }
    }

    pub(super) fn resolve_route(&self) -> io::Result<()> {
        // SAFETY: the identifier is there.
        let result = unsafe { sys::rdma_resolve_route(self.raw.as_ptr(), RESOLVE_MS) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Makes its queue pair; gives how many bytes travel in a work request.
    pub(super) fn create_qp(
        &self,
        domain: &Arc<Domain>,
        completions: &Arc<Completions>,
        requests: u32,
        inline_bytes: u32,
    ) -> Result<u32> {
        let cap = sys::ibv_qp_cap {
            max_send_wr: requests,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: inline_bytes,
        };
        let mut attributes = sys::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: completions.as_ptr(),
            recv_cq: completions.as_ptr(),
            srq: null_mut(),
            cap,
            qp_type: sys::ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: the identifier, the domain and the completion queue are there; the attributes may be written. The domain and the queue are
        // kept until the queue pair has been destroyed, since `parts` are dropped after `drop` has run.
        if unsafe { sys::rdma_create_qp(self.raw.as_ptr(), domain.as_ptr(), &raw mut attributes) } != 0 {
            return Err(last_error("create a queue pair"));
        }
        made();
        // The library makes no second one.
        let _ = self.parts.set((Arc::clone(domain), Arc::clone(completions)));
        Ok(attributes.cap.max_inline_data)
    }

    fn parameters(data: &[u8], answers: u8, reads: u8) -> sys::rdma_conn_param {
        sys::rdma_conn_param {
            private_data: data.as_ptr().cast(),
            private_data_len: data.len() as u8,
            responder_resources: answers,
            initiator_depth: reads,
            flow_control: 0,
            retry_count: RETRIES,
            rnr_retry_count: RETRIES,
            srq: 0,
            qp_num: 0,
        }
    }

    /// Asks for the connection.
    pub(super) fn connect(&self, data: &[u8], answers: u8, reads: u8) -> io::Result<()> {
        let mut parameters = Self::parameters(data, answers, reads);
        // SAFETY: the identifier and the parameters are there.
        let result = unsafe { sys::rdma_connect(self.raw.as_ptr(), &raw mut parameters) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Accepts the request that it came with.
    pub(super) fn accept(&self, data: &[u8], answers: u8, reads: u8) -> io::Result<()> {
        let mut parameters = Self::parameters(data, answers, reads);
        // SAFETY: the identifier and the parameters are there.
        let result = unsafe { sys::rdma_accept(self.raw.as_ptr(), &raw mut parameters) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Refuses the request that it came with, for a reason.
    pub(super) fn reject(&self, reason: &str) {
        let reason = handshake::cut(reason).as_bytes();
        // SAFETY: the identifier and the reason are there. If it can not be told, the other side's own deadline ends its wait.
        unsafe { sys::rdma_reject(self.raw.as_ptr(), reason.as_ptr().cast(), reason.len() as u8) };
    }

    /// Ends the connection; the other side is told.
    pub(super) fn disconnect(&self) {
        // SAFETY: the identifier is there. If it is not connected there is nothing to end.
        unsafe { sys::rdma_disconnect(self.raw.as_ptr()) };
    }

    /// The state of its queue pair, as the device tells it.
    pub(super) fn condition(&self) -> &'static str {
        let qp = self.qp();
        if qp.is_null() {
            return "without a queue pair";
        }
        let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        let mut first = MaybeUninit::<sys::ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair is there, all-zero integers and pointers are valid, and both structures may be written.
        let state = unsafe {
            let mask = sys::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
            if sys::ibv_query_qp(qp, attributes.as_mut_ptr(), mask, first.as_mut_ptr()) != 0 {
                return "whose queue pair does not tell its state";
            }
            (*attributes.as_ptr()).qp_state
        };
        match state {
            sys::ibv_qp_state::IBV_QPS_RTS => "whose queue pair is ready to send",
            sys::ibv_qp_state::IBV_QPS_ERR => "whose queue pair is in the error state",
            _ => "whose queue pair is in another state",
        }
    }

    /// Moves its queue pair into the error state: what is posted is not done, and completes with an error.
    pub(super) fn stop(&self) {
        let qp = self.qp();
        if !qp.is_null() {
            let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
            // SAFETY: all-zero integers are valid; only the state is looked at. A queue pair that can not be moved is destroyed
            // by its owner in the end.
            unsafe {
                (*attributes.as_mut_ptr()).qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
                let mask = sys::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
                sys::ibv_modify_qp(qp, attributes.as_mut_ptr(), mask);
            }
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: it was created, its events are acknowledged, and its queue pair is destroyed first. The function that destroys one gives
        // no result; if it fails, so does destroying what the queue pair was made from.
        unsafe {
            if !self.qp().is_null() {
                sys::rdma_destroy_qp(self.raw.as_ptr());
                gone("queue pair", 0);
            }
            gone("connection", sys::rdma_destroy_id(self.raw.as_ptr()));
        }
    }
}

/// An end whose route to an address is known; it is yet to be connected.
pub(super) fn resolve(
    address: SocketAddr,
    deadline: Instant,
    ack_timeout: impl FnOnce(Device) -> u8,
) -> Result<(Id, Device), String> {
    Device::all().map_err(|error| error.to_string())?;
    let failed = |error: io::Error| error.to_string();
    let channel = Channel::new().map_err(|error| error.to_string())?;
    let id = Id::new(&channel).map_err(|error| error.to_string())?;
    let _waiting = blocked(|| format!("the connection manager to find a way to {address}"));
    id.resolve_address(address).map_err(failed)?;
    expect(&id, deadline, |what| matches!(what, What::AddressResolved))?;
    let device = id.device().ok_or("no RDMA device leads to this address")?;
    id.set_ack_timeout(ack_timeout(device));
    id.resolve_route().map_err(failed)?;
    expect(&id, deadline, |what| matches!(what, What::RouteResolved))?;
    Ok((id, device))
}

/// Asks for the connection and waits until it is there; gives what came with the reply, and how many READs without an answer
/// there may be.
pub(super) fn connect(id: &Id, data: &[u8], reads: u8, deadline: Instant) -> Result<(Vec<u8>, u8), String> {
    let _waiting = blocked(|| "the connection manager to make a connection".to_owned());
    id.connect(data, 0, reads).map_err(|error| error.to_string())?;
    match expect(id, deadline, |what| matches!(what, What::Established { .. }))? {
        What::Established { data, reads } => Ok((data, reads)),
        _ => unreachable!("it was expected"),
    }
}

/// Waits for something to happen to one end, which is the only one of its channel.
fn expect(id: &Id, deadline: Instant, is_it: impl Fn(&What) -> bool) -> Result<What, String> {
    loop {
        let Some(event) = id.channel.wait(deadline) else { return Err("it does not answer".to_owned()) };
        match event.what {
            what if is_it(&what) => return Ok(what),
            What::Refused(reason) if reason.is_empty() => {
                return Err("nobody listens there, or it refuses connections".to_owned());
            }
            What::Refused(reason) => return Err(reason),
            What::Failed(reason) => return Err(reason.to_owned()),
            What::Ended => return Err("it has closed the connection".to_owned()),
            _ => {}
        }
    }
}

/// The error for an address that can not be connected to.
pub(super) fn cannot_connect(address: &str, reason: impl Into<Box<str>>) -> Error {
    Error::from(error::CannotConnect { address: address.into(), reason: reason.into() })
}
