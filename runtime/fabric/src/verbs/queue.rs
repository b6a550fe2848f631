//! Completion queues, and the message buffers of control connections.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::binding::sys;
use super::binding::sys::{ibv_wc_opcode as opcode, ibv_wc_status as status};
use super::device::{Device, last_error, set_nonblocking_fd};
use super::objects::{count_created, count_destroyed};
use super::queue_pair::QueuePair;
use super::region::{Access, Domain, Region};
use crate::error::Result;
use crate::lanes::pipeline::Ring;
use crate::lanes::wire::{Completion, Outcome};
use farfield_words::WORD_BYTES;

/// The most completions that are taken at a time.
const BATCH: usize = 32;

/// A completion channel: its descriptor becomes readable when a completion arrives.
///
/// Invariant: `raw` was created by `new` and is destroyed by `drop` only. Its descriptor is open, and reading from it does not wait.
#[derive(Debug)]
struct CompletionChannel(NonNull<sys::ibv_comp_channel>);

/// A completion queue.
///
/// Invariant: `cq` was created by `new` and is destroyed by `drop` only, which runs before `channel` is dropped. No other queue uses `channel`.
#[derive(Debug)]
pub(super) struct Completions {
    cq: NonNull<sys::ibv_cq>,
    channel: Option<CompletionChannel>,
}

// SAFETY: verbs may be called with a queue or a channel on any thread, several at a time ("libibverbs is fully thread safe", its
// documentation); the pointers are handed to them, and the channel's descriptor, which is read here, does not change. Each is destroyed once,
// by `drop`, which has the only reference left.
unsafe impl Send for Completions {}
// SAFETY: as for `Send`: `&self` calls verbs and reads the descriptor.
unsafe impl Sync for Completions {}

impl Completions {
    /// Makes a queue of `capacity` completions. If `has_channel`, it has a descriptor that becomes readable when a completion arrives.
    pub(super) fn new(device: Device, capacity: u32, has_channel: bool) -> Result<Arc<Self>> {
        let channel = has_channel.then(|| CompletionChannel::new(device)).transpose()?;
        let channel_ptr = channel.as_ref().map_or(null_mut(), |channel| channel.0.as_ptr());
        // SAFETY: a `Device` is an open context, which is never closed. The channel is null or alive, and dropped after the queue; or here, if no
        // queue is made.
        let cq = unsafe {
            sys::ibv_create_cq(device.as_ptr(), capacity.cast_signed(), null_mut(), channel_ptr, 0)
        };
        let cq = NonNull::new(cq).ok_or_else(|| last_error("create a completion queue"))?;
        count_created();
        let completions = Self { cq, channel };
        completions.rearm();
        Ok(Arc::new(completions))
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_cq {
        self.cq.as_ptr()
    }

    /// Returns the descriptor that becomes readable when a completion arrives.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    /// Acknowledges the descriptor's events, and arms it for the next completion. Poll for completions afterwards.
    pub(super) fn rearm(&self) {
        let Some(channel) = &self.channel else { return };
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: the queue and its channel are alive, and the calls write to `cq` and `context`, which are ours. An event is of this queue, as
        // no other queue uses the channel, and is acknowledged once; so destroying the queue, which waits for that, does not wait.
        unsafe {
            while sys::ibv_get_cq_event(channel.0.as_ptr(), &raw mut cq, &raw mut context) == 0 {
                sys::ibv_ack_cq_events(cq, 1);
            }
            // A completion without an event is found by the next poll.
            sys::ibv_req_notify_cq(self.cq.as_ptr(), 0);
        }
    }

    /// Passes all available completions to `each`. Returns their number.
    #[inline]
    pub(super) fn take(&self, mut each: impl FnMut(Completion)) -> usize {
        let mut found = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; BATCH];
        let mut taken = 0;
        loop {
            let room = i32::try_from(BATCH).unwrap_or(1);
            // SAFETY: the queue is alive, and `found` has room for as many completions as the call may write.
            let count = unsafe { sys::ibv_poll_cq(self.cq.as_ptr(), room, found.as_mut_ptr().cast()) };
            let count = usize::try_from(count).unwrap_or(0);
            for completion in &found[..count] {
                // SAFETY: the call has written `count` completions.
                each(unsafe { Completion::read(completion) });
            }
            taken += count;
            if count < BATCH {
                return taken;
            }
        }
    }
}

impl Completion {
    /// Reads a completion of the library.
    ///
    /// A driver omits fields that have no meaning for the completion's kind, so the structure may be initialised in part only. Its fields are
    /// read one by one: those that `ibv_poll_cq` names valid for any status, then for success, then for a received message.
    ///
    /// # Safety
    /// `ibv_poll_cq` has returned it.
    #[inline]
    unsafe fn read(completion: &MaybeUninit<sys::ibv_wc>) -> Self {
        let completion = completion.as_ptr();
        // SAFETY: `wr_id` and `status` are valid in each completion; `opcode`, of a request that was executed; `byte_len`, of one that has received.
        unsafe {
            let outcome = Outcome::of((*completion).status);
            let has_received = outcome == Outcome::Done && (*completion).opcode & opcode::IBV_WC_RECV != 0;
            let bytes = if has_received { (*completion).byte_len } else { 0 };
            Self { number: (*completion).wr_id, outcome, bytes }
        }
    }
}

impl Outcome {
    #[inline]
    fn of(status: status::Type) -> Self {
        if status == status::IBV_WC_SUCCESS { Self::Done } else { Self::of_failure(status) }
    }

    #[cold]
    fn of_failure(status: status::Type) -> Self {
        match status {
            status::IBV_WC_WR_FLUSH_ERR => Self::Flushed,
            status::IBV_WC_RETRY_EXC_ERR | status::IBV_WC_RNR_RETRY_EXC_ERR => Self::NoAnswer,
            other => Self::failed(other),
        }
    }

    fn failed(status: status::Type) -> Self {
        // SAFETY: for any number, the library returns a constant string of its own, and it is not unloaded.
        let name = unsafe { CStr::from_ptr(sys::ibv_wc_status_str(status)) };
        Self::Failed(name.to_str().unwrap_or("unknown status"))
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: `new` created it and nothing destroys it but this, which runs once. Queue pairs own shares in their queues, so none exists that
        // would use it; if destroying one of those failed, the device refuses this and the queue stays.
        count_destroyed("completion queue", unsafe { sys::ibv_destroy_cq(self.cq.as_ptr()) });
    }
}

impl CompletionChannel {
    fn new(device: Device) -> Result<Self> {
        const ACTION: &str = "create a completion channel";
        // SAFETY: a `Device` is an open context, which is never closed.
        let raw = unsafe { sys::ibv_create_comp_channel(device.as_ptr()) };
        let channel = Self(NonNull::new(raw).ok_or_else(|| last_error(ACTION))?);
        count_created();
        // `Completions::rearm` takes events until there are none.
        set_nonblocking_fd(channel.as_fd(), ACTION)?;
        Ok(channel)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive, its descriptor was set when it was made, and is open until the channel is destroyed, which the borrow
        // excludes.
        unsafe { BorrowedFd::borrow_raw(self.0.as_ref().fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: `new` created it and nothing destroys it but this, which runs once. The queue that uses it owns it, and is destroyed first.
        count_destroyed("completion channel", unsafe { sys::ibv_destroy_comp_channel(self.0.as_ptr()) });
    }
}

/// The message buffers of a connection.
#[derive(Debug)]
pub(super) struct Messages {
    /// The send buffer, then the receive buffer.
    region: Region,
    bytes: usize,
}

/// The numbers of their work requests.
pub(super) const SENT: u64 = 1;
pub(super) const RECEIVED: u64 = 2;

impl Messages {
    /// Makes buffers for messages of up to `bytes` bytes each way.
    pub(super) fn new(domain: &Arc<Domain>, bytes: usize) -> Result<Self> {
        let bytes = bytes.next_multiple_of(WORD_BYTES);
        let region = Region::new(domain, 2 * bytes as u64, Access::Local)?;
        Ok(Self { region, bytes })
    }

    /// Posts the receive buffer for one message.
    pub(super) fn expect(&self, queue_pair: &QueuePair) -> Result<()> {
        queue_pair.receive(RECEIVED, self.region.element(self.bytes, self.bytes))
    }

    /// Returns the received message of `bytes` bytes.
    pub(super) fn received(&self, bytes: u32) -> Vec<u8> {
        let bytes = (bytes as usize).min(self.bytes);
        let mut words = vec![0_u64; bytes.div_ceil(WORD_BYTES)];
        self.region.read(self.bytes / WORD_BYTES, &mut words);
        let mut message = bytemuck::cast_slice(&words).to_vec();
        message.truncate(bytes);
        message
    }

    pub(super) fn send(&self, queue_pair: &QueuePair, message: &[u8]) -> Result<()> {
        assert!(message.len() <= self.bytes, "a message is no longer than its kind");
        let mut words = vec![0_u64; message.len().div_ceil(WORD_BYTES)];
        bytemuck::cast_slice_mut(&mut words)[..message.len()].copy_from_slice(message);
        self.region.write(0, &words);
        queue_pair.send(SENT, self.region.element(0, message.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a completion whose omitted fields are uninitialised.
    fn read(number: u64, status: status::Type, opcode: opcode::Type, bytes: u32) -> (u64, Outcome, u32) {
        let mut completion = MaybeUninit::<sys::ibv_wc>::uninit();
        let wc = completion.as_mut_ptr();
        // SAFETY: `wc` points to `completion`, and every field that is read of it is written.
        let Completion { number, outcome, bytes } = unsafe {
            ((*wc).wr_id, (*wc).status, (*wc).opcode, (*wc).byte_len) = (number, status, opcode, bytes);
            Completion::read(&completion)
        };
        (number, outcome, bytes)
    }

    #[test]
    fn fields_that_a_driver_omits_are_not_read() {
        const ANYTHING: u32 = 99;
        let written = read(7, status::IBV_WC_SUCCESS, opcode::IBV_WC_RDMA_WRITE, ANYTHING);
        assert_eq!(written, (7, Outcome::Done, 0));
        let received = read(RECEIVED, status::IBV_WC_SUCCESS, opcode::IBV_WC_RECV, 48);
        assert_eq!(received, (RECEIVED, Outcome::Done, 48));
        let flushed = read(9, status::IBV_WC_WR_FLUSH_ERR, opcode::IBV_WC_RECV, ANYTHING);
        assert_eq!(flushed, (9, Outcome::Flushed, 0));
    }
}
