//! Work requests that are posted with one doorbell.
//!
//! The device takes a linked list of requests. Their structures are made and linked once for a lane. [`Batch::add`] fills in the next one;
//! [`Batch::post`] cuts the list behind the last, rings the doorbell, and joins the list again.
//!
//! All addresses in requests are of words of the lane's ring. The library copies the words of an inline request while it posts, so those must be
//! mapped then: `add` checks that they are in the ring, and `post` borrows it.

use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use super::binding::sys;
use super::binding::sys::ibv_wr_opcode as opcode;
use super::queue_pair::QueuePair;
use super::region::Region;
use crate::lanes::pipeline::{Request, Verb};
use crate::lanes::wire::Refused;
use farfield_words::WORD_BYTES;

/// A work request, and the one range of local memory that it reads or writes.
struct Slot {
    request: sys::ibv_send_wr,
    element: sys::ibv_sge,
}

/// Room for work requests, and the first `used` of them.
///
/// Invariants:
/// 1. `slots` is a boxed slice that the batch owns, and that is only reached through this pointer. The request of slot `i` points to the element of
///    slot `i` and to the request of slot `i + 1`, the last to null; these pointers are made from `slots`, so they stay valid however the batch itself
///    is moved. So the parts that are equal for all requests are written once.
/// 2. The element of an inline request among the first `used` is a range of the `ring_words` words at `ring`.
pub(super) struct Batch {
    slots: NonNull<[Slot]>,
    used: usize,
    /// The ring's start, as the device addresses it, and its length.
    ring: u64,
    ring_words: usize,
}

// SAFETY: the batch owns the memory to which it points; that holds integers and pointers into itself.
unsafe impl Send for Batch {}

impl Batch {
    /// Makes a batch of at most `capacity` requests, from and to a ring.
    pub(super) fn new(capacity: usize, ring: &Region) -> Self {
        Self::of(capacity, ring.base(), ring.words().len(), ring.keys().0)
    }

    fn of(capacity: usize, ring: u64, ring_words: usize, key: u32) -> Self {
        let slot = |_| Slot {
            // SAFETY: a request consists of integers, raw pointers and unions of them, for all of which zero is valid.
            request: unsafe { MaybeUninit::zeroed().assume_init() },
            element: sys::ibv_sge { addr: 0, length: 0, lkey: key },
        };
        let slots: Box<[Slot]> = (0..capacity).map(slot).collect();
        let slots = NonNull::from(Box::leak(slots));
        let first = slots.cast::<Slot>().as_ptr();
        for index in 0..capacity {
            // SAFETY: `index`, and the next where it is used, are below the number of slots, which were leaked just now and have no other reference.
            unsafe {
                let slot = first.add(index);
                (*slot).request.sg_list = &raw mut (*slot).element;
                (*slot).request.num_sge = 1;
                (*slot).request.next =
                    if index + 1 < capacity { &raw mut (*first.add(index + 1)).request } else { null_mut() };
            }
        }
        Self { slots, used: 0, ring, ring_words }
    }

    /// Adds a request.
    ///
    /// # Panics
    /// If the batch is full, or the request writes words inline that are not in the ring.
    #[allow(clippy::inline_always)] // the verb of most requests is constant
    #[inline(always)]
    pub(super) fn add(&mut self, request: Request) {
        let ring = self.ring;
        // SAFETY: the slots are the batch's own, which is borrowed mutably; the reference ends with this function.
        let Slot { request: made, element } = unsafe { &mut self.slots.as_mut()[self.used] };
        let (remote_addr, rkey) = (request.target.address, request.target.key);
        let local = |word: usize| ring + (word * WORD_BYTES) as u64;
        let rdma = sys::rdma_t { remote_addr, rkey };
        let atomic = |compare_add, swap| sys::atomic_t { remote_addr, compare_add, swap, rkey };
        let flag = |is_set, flag: sys::ibv_send_flags| if is_set { flag.0 } else { 0 };
        let mut flags = flag(request.fence, sys::ibv_send_flags::IBV_SEND_FENCE)
            | flag(request.signal, sys::ibv_send_flags::IBV_SEND_SIGNALED);
        let (opcode, addr, words) = match request.verb {
            Verb::Read { ring, words } => {
                made.wr.rdma = rdma;
                (opcode::IBV_WR_RDMA_READ, local(ring), words)
            }
            Verb::Write { ring, words, inline } => {
                if inline {
                    let is_inside = ring.checked_add(words).is_some_and(|end| end <= self.ring_words);
                    assert!(is_inside, "the library copies words of the ring");
                    flags |= sys::ibv_send_flags::IBV_SEND_INLINE.0;
                }
                made.wr.rdma = rdma;
                (opcode::IBV_WR_RDMA_WRITE, local(ring), words)
            }
            Verb::CompareExchange { ring, expected, new } => {
                made.wr.atomic = atomic(expected, new);
                (opcode::IBV_WR_ATOMIC_CMP_AND_SWP, local(ring), 1)
            }
            Verb::FetchAdd { ring, addend } => {
                made.wr.atomic = atomic(addend, 0);
                (opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, local(ring), 1)
            }
        };
        (element.addr, element.length) = (addr, (words * WORD_BYTES) as u32);
        (made.wr_id, made.opcode, made.send_flags) = (request.position, opcode, flags);
        self.used += 1;
    }

    /// Signals the request that was added last.
    pub(super) fn signal_last(&mut self) {
        if let Some(last) = self.used.checked_sub(1) {
            // SAFETY: as in `add`.
            let last = unsafe { &mut self.slots.as_mut()[last] };
            last.request.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
    }

    /// Posts the requests that were added since the last doorbell, if there are any; the last one is signalled. `ring` is the one that the batch was
    /// made for.
    #[inline]
    pub(super) fn post(&mut self, queue_pair: &QueuePair, ring: &Region) -> Result<(), Refused> {
        assert_eq!(ring.base(), self.ring);
        self.post_to(|requests| {
            let mut refused = null_mut();
            // SAFETY: the queue pair is alive, and `requests` is a list that the function may read (see `post_to`). It reads the list, and inline
            // words, during the call only ("IBV_SEND_INLINE: … the buffers can be reused immediately after the call returns"). Those are of the
            // ring, which is borrowed meanwhile, and which begins where the batch's does, so it is that (invariant 2). The device checks the addresses
            // of elements that are not inline (see `region`).
            unsafe { sys::ibv_post_send(queue_pair.as_ptr(), requests, &raw mut refused) == 0 }
        })
    }

    /// As [`Batch::post`], with a function for the doorbell, which returns whether the device took all requests. During that call it may follow
    /// the list of requests, each to its element, and may read all of it.
    #[inline]
    fn post_to(&mut self, doorbell: impl FnOnce(*mut sys::ibv_send_wr) -> bool) -> Result<(), Refused> {
        let Some(last) = self.used.checked_sub(1) else { return Ok(()) };
        self.used = 0;
        let first = self.slots.cast::<Slot>().as_ptr();
        // SAFETY: there are more than `last` slots, since `add` has filled in that one, and this function has the only access to them: `self` is
        // borrowed mutably. The list that `doorbell` is given ends at the last request that was added, and is whole again afterwards.
        let took_all = unsafe {
            let last = &raw mut (*first.add(last)).request;
            (*last).send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
            let next = std::mem::replace(&mut (*last).next, null_mut());
            let took_all = doorbell(&raw mut (*first).request);
            (*last).next = next;
            took_all
        };
        if took_all { Ok(()) } else { Err(Refused) }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: `of` leaked it from a box and nothing else frees it; no pointer into it is used after this.
        drop(unsafe { Box::from_raw(self.slots.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::lanes::pipeline::Target;

    const CAPACITY: usize = 4;
    const KEY: u32 = 5;
    const TARGET: Target = Target { address: 64, key: 9 };
    const RING_WORDS: usize = 8;

    /// A ring, and a batch for it.
    fn batch() -> (Box<[AtomicU64]>, Batch) {
        let ring: Box<[AtomicU64]> = (0..RING_WORDS as u64).map(AtomicU64::new).collect();
        let batch = Batch::of(CAPACITY, ring.as_ptr().expose_provenance() as u64, RING_WORDS, KEY);
        (ring, batch)
    }

    /// A request as the device has read it: its number, whether it is signalled, and its inline words.
    type Seen = (u64, bool, Vec<u64>);

    /// Follows a list of requests as the library does, to each element and to the words that are inline.
    fn follow(mut request: *mut sys::ibv_send_wr) -> Vec<Seen> {
        let mut seen = Vec::new();
        while !request.is_null() {
            // SAFETY: `post_to` passes a list that may be followed and read. Inline words are of the ring, which each test keeps.
            unsafe {
                assert_eq!((*request).num_sge, 1);
                let element = *(*request).sg_list;
                assert_eq!(element.lkey, KEY);
                let flags = (*request).send_flags;
                let mut words = Vec::new();
                if flags & sys::ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
                    let from = std::ptr::with_exposed_provenance::<u64>(element.addr as usize);
                    words = std::slice::from_raw_parts(from, element.length as usize / WORD_BYTES).to_vec();
                }
                let signalled = flags & sys::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0;
                seen.push(((*request).wr_id, signalled, words));
                request = (*request).next;
            }
        }
        seen
    }

    fn post(batch: &mut Batch) -> Vec<Seen> {
        let mut seen = Vec::new();
        let posted = batch.post_to(|first| {
            seen = follow(first);
            true
        });
        assert_eq!(posted, Ok(()));
        seen
    }

    fn writing(position: u64, ring: usize, words: usize) -> Request {
        let verb = Verb::Write { ring, words, inline: true };
        Request { verb, target: TARGET, position, fence: false, signal: false }
    }

    #[test]
    fn inline_words_are_read_from_the_ring_when_the_doorbell_rings() {
        let (ring, mut batch) = batch();
        for round in 0..20 {
            batch.add(writing(round, 2, 2));
            batch.add(writing(round + 1, 7, 1));
            ring[7].store(round, Ordering::Relaxed);
            assert_eq!(post(&mut batch), [(round, false, vec![2, 3]), (round + 1, true, vec![round])]);
            assert_eq!(post(&mut batch), [], "nothing is posted again");
        }
    }

    #[test]
    fn inline_words_outside_of_the_ring_are_refused() {
        for (at, words) in [(RING_WORDS, 1), (RING_WORDS - 1, 2), (usize::MAX, 2)] {
            let (_ring, mut batch) = batch();
            let add = std::panic::AssertUnwindSafe(|| batch.add(writing(0, at, words)));
            assert!(std::panic::catch_unwind(add).is_err());
            assert_eq!(post(&mut batch), [], "it was not added");
        }
    }

    #[test]
    fn a_request_has_its_verb_its_target_and_its_flags() {
        let (ring, mut batch) = batch();
        let request = |verb, fence, signal| Request { verb, target: TARGET, position: 3, fence, signal };
        batch.add(request(Verb::CompareExchange { ring: 1, expected: 7, new: 8 }, true, false));
        batch.add(request(Verb::FetchAdd { ring: 2, addend: 6 }, false, true));
        batch.add(request(Verb::Read { ring: 3, words: 4 }, false, false));
        batch.signal_last();
        batch.add(request(Verb::Write { ring: 0, words: 1, inline: false }, true, false));
        let (fence, signal) =
            (sys::ibv_send_flags::IBV_SEND_FENCE.0, sys::ibv_send_flags::IBV_SEND_SIGNALED.0);
        let posted = batch.post_to(|mut request| {
            let base = ring.as_ptr().addr() as u64;
            let expected = [
                (opcode::IBV_WR_ATOMIC_CMP_AND_SWP, fence, base + 8, 8),
                (opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, signal, base + 16, 8),
                (opcode::IBV_WR_RDMA_READ, signal, base + 24, 32),
                (opcode::IBV_WR_RDMA_WRITE, fence | signal, base, 8),
            ];
            for (index, expected) in expected.into_iter().enumerate() {
                // SAFETY: `post_to` passes a list that may be followed and read. Each variant of the union begins with the same integers as far as they
                // are read, which `add` has written.
                unsafe {
                    let (made, element) = (&*request, &*(*request).sg_list);
                    assert_eq!((made.opcode, made.send_flags, element.addr, element.length), expected);
                    assert_eq!((made.wr_id, made.wr.rdma.remote_addr), (3, TARGET.address));
                    if index < 2 {
                        assert_eq!(made.wr.atomic.rkey, TARGET.key);
                        let operands = (made.wr.atomic.compare_add, made.wr.atomic.swap);
                        assert_eq!(operands, [(7, 8), (6, 0)][index]);
                    } else {
                        assert_eq!(made.wr.rdma.rkey, TARGET.key);
                    }
                    request = made.next;
                }
            }
            request.is_null()
        });
        assert_eq!(posted, Ok(()));
    }

    #[test]
    fn a_batch_can_be_moved_and_used_again_also_if_it_was_full_or_refused() {
        let (_ring, mut batch) = batch();
        for refuses in [false, true, false] {
            let mut moved = Box::new(batch);
            for position in 0..CAPACITY as u64 {
                moved.add(writing(position, position as usize, 1));
            }
            let add = std::panic::AssertUnwindSafe(|| moved.add(writing(9, 0, 1)));
            assert!(std::panic::catch_unwind(add).is_err(), "it is full");
            if refuses {
                assert_eq!(moved.post_to(|_| false), Err(Refused));
            } else {
                let expected: Vec<Seen> = (0..4).map(|i| (i, i == 3, vec![i])).collect();
                assert_eq!(post(&mut moved), expected);
            }
            batch = *moved;
        }
        assert_eq!(post(&mut batch), []);
        batch.add(writing(7, 0, 1));
        assert_eq!(post(&mut batch), [(7, true, vec![0])]);
    }
}
