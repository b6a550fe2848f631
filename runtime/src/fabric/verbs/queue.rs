//! Queues: posting work requests with one doorbell, and finding their completions.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::binding::sys;
use super::binding::sys::{ibv_wc_status as status, ibv_wr_opcode as opcode};
use super::device::{Device, Domain, Region, gone, last_error, made};
use super::manager::Id;
use super::pipeline::{Request, Ring, Verb};
use crate::error::Result;
use crate::layout::WORD_BYTES;

/// How many completions are taken at a time.
const BATCH: usize = 32;

/// A completion queue.
#[derive(Debug)]
pub(super) struct Completions {
    cq: NonNull<sys::ibv_cq>,
    channel: Option<NonNull<sys::ibv_comp_channel>>,
}

// SAFETY: the library's functions may be called with it on any thread, and it is destroyed once, by the owner.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    /// The number of its work request.
    pub(super) number: u64,
    pub(super) outcome: Outcome,
    /// How many bytes a message had.
    pub(super) bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Not executed, because of an earlier failure or because the connection is being torn down.
    Flushed,
    /// The other side never answered.
    NoAnswer,
    Failed(&'static str),
}

impl Completions {
    /// A queue for so many completions; if it `tells`, its descriptor says that there are some.
    pub(super) fn new(device: Device, capacity: u32, tells: bool) -> Result<Arc<Self>> {
        let context = device.as_ptr();
        // SAFETY: the context is open; what has been made is destroyed if the rest fails.
        unsafe {
            let channel = if tells {
                let channel = sys::ibv_create_comp_channel(context);
                Some(NonNull::new(channel).ok_or_else(|| last_error("create a completion channel"))?)
            } else {
                None
            };
            let channel_ptr = channel.map_or(null_mut(), NonNull::as_ptr);
            let cq = sys::ibv_create_cq(context, capacity.cast_signed(), null_mut(), channel_ptr, 0);
            let Some(cq) = NonNull::new(cq) else {
                let error = last_error("create a completion queue");
                channel.map(|channel| sys::ibv_destroy_comp_channel(channel.as_ptr()));
                return Err(error);
            };
            made();
            if channel.is_some() {
                made();
            }
            let completions = Self { cq, channel };
            if let Some(channel) = channel {
                let fd = channel.as_ref().fd;
                libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK);
                completions.tell_again();
            }
            Ok(Arc::new(completions))
        }
    }

    pub(super) fn as_ptr(&self) -> *mut sys::ibv_cq {
        self.cq.as_ptr()
    }

    /// The descriptor that says that there are completions.
    pub(super) fn descriptor(&self) -> Option<i32> {
        // SAFETY: the channel is there.
        self.channel.map(|channel| unsafe { channel.as_ref().fd })
    }

    /// Takes in what the descriptor said, and lets it speak again at the next completion. Look for completions afterwards.
    pub(super) fn tell_again(&self) {
        let Some(channel) = self.channel else { return };
        let (mut cq, mut context) = (null_mut(), null_mut());
        // SAFETY: the queue and its channel are there. What is not told is found when the queue is looked at next.
        unsafe {
            while sys::ibv_get_cq_event(channel.as_ptr(), &raw mut cq, &raw mut context) == 0 {
                sys::ibv_ack_cq_events(cq, 1);
            }
            sys::ibv_req_notify_cq(self.cq.as_ptr(), 0);
        }
    }

    /// Gives the completions that there are to `each`; gives how many.
    pub(super) fn take(&self, mut each: impl FnMut(Completion)) -> usize {
        let mut found = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; BATCH];
        let mut taken = 0;
        loop {
            // SAFETY: the queue is there and so many completions may be written.
            let count = unsafe {
                sys::ibv_poll_cq(
                    self.cq.as_ptr(),
                    i32::try_from(BATCH).unwrap_or(1),
                    found.as_mut_ptr().cast(),
                )
            };
            let count = usize::try_from(count).unwrap_or(0);
            for completion in &found[..count] {
                // SAFETY: the first `count` have been written.
                let completion = unsafe { completion.assume_init_ref() };
                let outcome = match completion.status {
                    status::IBV_WC_SUCCESS => Outcome::Done,
                    status::IBV_WC_WR_FLUSH_ERR => Outcome::Flushed,
                    status::IBV_WC_RETRY_EXC_ERR | status::IBV_WC_RNR_RETRY_EXC_ERR => Outcome::NoAnswer,
                    // SAFETY: the library gives a string that lives for ever, for any status.
                    other => Outcome::Failed(unsafe {
                        CStr::from_ptr(sys::ibv_wc_status_str(other)).to_str().unwrap_or("unknown status")
                    }),
                };
                let bytes = if outcome == Outcome::Done { completion.byte_len } else { 0 };
                each(Completion { number: completion.wr_id, outcome, bytes });
            }
            taken += count;
            if count < BATCH {
                return taken;
            }
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: they were created, and queue pairs, which hold references to their queues, are destroyed.
        unsafe {
            gone("completion queue", sys::ibv_destroy_cq(self.cq.as_ptr()));
            if let Some(channel) = self.channel {
                gone("completion channel", sys::ibv_destroy_comp_channel(channel.as_ptr()));
            }
        }
    }
}

/// Work requests that are being put together, to be posted with one doorbell.
///
/// Invariant: request `i` points to element `i` and to request `i + 1`, but for the last, whose `next` is null. So what is the
/// same for every request is written once.
pub(super) struct Batch {
    requests: Box<[sys::ibv_send_wr]>,
    elements: Box<[sys::ibv_sge]>,
    used: usize,
    /// Where the ring begins.
    ring: u64,
}

// SAFETY: its pointers lead to its own memory.
unsafe impl Send for Batch {}

/// Where a word of far memory is to the device of its node, and the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) key: u32,
}

impl Batch {
    /// For at most so many requests, at least one, from and to a ring.
    pub(super) fn new(capacity: usize, ring: &Region) -> Self {
        let (key, _) = ring.keys();
        let elements = vec![sys::ibv_sge { addr: 0, length: 0, lkey: key }; capacity];
        // SAFETY: all-zero integers, pointers and unions of them are valid.
        let requests = (0..capacity).map(|_| unsafe { MaybeUninit::zeroed().assume_init() });
        let mut batch = Self {
            requests: requests.collect(),
            elements: elements.into_boxed_slice(),
            used: 0,
            ring: ring.base(),
        };
        let (requests, elements) = (batch.requests.as_mut_ptr(), batch.elements.as_mut_ptr());
        for index in 0..capacity {
            // SAFETY: the index is below the capacity of both, and so is the next where it is used.
            unsafe {
                let request = &mut *requests.add(index);
                request.sg_list = elements.add(index);
                request.num_sge = 1;
                request.next = if index + 1 < capacity { requests.add(index + 1) } else { null_mut() };
            }
        }
        batch
    }

    pub(super) fn is_full(&self) -> bool {
        self.used == self.requests.len()
    }

    /// Adds a request. What it writes from elsewhere than the ring must stay where it is until the batch is posted.
    pub(super) fn push(&mut self, request: &Request<'_>, target: Target) {
        let index = self.used;
        self.used += 1;
        let (made, element) = (&mut self.requests[index], &mut self.elements[index]);
        let rdma = sys::wr_t { rdma: sys::rdma_t { remote_addr: target.address, rkey: target.key } };
        let atomic = |compare_add, swap| sys::wr_t {
            atomic: sys::atomic_t { remote_addr: target.address, compare_add, swap, rkey: target.key },
        };
        let mut flags = sys::ibv_send_flags(0);
        let local = |word: usize| self.ring + (word * WORD_BYTES) as u64;
        let (opcode, wr, addr, words) = match request.verb {
            Verb::Read { ring, words } => (opcode::IBV_WR_RDMA_READ, rdma, local(ring), words),
            Verb::Write { ring, words } => (opcode::IBV_WR_RDMA_WRITE, rdma, local(ring), words),
            Verb::WriteInline(words) => {
                flags |= sys::ibv_send_flags::IBV_SEND_INLINE;
                (opcode::IBV_WR_RDMA_WRITE, rdma, words.as_ptr().addr() as u64, words.len())
            }
            Verb::CompareExchange { ring, expected, new } => {
                (opcode::IBV_WR_ATOMIC_CMP_AND_SWP, atomic(expected, new), local(ring), 1)
            }
            Verb::FetchAdd { ring, addend } => {
                (opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(addend, 0), local(ring), 1)
            }
        };
        if request.fence {
            flags |= sys::ibv_send_flags::IBV_SEND_FENCE;
        }
        if request.signal {
            flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED;
        }
        (element.addr, element.length) = (addr, (words * WORD_BYTES) as u32);
        (made.wr_id, made.opcode, made.send_flags, made.wr) = (request.position, opcode, flags.0, wr);
    }

    /// Posts all of it, the last request signalled, with one doorbell; gives whether the device took all.
    pub(super) fn post(&mut self, id: &Id) -> bool {
        let Some(last) = self.used.checked_sub(1) else { return true };
        self.used = 0;
        let requests = self.requests.as_mut_ptr();
        let mut refused = null_mut();
        // SAFETY: the last request is one of them, and its link is as it was afterwards. The queue pair is there; the requests,
        // their elements and what is written inline are until this returns; the ring, until the requests have completed or the
        // queue pair is destroyed, which its owner sees to.
        unsafe {
            let last = &mut *requests.add(last);
            last.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
            let next = std::mem::replace(&mut last.next, null_mut());
            let result = sys::ibv_post_send(id.qp(), requests, &raw mut refused);
            last.next = next;
            result == 0
        }
    }
}

/// The buffers of a connection that carries messages.
#[derive(Debug)]
pub(super) struct Messages {
    /// One to send from, then one to receive in.
    region: Region,
    bytes: usize,
}

/// The numbers of their work requests.
pub(super) const SENT: u64 = 1;
pub(super) const RECEIVED: u64 = 2;

impl Messages {
    /// For messages of up to so many bytes each way.
    pub(super) fn new(domain: &Arc<Domain>, bytes: usize) -> Result<Self> {
        let bytes = bytes.next_multiple_of(WORD_BYTES);
        let region = Region::new(domain, 2 * bytes as u64, super::device::Reach::Local)?;
        Ok(Self { region, bytes })
    }

    fn element(&self, offset: usize, bytes: usize) -> sys::ibv_sge {
        sys::ibv_sge {
            addr: self.region.base() + offset as u64,
            length: bytes as u32,
            lkey: self.region.keys().0,
        }
    }

    /// Makes room for one message to arrive.
    pub(super) fn expect(&self, id: &Id) -> Result<()> {
        let mut element = self.element(self.bytes, self.bytes);
        let mut request =
            sys::ibv_recv_wr { wr_id: RECEIVED, next: null_mut(), sg_list: &raw mut element, num_sge: 1 };
        let mut refused = null_mut();
        // SAFETY: the queue pair is there, and so is the buffer, until its owner has destroyed the queue pair.
        let result = unsafe { sys::ibv_post_recv(id.qp(), &raw mut request, &raw mut refused) };
        if result == 0 { Ok(()) } else { Err(last_error("receive a message")) }
    }

    /// The message that has arrived, of so many bytes.
    pub(super) fn received(&self, bytes: u32) -> Vec<u8> {
        let bytes = (bytes as usize).min(self.bytes);
        let mut words = vec![0_u64; bytes.div_ceil(WORD_BYTES)];
        self.region.read(self.bytes / WORD_BYTES, &mut words);
        let mut message = bytemuck::cast_slice(&words).to_vec();
        message.truncate(bytes);
        message
    }

    pub(super) fn send(&self, id: &Id, message: &[u8]) -> Result<()> {
        assert!(message.len() <= self.bytes, "a message is no longer than its kind");
        let mut words = vec![0_u64; message.len().div_ceil(WORD_BYTES)];
        bytemuck::cast_slice_mut(&mut words)[..message.len()].copy_from_slice(message);
        self.region.write(0, &words);
        let mut element = self.element(0, message.len());
        // SAFETY: all-zero integers, pointers and unions of them are valid.
        let mut request: sys::ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
        request.wr_id = SENT;
        request.sg_list = &raw mut element;
        request.num_sge = 1;
        request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        request.send_flags = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        let mut refused = null_mut();
        // SAFETY: as for `expect`.
        let result = unsafe { sys::ibv_post_send(id.qp(), &raw mut request, &raw mut refused) };
        if result == 0 { Ok(()) } else { Err(last_error("send a message")) }
    }
}
