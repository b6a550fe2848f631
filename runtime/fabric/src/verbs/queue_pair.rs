//! A queue pair, and its end of a connection.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::binding::sys;
use super::device::last_error;
use super::identifier::Id;
use super::objects::{count_created, count_destroyed};
use super::queue::Completions;
use super::region::Domain;
use crate::error::{self, Error, Result};

/// A queue pair and its end of a connection.
///
/// Invariant: `raw` was created for `id` by `new`, and is destroyed by `drop` only: before `id`, and before its share in the domain and the
/// completion queue that it was made from.
#[derive(Debug)]
pub(super) struct QueuePair {
    raw: NonNull<sys::ibv_qp>,
    inline_bytes: u32,
    id: Id,
    _parts: (Arc<Domain>, Arc<Completions>),
}

// SAFETY: verbs may be called with a queue pair on any thread, several at a time; `raw` is only handed to them. It is destroyed once, by the
// owner, under the lock of the identifier's channel.
unsafe impl Send for QueuePair {}
// SAFETY: as for `Send`; all that `&self` does is call verbs, which lock what they change.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// Makes the queue pair of an identifier, for `requests` requests, and for inline WRITEs of up to `inline_bytes` bytes.
    ///
    /// # Errors
    /// The identifier, which has no queue pair then, and the reason: the device may support less.
    pub(super) fn new(
        id: Id,
        domain: &Arc<Domain>,
        completions: &Arc<Completions>,
        requests: u32,
        inline_bytes: u32,
    ) -> Result<Self, (Id, Error)> {
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
        let raw = id.locked(|id| {
            // SAFETY: `id` is alive and locked. The domain and the queue are alive, and stay so as long as the queue pair, which owns a share in
            // both. The attributes are initialised, and written to during the call only.
            unsafe {
                match sys::rdma_create_qp(id, domain.as_ptr(), &raw mut attributes) {
                    0 => NonNull::new((*id).qp),
                    _ => None,
                }
            }
            .ok_or_else(|| last_error("create a queue pair"))
        });
        match raw {
            Ok(raw) => {
                count_created();
                let inline_bytes = attributes.cap.max_inline_data;
                Ok(Self { raw, inline_bytes, id, _parts: (Arc::clone(domain), Arc::clone(completions)) })
            }
            Err(error) => Err((id, error)),
        }
    }

    /// Returns its identifier.
    pub(super) fn id(&self) -> &Id {
        &self.id
    }

    /// Returns the most bytes of an inline WRITE.
    pub(super) fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_qp {
        self.raw.as_ptr()
    }

    /// Posts a receive buffer.
    pub(super) fn receive(&self, number: u64, mut element: sys::ibv_sge) -> Result<()> {
        let mut request =
            sys::ibv_recv_wr { wr_id: number, next: null_mut(), sg_list: &raw mut element, num_sge: 1 };
        let mut refused = null_mut();
        // SAFETY: the queue pair is alive. The library reads the request and its one element during the call only. Where the message goes is
        // for the device to check (see `region`).
        let result = unsafe { sys::ibv_post_recv(self.raw.as_ptr(), &raw mut request, &raw mut refused) };
        done("receive a message", result)
    }

    /// Posts a message, signalled.
    pub(super) fn send(&self, number: u64, mut element: sys::ibv_sge) -> Result<()> {
        // SAFETY: the request consists of integers, raw pointers and unions of them, for all of which zero is valid.
        let mut request: sys::ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
        request.wr_id = number;
        request.sg_list = &raw mut element;
        request.num_sge = 1;
        request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        request.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        let mut refused = null_mut();
        // SAFETY: as for `receive`. It is not inline, so the library does not follow the element's address.
        let result = unsafe { sys::ibv_post_send(self.raw.as_ptr(), &raw mut request, &raw mut refused) };
        done("send a message", result)
    }

    /// Describes its state, as the device reports it.
    pub(super) fn queue_pair_state(&self) -> &'static str {
        let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        let mut first = MaybeUninit::<sys::ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair is alive, and the call writes to the two structures only, which are ours. The state is read through a pointer:
        // an integer that was zero, or that the call has written.
        let state = unsafe {
            let mask = sys::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
            if sys::ibv_query_qp(self.raw.as_ptr(), attributes.as_mut_ptr(), mask, first.as_mut_ptr()) != 0 {
                return "whose queue pair does not report its state";
            }
            (*attributes.as_ptr()).qp_state
        };
        match state {
            sys::ibv_qp_state::IBV_QPS_RTS => "whose queue pair is ready to send",
            sys::ibv_qp_state::IBV_QPS_ERR => "whose queue pair is in the error state",
            _ => "whose queue pair is in another state",
        }
    }

    /// Moves it to the error state: outstanding work requests complete with a flush error.
    pub(super) fn stop(&self) {
        let mut attributes = MaybeUninit::<sys::ibv_qp_attr>::zeroed();
        // SAFETY: the queue pair is alive. The attributes are integers and pointers, for which zero is valid; the library reads those that the mask
        // names. A queue pair that can not be moved is destroyed by its owner in the end.
        unsafe {
            (*attributes.as_mut_ptr()).qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
            let mask = sys::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
            sys::ibv_modify_qp(self.raw.as_ptr(), attributes.as_mut_ptr(), mask);
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let raw = self.raw.as_ptr();
        self.id.locked(|id| {
            // SAFETY: `new` created it and nothing destroys it but this, which runs once. `id` is alive and locked, so the connection manager does not
            // use its queue pair meanwhile, and finds none afterwards. This is what `rdma_destroy_qp` does, which does not say whether it succeeded.
            unsafe {
                if count_destroyed("queue pair", sys::ibv_destroy_qp(raw)) {
                    (*id).qp = null_mut();
                }
            }
        });
    }
}

/// Converts the result of a verbs function, which returns its error number.
fn done(action: &'static str, result: c_int) -> Result<()> {
    if result == 0 {
        return Ok(());
    }
    Err(Error::from(error::System { action, cause: io::Error::from_raw_os_error(result) }))
}
