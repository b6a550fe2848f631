//! An identifier of the connection manager: an end of a connection, or a listener.
//!
//! The library changes an identifier's structure when any thread takes an event of it. So every call with an identifier, and every read of its
//! structure, is made under the lock of its channel ([`Id::locked`]). This is the control path: work requests and completions do not take the lock.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::binding::{OPTION_ID, OPTION_ID_ACK_TIMEOUT, sys};
use super::device::{Device, last_error};
use super::manager::Channel;
use super::objects::{count_created, count_destroyed};
use crate::error::Result;
use crate::handshake;

/// The retransmissions of a packet before the connection fails: the largest value.
const RETRIES: u8 = 7;
/// The kernel's timeout for resolving an address or a route.
const RESOLVE_MS: i32 = 2_000;
/// The most connection requests that a listener queues.
const BACKLOG: i32 = 128;

/// An end of a connection, or a listener.
///
/// Invariant: `raw` is an identifier of `channel`, made by the library and destroyed by `drop` only. All its events are acknowledged by then,
/// as [`Channel::next`] acknowledges each under the lock that it takes it under. Its queue pair, if it has one, is destroyed by then: a
/// [`QueuePair`](super::queue_pair::QueuePair) owns its identifier.
#[derive(Debug)]
pub(super) struct Id {
    raw: NonNull<sys::rdma_cm_id>,
    channel: Arc<Channel>,
}

// SAFETY: the library binds an identifier to no thread, and all that is done with it is done under its channel's lock.
unsafe impl Send for Id {}
// SAFETY: as for `Send`: `&self` reaches the identifier through `locked` only, so by one thread at a time.
unsafe impl Sync for Id {}

/// A socket's address, as C has it.
enum SocketAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl SocketAddress {
    fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }

    /// Returns a pointer to the address. The library reads the family first, and then as many bytes as that has.
    fn as_mut_ptr<T>(&mut self) -> *mut T {
        match self {
            Self::V4(address) => (&raw mut *address).cast(),
            Self::V6(address) => (&raw mut *address).cast(),
        }
    }
}

impl Id {
    pub(super) fn new(channel: &Arc<Channel>) -> Result<Self> {
        let raw = channel.locked(|raw| {
            let mut id = null_mut();
            let space = sys::rdma_port_space::RDMA_PS_TCP;
            // SAFETY: the channel is alive and locked, and the call writes to `id`, which is ours. Without an error it is a new identifier.
            unsafe {
                match sys::rdma_create_id(raw, &raw mut id, null_mut(), space) {
                    0 => NonNull::new(id),
                    _ => None,
                }
            }
            .ok_or_else(|| last_error("use the RDMA connection manager"))
        });
        // SAFETY: it is new, it is of this channel, and nothing else has seen it.
        raw.map(|raw| unsafe { Self::of(raw, channel) })
    }

    /// Takes an identifier over.
    ///
    /// # Safety
    /// `raw` is an identifier of this channel that the library has made. It has no queue pair and no other owner: nothing else destroys it.
    pub(super) unsafe fn of(raw: NonNull<sys::rdma_cm_id>, channel: &Arc<Channel>) -> Self {
        count_created();
        Self { raw, channel: Arc::clone(channel) }
    }

    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Returns a number that identifies it in its channel.
    pub(super) fn number(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// Runs `work` under its channel's lock. The identifier is alive: `work` may call the library with it and read its structure.
    pub(super) fn locked<R>(&self, work: impl FnOnce(*mut sys::rdma_cm_id) -> R) -> R {
        self.channel.locked(|_| work(self.raw.as_ptr()))
    }

    /// As [`Id::locked`], for a function of the library that sets `errno` if it fails.
    fn call(&self, function: impl FnOnce(*mut sys::rdma_cm_id) -> c_int) -> io::Result<()> {
        self.locked(|id| if function(id) == 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
    }

    /// Returns the device of the connection, once it is known.
    pub(super) fn device(&self) -> Option<Device> {
        // SAFETY: `id` is alive and locked, so nothing changes the field while it is read. Whether it names an open device is looked up.
        Device::of(self.locked(|id| unsafe { (*id).verbs }))
    }

    pub(super) fn listen(&self, address: SocketAddr) -> io::Result<()> {
        let mut address = SocketAddress::new(address);
        // SAFETY: `id` is alive and locked, and the library copies the address during the call.
        self.call(|id| unsafe { sys::rdma_bind_addr(id, address.as_mut_ptr()) })?;
        // SAFETY: `id` is alive and locked.
        self.call(|id| unsafe { sys::rdma_listen(id, BACKLOG) })
    }

    /// Returns the port that it listens on.
    pub(super) fn port(&self) -> u16 {
        // SAFETY: `id` is alive and locked. The library zeroes the union when it makes an identifier, so all of it is initialised, and either
        // form of an address has the port in the same place.
        let port = self.locked(|id| unsafe { (*id).route.addr.src_addr_union.src_sin.sin_port });
        u16::from_be(port)
    }

    /// Starts to resolve an address to a device.
    pub(super) fn resolve_address(&self, address: SocketAddr) -> io::Result<()> {
        let mut address = SocketAddress::new(address);
        // SAFETY: `id` is alive and locked, and the library copies the address during the call; null stands for any address of this machine.
        self.call(|id| unsafe { sys::rdma_resolve_addr(id, null_mut(), address.as_mut_ptr(), RESOLVE_MS) })
    }

    /// Sets the time after which the device retransmits an unanswered packet: 4.096 us times two to this power.
    ///
    /// To be called before the route is resolved. Kernels that do not know the option use their own value.
    pub(super) fn set_ack_timeout(&self, exponent: u8) {
        let mut exponent = exponent;
        let value = (&raw mut exponent).cast();
        // SAFETY: `id` is alive and locked, and the library copies the one byte of the value during the call.
        let set = self.call(|id| unsafe {
            sys::rdma_set_option(id, OPTION_ID, OPTION_ID_ACK_TIMEOUT, value, size_of::<u8>())
        });
        drop(set);
    }

    pub(super) fn resolve_route(&self) -> io::Result<()> {
        // SAFETY: `id` is alive and locked.
        self.call(|id| unsafe { sys::rdma_resolve_route(id, RESOLVE_MS) })
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

    /// Requests the connection.
    pub(super) fn connect(&self, data: &[u8], answers: u8, reads: u8) -> io::Result<()> {
        let mut parameters = Self::parameters(data, answers, reads);
        // SAFETY: `id` is alive and locked. The library copies the parameters during the call, and with them as many bytes as they say, which are
        // at most those of `data`, which is borrowed until then.
        self.call(|id| unsafe { sys::rdma_connect(id, &raw mut parameters) })
    }

    /// Accepts the connection request of this identifier.
    pub(super) fn accept(&self, data: &[u8], answers: u8, reads: u8) -> io::Result<()> {
        let mut parameters = Self::parameters(data, answers, reads);
        // SAFETY: as for `connect`.
        self.call(|id| unsafe { sys::rdma_accept(id, &raw mut parameters) })
    }

    /// Refuses the connection request of this identifier, with a reason.
    pub(super) fn reject(&self, reason: &str) {
        let reason = handshake::truncate_reason(reason).as_bytes();
        // SAFETY: `id` is alive and locked, and the library copies at most as many bytes as the reason has during the call.
        let told =
            self.call(|id| unsafe { sys::rdma_reject(id, reason.as_ptr().cast(), reason.len() as u8) });
        // If the rejection is lost, the other side's own deadline ends its wait.
        drop(told);
    }

    /// Ends the connection, and notifies the other side.
    pub(super) fn disconnect(&self) {
        // SAFETY: `id` is alive and locked.
        let ended = self.call(|id| unsafe { sys::rdma_disconnect(id) });
        // An error means that it was not connected.
        drop(ended);
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.locked(|id| {
            // SAFETY: nothing destroys it but this, which runs once. All its events are acknowledged and its queue pair is destroyed (the invariant);
            // its channel is destroyed later, since it owns a share in it.
            count_destroyed("connection", unsafe { sys::rdma_destroy_id(id) });
        });
    }
}
