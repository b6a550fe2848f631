//! Work requests that are posted with one doorbell.
//!
//! The device takes a linked list of requests. Their structures are made and linked once for a lane. Posting fills them in, cuts the list behind the
//! last, rings the doorbell, and joins the list again.
//!
//! The library copies the inline words of a request while it posts. So they must stay in place from filling in until the doorbell has rung. Filling
//! in and ringing are therefore one function, [`Batch::post`], over requests that borrow their words for a lifetime of the caller's: longer than the
//! call.

use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use super::binding::sys;
use super::binding::sys::ibv_wr_opcode as opcode;
use super::queue_pair::QueuePair;
use super::region::Region;
use crate::lanes::pipeline::{Request, Verb};
use crate::lanes::wire::{Refused, Target};
use farfield_words::WORD_BYTES;

/// A work request, and the one range of local memory that it reads or writes.
struct Slot {
    request: sys::ibv_send_wr,
    element: sys::ibv_sge,
}

/// Room for work requests.
///
/// Invariant: `slots` is a boxed slice that the batch owns, and that is only reached through this pointer. The request of slot `i` points to
/// the element of slot `i` and to the request of slot `i + 1`, the last to null; these pointers are made from `slots`, so they stay valid
/// however the batch itself is moved. So the parts that are equal for all requests are written once.
pub(super) struct Batch {
    slots: NonNull<[Slot]>,
    /// The ring's start, as the device addresses it.
    ring: u64,
}

// SAFETY: the batch owns the memory to which it points; that holds integers and pointers into itself.
unsafe impl Send for Batch {}

impl Batch {
    /// Makes a batch of at most `capacity` requests, from and to a ring.
    pub(super) fn new(capacity: usize, ring: &Region) -> Self {
        Self::of(capacity, ring.base(), ring.keys().0)
    }

    fn of(capacity: usize, ring: u64, key: u32) -> Self {
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
        Self { slots, ring }
    }

    /// Posts the requests that `next` returns, until it returns `None` or the batch is full, with one doorbell; the last one is signalled.
    /// Returns their number; for 0 no doorbell was rung.
    pub(super) fn post<'a>(
        &mut self,
        queue_pair: &QueuePair,
        next: impl FnMut() -> Option<(Request<'a>, Target)>,
    ) -> Result<usize, Refused> {
        self.post_to(next, |requests| {
            let mut refused = null_mut();
            // SAFETY: the queue pair is alive, and `requests` is a list that the function may read (see `post_to`). It reads the list, and inline
            // words, during the call only ("IBV_SEND_INLINE: … the buffers can be reused immediately after the call returns"). The device checks the
            // addresses of elements that are not inline (see `region`).
            unsafe { sys::ibv_post_send(queue_pair.as_ptr(), requests, &raw mut refused) == 0 }
        })
    }

    /// As [`Batch::post`], with a function for the doorbell, which returns whether the device took all requests. During that call it may follow
    /// the list of requests, each to its element, and inline elements to their words, and may read all of it.
    fn post_to<'a>(
        &mut self,
        mut next: impl FnMut() -> Option<(Request<'a>, Target)>,
        doorbell: impl FnOnce(*mut sys::ibv_send_wr) -> bool,
    ) -> Result<usize, Refused> {
        let mut used = 0;
        while used < self.slots.len()
            && let Some((request, target)) = next()
        {
            self.fill(used, &request, target);
            used += 1;
        }
        let Some(last) = used.checked_sub(1) else { return Ok(0) };
        let first = self.slots.cast::<Slot>().as_ptr();
        // SAFETY: there are more than `last` slots, and this function has the only access to them: `self` is borrowed mutably. The list that
        // `doorbell` is given ends at the last request that was filled in, and is whole again afterwards; those before it were filled in by this
        // call, so the words that they write inline are borrowed for `'a`, which lasts until this returns.
        let took_all = unsafe {
            let last = &raw mut (*first.add(last)).request;
            (*last).send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
            let next = std::mem::replace(&mut (*last).next, null_mut());
            let took_all = doorbell(&raw mut (*first).request);
            (*last).next = next;
            took_all
        };
        if took_all { Ok(used) } else { Err(Refused) }
    }

    /// Fills in the variable parts of a request.
    #[inline]
    fn fill(&mut self, index: usize, request: &Request<'_>, target: Target) {
        let ring = self.ring;
        // SAFETY: the slots are the batch's own, which is borrowed mutably; the reference ends with this function.
        let Slot { request: made, element } = unsafe { &mut self.slots.as_mut()[index] };
        let Target { address: remote_addr, key: rkey } = target;
        let local = |word: usize| ring + (word * WORD_BYTES) as u64;
        let rdma = sys::rdma_t { remote_addr, rkey };
        let atomic = |compare_add, swap| sys::atomic_t { remote_addr, compare_add, swap, rkey };
        let mut flags = 0;
        let (opcode, addr, words) = match request.verb {
            Verb::Read { ring, words } => {
                made.wr.rdma = rdma;
                (opcode::IBV_WR_RDMA_READ, local(ring), words)
            }
            Verb::Write { ring, words } => {
                made.wr.rdma = rdma;
                (opcode::IBV_WR_RDMA_WRITE, local(ring), words)
            }
            Verb::WriteInline(words) => {
                made.wr.rdma = rdma;
                flags = sys::ibv_send_flags::IBV_SEND_INLINE.0;
                (opcode::IBV_WR_RDMA_WRITE, words.as_ptr().expose_provenance() as u64, words.len())
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
        if request.fence {
            flags |= sys::ibv_send_flags::IBV_SEND_FENCE.0;
        }
        if request.signal {
            flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        (element.addr, element.length) = (addr, (words * WORD_BYTES) as u32);
        (made.wr_id, made.opcode, made.send_flags) = (request.position, opcode, flags);
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
    use super::*;
    use crate::chain::RawChain;
    use crate::lanes::pipeline::{Credits, Pipeline, Ring};
    use farfield_words::Address;

    const CAPACITY: usize = 4;
    const RING: u64 = 0x1000;
    const KEY: u32 = 5;
    const CREDITS: Credits = Credits { requests: 64, reads: 64, words: 64, inline_words: 2 };

    struct NoRing;

    impl Ring for NoRing {
        fn read(&self, _: usize, _: &mut [u64]) {}
        fn write(&self, _: usize, _: &[u64]) {}
    }

    /// A request as the device has read it: its number, whether it is signalled, and its inline words.
    type Seen = (u64, bool, Vec<u64>);

    /// Follows a list of requests as the library does, to each element and to the words that are inline.
    fn follow(mut request: *mut sys::ibv_send_wr) -> Vec<Seen> {
        let mut seen = Vec::new();
        while !request.is_null() {
            // SAFETY: `post_to` passes a list that may be followed and read.
            unsafe {
                assert_eq!((*request).num_sge, 1);
                let element = *(*request).sg_list;
                assert_eq!(element.lkey, KEY);
                let flags = (*request).send_flags;
                let mut words = Vec::new();
                if flags & sys::ibv_send_flags::IBV_SEND_INLINE.0 != 0 {
                    let from = std::ptr::with_exposed_provenance::<u64>(element.addr as usize);
                    words = std::slice::from_raw_parts(from, element.length as usize / WORD_BYTES).to_vec();
                } else {
                    assert!((RING..RING + 512).contains(&element.addr));
                }
                let signalled = flags & sys::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0;
                seen.push(((*request).wr_id, signalled, words));
                request = (*request).next;
            }
        }
        seen
    }

    fn post(batch: &mut Batch, pipeline: &mut Pipeline) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut requests = pipeline.requests();
        let target = Target { address: 64, key: 9 };
        let posted = batch.post_to(
            || Some((requests.next(&NoRing)?, target)),
            |first| {
                seen = follow(first);
                true
            },
        );
        assert_eq!(posted, Ok(seen.len()));
        seen
    }

    fn writing(words: &[u64]) -> RawChain {
        let mut chain = RawChain::default();
        chain.write(Address::new(0, 64), words);
        chain
    }

    #[test]
    fn inline_words_are_intact_when_the_doorbell_rings() {
        let (mut batch, mut pipeline) = (Batch::of(CAPACITY, RING, KEY), Pipeline::new(CREDITS));
        for round in 0..20_u64 {
            let numbers = [round, round + 1, round + 2].map(|word| pipeline.push(writing(&[word, word * 2])));
            let inline: Vec<_> =
                post(&mut batch, &mut pipeline).into_iter().map(|(_, _, words)| words).collect();
            assert_eq!(inline, [round, round + 1, round + 2].map(|word| vec![word, word * 2]));
            pipeline.complete(u64::MAX, &NoRing);
            // Freed here, and the next round's are elsewhere, or in the same place.
            for number in numbers {
                pipeline.take(number).1.unwrap();
            }
        }
    }

    #[test]
    fn a_detached_chain_is_posted_from_its_own_words() {
        let (mut batch, mut pipeline) = (Batch::of(CAPACITY, RING, KEY), Pipeline::new(CREDITS));
        for word in 0..3 {
            let number = pipeline.push(writing(&[word]));
            pipeline.detach(number);
            pipeline.forget(number);
        }
        let inline: Vec<_> = post(&mut batch, &mut pipeline).into_iter().map(|(_, _, words)| words).collect();
        assert_eq!(inline, [[0], [1], [2]]);
        pipeline.complete(u64::MAX, &NoRing);
        assert_eq!(post(&mut batch, &mut pipeline), [], "nothing of them is posted again");
    }

    #[test]
    fn a_full_batch_leaves_requests_for_the_next_doorbell_also_after_a_move() {
        let (mut batch, mut pipeline) = (Batch::of(CAPACITY, RING, KEY), Pipeline::new(CREDITS));
        let mut chain = RawChain::default();
        for _ in 0..10 {
            chain.fetch_add(Address::new(0, 64), 1);
        }
        pipeline.push(chain);
        let mut next = 0;
        for length in [4, 4, 2, 0] {
            let mut moved = Box::new(batch);
            let seen = post(&mut moved, &mut pipeline);
            let expected: Vec<Seen> = (0..length).map(|i| (next + i, i + 1 == length, Vec::new())).collect();
            assert_eq!(seen, expected);
            next += length;
            batch = *moved;
        }
    }

    #[test]
    fn a_refused_batch_can_be_used_again() {
        let (mut batch, mut pipeline) = (Batch::of(CAPACITY, RING, KEY), Pipeline::new(CREDITS));
        pipeline.push(writing(&[1]));
        let mut requests = pipeline.requests();
        let target = Target { address: 64, key: 9 };
        let posted = batch.post_to(|| Some((requests.next(&NoRing)?, target)), |_| false);
        assert_eq!(posted, Err(Refused));
        for word in 2..5 {
            pipeline.push(writing(&[word]));
        }
        let inline: Vec<_> = post(&mut batch, &mut pipeline).into_iter().map(|(_, _, words)| words).collect();
        assert_eq!(inline, [[2], [3], [4]]);
    }

    #[test]
    fn a_batch_without_room_posts_nothing() {
        let (mut batch, mut pipeline) = (Batch::of(0, RING, KEY), Pipeline::new(CREDITS));
        pipeline.push(writing(&[1]));
        assert_eq!(post(&mut batch, &mut pipeline), []);
        assert!(pipeline.has_queued());
    }
}
