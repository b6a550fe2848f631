//! The pipeline on a fake device with a vector: results, their order, and the limits of credits.

use std::cell::RefCell;
use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::error;

const WORDS: usize = 64;
const CREDITS: Credits = Credits { requests: 5, reads: 3, words: 16, places: 2, inline_words: 1 };

/// A ring.
struct Memory(RefCell<Vec<u64>>);

impl Memory {
    fn of(credits: Credits) -> Self {
        Self(RefCell::new(vec![0; credits.places * SINGLE_WORDS + credits.words]))
    }
}

impl Ring for Memory {
    fn read(&self, at: usize, into: &mut [u64]) {
        into.copy_from_slice(&self.0.borrow()[at..at + into.len()]);
    }
    fn write(&self, at: usize, from: &[u64]) {
        self.0.borrow_mut()[at..at + from.len()].copy_from_slice(from);
    }
}

/// A request that the device has taken, with its payload.
struct Taken {
    position: u64,
    index: usize,
    ring: std::ops::Range<usize>,
    operation: Operation,
}

enum Operation {
    Read,
    Write(Vec<u64>),
    CompareExchange(u64, u64),
    FetchAdd(u64),
}

/// A device that executes posted requests in order, on demand.
struct Device {
    far: Vec<u64>,
    ring: Memory,
    /// The requests, of which the first so many are posted.
    taken: VecDeque<Taken>,
    posted: usize,
}

impl Ring for Device {
    fn read(&self, at: usize, into: &mut [u64]) {
        self.ring.read(at, into);
    }
    fn write(&self, at: usize, from: &[u64]) {
        self.ring.write(at, from);
    }
}

impl Outlet for Device {
    fn target(&self, at: Address) -> Target {
        target(at)
    }
    fn add(&mut self, request: Request) {
        let (ring, operation) = match request.verb {
            Verb::Read { ring, words } => (ring..ring + words, Operation::Read),
            Verb::Write { ring, words, inline } => {
                assert_eq!(inline, words <= CREDITS.inline_words);
                let operation = self.ring.0.borrow()[ring..ring + words].to_vec();
                (ring..ring + words, Operation::Write(operation))
            }
            Verb::CompareExchange { ring, expected, new } => {
                (ring..ring + 1, Operation::CompareExchange(expected, new))
            }
            Verb::FetchAdd { ring, addend } => (ring..ring + 1, Operation::FetchAdd(addend)),
        };
        for other in &self.taken {
            assert!(
                ring.end <= other.ring.start || other.ring.end <= ring.start,
                "words of the ring are used twice"
            );
        }
        let index = request.target.address as usize / 8;
        self.taken.push_back(Taken { position: request.position, index, ring, operation });
        let reads = self.taken.iter().filter(|one| !matches!(one.operation, Operation::Write(_))).count();
        assert!(self.taken.len() <= CREDITS.requests && reads <= CREDITS.reads);
    }
    fn signal_last(&mut self) {}
}

fn target(at: Address) -> Target {
    Target { address: at.offset(), key: 0 }
}

/// Pushes a single operation as threads do: in the usual case, or else in all cases.
fn push_single(pipeline: &mut Pipeline, op: &Op, written: &[u64], outlet: &mut impl Outlet) -> usize {
    let pushed = pipeline.try_push_single(|| op.clone(), written, target(op.at()), outlet);
    pushed.unwrap_or_else(|| pipeline.push_single(|| op.clone(), written, target(op.at()), Some(outlet)))
}

impl Device {
    fn new() -> Self {
        Self {
            far: (0..WORDS as u64).collect(),
            ring: Memory::of(CREDITS),
            taken: VecDeque::new(),
            posted: 0,
        }
    }

    /// Posts as many requests as credits allow.
    fn post(&mut self, pipeline: &mut Pipeline) {
        pipeline.make_requests(self);
        pipeline.was_posted();
        self.posted = self.taken.len();
    }

    /// Executes some requests, and completes the last of them only.
    fn execute(&mut self, count: usize, pipeline: &mut Pipeline) {
        let mut done = None;
        for _ in 0..count.min(self.posted) {
            let Some(Taken { position, index, ring, operation }) = self.taken.pop_front() else { break };
            self.posted -= 1;
            let old = self.far[index];
            match operation {
                Operation::Read => self.ring.write(ring.start, &self.far[index..index + ring.len()]),
                Operation::Write(words) => self.far[index..index + words.len()].copy_from_slice(&words),
                Operation::CompareExchange(expected, new) => {
                    self.ring.write(ring.start, &[old]);
                    self.far[index] = if old == expected { new } else { old };
                }
                Operation::FetchAdd(addend) => {
                    self.ring.write(ring.start, &[old]);
                    self.far[index] = old.wrapping_add(addend);
                }
            }
            done = Some(position + 1);
        }
        if let Some(end) = done {
            pipeline.complete(end, &self.ring);
        }
    }
}

fn at(index: usize) -> Address {
    Address::new(0, (index * 8) as u64)
}

#[derive(Clone, Debug)]
enum Do {
    Read(usize, usize),
    Write(usize, Vec<u64>),
    CompareExchange(usize, u64, u64),
    FetchAdd(usize, u64),
}

fn op() -> impl Strategy<Value = Do> {
    prop_oneof![
        (0..32_usize, 1..32_usize).prop_map(|(at, words)| Do::Read(at, words)),
        (0..32_usize, prop::collection::vec(0..9_u64, 1..32)).prop_map(|(at, words)| Do::Write(at, words)),
        (0..WORDS, 0..9_u64, 0..9_u64).prop_map(|(at, expected, new)| Do::CompareExchange(at, expected, new)),
        (0..WORDS, 0..9_u64).prop_map(|(at, addend)| Do::FetchAdd(at, addend)),
    ]
}

proptest! {
    #[test]
    fn chains_and_single_operations_have_the_same_effect_as_one_by_one(
        chains in prop::collection::vec(
            (prop_oneof![prop::collection::vec(op(), 0..6), prop::collection::vec(op(), 1)], 0..4_usize, any::<bool>(), any::<bool>()),
            1..12,
        ),
    ) {
        let (mut pipeline, mut device) = (Pipeline::new(CREDITS), Device::new());
        let mut far = device.far.clone();
        let mut expected = Vec::new();
        for (ops, executed, leave, in_place) in chains {
            let (mut chain, mut results) = (RawChain::default(), Vec::new());
            for op in ops {
                match op {
                    Do::Read(from, words) => {
                        results.push((chain.read(at(from), words), far[from..from + words].to_vec()));
                    }
                    Do::Write(to, words) => {
                        chain.write(at(to), &words);
                        far[to..to + words.len()].copy_from_slice(&words);
                    }
                    Do::CompareExchange(to, old, new) => {
                        results.push((chain.compare_exchange(at(to), old, new), vec![far[to]]));
                        far[to] = if far[to] == old { new } else { far[to] };
                    }
                    Do::FetchAdd(to, addend) => {
                        results.push((chain.fetch_add(at(to), addend), vec![far[to]]));
                        far[to] += addend;
                    }
                }
            }
            let single = match chain.ops() {
                [op] if in_place && op.words() <= SINGLE_WORDS => Some(op.clone()),
                _ => None,
            };
            let number = match &single {
                Some(op @ Op::Write { slot, .. }) => {
                    push_single(&mut pipeline, op, chain.written(slot.range()), &mut device)
                }
                Some(op) => push_single(&mut pipeline, op, &[], &mut device),
                None => pipeline.push(chain, Some(&mut device)),
            };
            if leave {
                pipeline.detach(number);
            }
            expected.push((number, results, single.is_some() && !leave));
            device.post(&mut pipeline);
            device.execute(executed, &mut pipeline);
        }
        while pipeline.has_waiting() || pipeline.in_flight() > 0 {
            device.post(&mut pipeline);
            device.execute(3, &mut pipeline);
        }
        prop_assert_eq!(&device.far, &far);
        for (number, results, in_place) in expected {
            if in_place {
                let read = results.first().map_or(0, |(slot, _)| slot.words());
                let mut words = vec![0; read];
                if pipeline.try_take_single(number, &mut words, &device).is_none() {
                    pipeline.take_single(number, &mut words, Some(&device)).unwrap().unwrap();
                }
                if let [(_, expected)] = &results[..] {
                    prop_assert_eq!(&words, expected);
                }
                continue;
            }
            let (chain, result) = pipeline.take(number, Some(&device));
            result.unwrap();
            for (slot, words) in results {
                prop_assert_eq!(chain.words(slot), words);
            }
        }
    }
}

/// An outlet that keeps requests.
struct Requests {
    ring: Memory,
    made: Vec<Request>,
}

impl Requests {
    fn of(credits: Credits) -> Self {
        Self { ring: Memory::of(credits), made: Vec::new() }
    }

    /// Returns the fences of all new requests, which are posted.
    fn fences(&mut self, pipeline: &mut Pipeline) -> Vec<bool> {
        pipeline.was_posted();
        self.made.drain(..).map(|request| request.fence).collect()
    }
}

impl Ring for Requests {
    fn read(&self, at: usize, into: &mut [u64]) {
        self.ring.read(at, into);
    }
    fn write(&self, at: usize, from: &[u64]) {
        self.ring.write(at, from);
    }
}

impl Outlet for Requests {
    fn target(&self, at: Address) -> Target {
        target(at)
    }
    fn add(&mut self, request: Request) {
        self.made.push(request);
    }
    fn signal_last(&mut self) {
        self.made.last_mut().unwrap().signal = true;
    }
}

const PLENTY: Credits = Credits { requests: 64, reads: 64, words: 256, places: 64, inline_words: 0 };

#[test]
fn only_operations_that_must_not_overtake_are_fenced() {
    let (mut pipeline, mut requests) = (Pipeline::new(PLENTY), Requests::of(PLENTY));
    let mut chain = RawChain::default();
    chain.write(at(1), &[1]); // nothing before it
    chain.compare_exchange(at(2), 0, 1); // after a WRITE
    chain.fetch_add(at(2), 1); // after an atomic
    chain.read(at(3), 1); // after an atomic
    chain.read(at(4), 1); // after a READ
    chain.fetch_add(at(2), 1); // after a READ
    chain.write(at(3), &[1]); // after READs and atomics
    pipeline.push(chain, Some(&mut requests));
    assert_eq!(requests.fences(&mut pipeline), [false, false, false, false, false, true, true]);
    // Another chain of the thread needs no order.
    let mut other = RawChain::default();
    other.write(at(3), &[2]);
    pipeline.push(other, Some(&mut requests));
    assert_eq!(requests.fences(&mut pipeline), [false]);
}

#[test]
fn a_detached_chain_is_not_overtaken_until_it_is_done() {
    let (mut pipeline, mut requests) = (Pipeline::new(PLENTY), Requests::of(PLENTY));
    let adding = || {
        let mut chain = RawChain::default();
        chain.fetch_add(at(2), 1);
        chain
    };
    for single in [false, true] {
        let add = |pipeline: &mut Pipeline, requests: &mut Requests| {
            if single {
                push_single(pipeline, &Op::fetch_add(at(2), 1), &[], requests)
            } else {
                pipeline.push(adding(), Some(requests))
            }
        };
        let write = |pipeline: &mut Pipeline, requests: &mut Requests| {
            let mut chain = RawChain::default();
            chain.write(at(3), &[2]);
            pipeline.push(chain, Some(&mut *requests));
            push_single(pipeline, &Op::write(at(3), 1), &[2], requests);
        };
        let number = add(&mut pipeline, &mut requests);
        assert_eq!(requests.fences(&mut pipeline), [false]);
        pipeline.detach(number);
        write(&mut pipeline, &mut requests);
        assert_eq!(requests.fences(&mut pipeline), [true, true]);
        pipeline.complete(pipeline.posting.first + 1, &requests);
        assert!(pipeline.is_done(number));
        write(&mut pipeline, &mut requests);
        assert_eq!(requests.fences(&mut pipeline), [false, false], "it is done");
        // Detached before it is posted.
        let number = add(&mut pipeline, &mut requests);
        pipeline.detach(number);
        write(&mut pipeline, &mut requests);
        assert_eq!(requests.fences(&mut pipeline), [false, true, true]);
        // Detached before its request is made.
        let unconnected = None::<&mut Requests>;
        let number = if single {
            pipeline.push_single(|| Op::fetch_add(at(2), 1), &[], target(at(2)), unconnected)
        } else {
            pipeline.push(adding(), unconnected)
        };
        pipeline.complete(u64::MAX, &requests);
        pipeline.detach(number);
        pipeline.make_requests(&mut requests);
        write(&mut pipeline, &mut requests);
        assert_eq!(requests.fences(&mut pipeline), [false, true, true]);
        pipeline.complete(u64::MAX, &requests);
    }
}

#[test]
fn the_last_of_a_chain_some_single_operations_and_what_precedes_a_chain_are_signalled() {
    let (mut pipeline, mut requests) = (Pipeline::new(PLENTY), Requests::of(PLENTY));
    let single = |pipeline: &mut Pipeline, requests: &mut Requests| {
        push_single(pipeline, &Op::read(at(1), 1), &[], requests);
    };
    for _ in 0..SIGNALLED + 2 {
        single(&mut pipeline, &mut requests);
    }
    let mut chain = RawChain::default();
    chain.read(at(1), 2);
    chain.read(at(1), 2);
    pipeline.push(chain, Some(&mut requests));
    single(&mut pipeline, &mut requests);
    let signalled: Vec<usize> =
        (0..).zip(&requests.made).filter_map(|(at, made)| made.signal.then_some(at)).collect();
    // Two of the single operations, the last before the chain, and the last of the chain.
    assert_eq!((signalled, requests.made.len()), (vec![0, 8, 9, 11], 13));
}

#[test]
fn outside_of_the_usual_case_nothing_is_pushed_or_taken() {
    const FEW: Credits = Credits { requests: 4, reads: 2, ..PLENTY };
    let (mut pipeline, mut requests) = (Pipeline::new(FEW), Requests::of(FEW));
    let add = |pipeline: &mut Pipeline, requests: &mut Requests| {
        pipeline.try_push_single(|| Op::fetch_add(at(2), 1), &[], target(at(2)), requests)
    };
    let write = |pipeline: &mut Pipeline, requests: &mut Requests| {
        pipeline.try_push_single(|| Op::write(at(3), 1), &[2], target(at(3)), requests)
    };
    assert_eq!(write(&mut pipeline, &mut requests), None, "there is no slot");
    for _ in 0..16 {
        pipeline.add_slot();
    }
    let added = [(); 2].map(|()| add(&mut pipeline, &mut requests).unwrap());
    assert_eq!(add(&mut pipeline, &mut requests), None, "no credit for an atomic");
    let written = write(&mut pipeline, &mut requests).unwrap();
    write(&mut pipeline, &mut requests).unwrap();
    assert_eq!(write(&mut pipeline, &mut requests), None, "no credit for a request");
    assert_eq!(requests.made.len(), 4);
    pipeline.was_posted();
    pipeline.complete(3, &requests);
    let mut word = [0];
    assert_eq!(pipeline.try_take_single(added[0], &mut word, &requests), Some(()));
    pipeline.detach(written);
    assert!(write(&mut pipeline, &mut requests).is_some(), "the detached operation is done");
    let detached = add(&mut pipeline, &mut requests).unwrap();
    assert_eq!(pipeline.try_take_single(detached, &mut word, &requests), None, "it is not done");
    pipeline.detach(detached);
    assert_eq!(write(&mut pipeline, &mut requests), None, "it needs a fence");
    pipeline.was_posted();
    pipeline.complete(u64::MAX, &requests);
    write(&mut pipeline, &mut requests).unwrap();
    let queued = pipeline.push_single(|| Op::fetch_add(at(2), 1), &[], target(at(2)), None::<&mut Requests>);
    assert_eq!(write(&mut pipeline, &mut requests), None, "an operation is queued");
    pipeline.make_requests(&mut requests);
    write(&mut pipeline, &mut requests).unwrap();
    pipeline.was_posted();
    pipeline.complete(u64::MAX, &requests);
    assert_eq!(
        pipeline.try_take_single(queued, &mut word, &requests),
        None,
        "its words are not in its place"
    );
    let lost = write(&mut pipeline, &mut requests).unwrap();
    pipeline.fail(|operation, address| {
        error::NodeUnreachable { node: 0, timeout_us: 1, operation, address }.into()
    });
    assert_eq!(pipeline.try_take_single(lost, &mut word, &requests), None, "it has failed");
    assert_eq!(write(&mut pipeline, &mut requests), None, "there is no connection");
    assert!(pipeline.take_single(lost, &mut [], Some(&requests)).unwrap().is_err());
}

#[test]
fn when_the_connection_fails_each_chain_has_its_own_error() {
    let (mut pipeline, mut device) = (Pipeline::new(CREDITS), Device::new());
    let numbers: Vec<usize> = (0..8)
        .map(|index| {
            let mut chain = RawChain::default();
            chain.fetch_add(at(index), 1);
            chain.read(at(index), 2);
            pipeline.push(chain, Some(&mut device))
        })
        .collect();
    device.post(&mut pipeline);
    device.execute(2, &mut pipeline);
    pipeline.forget(numbers[2]);
    let failed = pipeline.fail(|operation, address| {
        error::NodeUnreachable { node: 0, timeout_us: 1, operation, address }.into()
    });
    assert_eq!(failed, 7);
    assert!(pipeline.take(numbers[0], Some(&device)).1.is_ok());
    for (index, number) in (1..8).zip(&numbers[1..]) {
        if index != 2 {
            let (_, result) = pipeline.take(*number, Some(&device));
            assert!(matches!(result, Err(Error::NodeUnreachable(error)) if error.address == at(index)));
        }
    }
    // A new connection has all credits.
    let mut device = Device::new();
    pipeline.set_credits(CREDITS);
    let mut chain = RawChain::default();
    let slot = chain.read(at(7), 32);
    let number = pipeline.push(chain, Some(&mut device));
    while pipeline.has_waiting() || pipeline.in_flight() > 0 {
        device.post(&mut pipeline);
        device.execute(1, &mut pipeline);
    }
    assert_eq!(pipeline.take(number, Some(&device)).0.words(slot), &device.far[7..39]);
}

#[test]
fn a_forgotten_chain_that_was_posted_in_part_frees_its_slot_once_when_the_connection_fails() {
    let (mut pipeline, mut device) = (Pipeline::new(CREDITS), Device::new());
    let adding = |times: u64| {
        let mut chain = RawChain::default();
        for _ in 0..times {
            chain.fetch_add(Address::new(0, 8), 1);
        }
        chain
    };
    let numbers = [9, 1, 1].map(|times| pipeline.push(adding(times), Some(&mut device)));
    device.post(&mut pipeline);
    assert_eq!(
        (pipeline.in_flight(), pipeline.under_way()),
        (CREDITS.reads, 0),
        "a part of the first is posted"
    );
    pipeline.forget(numbers[0]);
    pipeline.forget(numbers[1]);
    let failed = pipeline.fail(|operation, address| {
        Error::from(error::NodeUnreachable { node: 0, timeout_us: 1, operation, address })
    });
    assert_eq!(failed, 3);
    assert!(pipeline.take(numbers[2], Some(&device)).1.is_err());
    let mut device = Device::new();
    pipeline.set_credits(CREDITS);
    let mut reused = [1, 1, 1].map(|times| pipeline.push(adding(times), Some(&mut device)));
    let order = reused;
    reused.sort_unstable();
    assert_eq!(reused, numbers, "each slot is free once");
    while pipeline.has_waiting() || pipeline.in_flight() > 0 {
        device.post(&mut pipeline);
        device.execute(usize::MAX, &mut pipeline);
    }
    assert!(order.iter().all(|number| pipeline.take(*number, Some(&device)).1.is_ok()));
}

#[test]
fn a_warm_pipeline_does_not_allocate() {
    // Fewer places than single operations.
    let credits = Credits { requests: 20, places: 9, ..PLENTY };
    let (mut pipeline, mut requests) = (Pipeline::new(credits), Requests::of(credits));
    let mut chains: Vec<RawChain> = (0..8).map(|_| RawChain::default()).collect();
    let mut numbers = Vec::with_capacity(8);
    let mut round = || {
        let singles = [(Op::read(at(1), 3), &[][..]), (Op::write(at(2), 1), &[7])].map(|(op, written)| {
            pipeline.push_single(|| op.clone(), written, target(op.at()), Some(&mut requests))
        });
        for mut chain in chains.drain(..) {
            chain.clear();
            chain.read(at(1), 3);
            chain.fetch_add(at(2), 1);
            chain.write(at(3), &[1, 2, 3]);
            numbers.push(pipeline.push(chain, Some(&mut requests)));
        }
        let forgotten = pipeline.push_single(|| Op::read(at(1), 3), &[], target(at(1)), Some(&mut requests));
        pipeline.forget(forgotten);
        while pipeline.has_waiting() {
            pipeline.make_requests(&mut requests);
            pipeline.was_posted();
            requests.made.clear();
            pipeline.complete(pipeline.posting.first + 4, &requests);
        }
        pipeline.complete(u64::MAX, &requests);
        for number in singles {
            pipeline.take_single(number, &mut [0], Some(&requests)).unwrap().unwrap();
        }
        chains.extend(numbers.drain(..).map(|number| pipeline.take(number, Some(&requests)).0));
    };
    round();
    let counted = allocation_counter::measure(|| (0..100).for_each(|_| round()));
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_single_operation_that_is_polled_as_a_chain_has_its_result() {
    let (mut pipeline, mut device) = (Pipeline::new(CREDITS), Device::new());
    let numbers = [Op::read(at(5), 2), Op::compare_exchange(at(9), 9, 1), Op::compare_exchange(at(9), 9, 2)]
        .map(|op| pipeline.push_single(|| op.clone(), &[], target(op.at()), Some(&mut device)));
    let forgotten = pipeline.push_single(|| Op::write(at(3), 2), &[30, 40], target(at(3)), Some(&mut device));
    pipeline.forget(forgotten);
    device.post(&mut pipeline);
    device.execute(3, &mut pipeline);
    device.post(&mut pipeline);
    device.execute(1, &mut pipeline);
    let [read, replaced, failed] = numbers.map(|number| pipeline.take(number, Some(&device)).0);
    assert_eq!(read.buffer(), [5, 6]);
    assert_eq!((replaced.buffer(), replaced.failed_exchanges()), (&[9][..], 0));
    assert_eq!((failed.buffer(), failed.failed_exchanges()), (&[1][..], 1));
    assert_eq!(device.far[3..5], [30, 40], "it has taken effect");
    let next = pipeline.push_single(|| Op::read(at(0), 1), &[], target(at(0)), Some(&mut device));
    assert_eq!(next, numbers[2], "its slot was free before those of the others");
}

#[test]
fn a_place_is_used_again_when_its_operation_is_done_and_taken() {
    let (mut pipeline, mut device) = (Pipeline::new(CREDITS), Device::new());
    let read = |pipeline: &mut Pipeline, device: &mut Device, index| {
        pipeline.push_single(|| Op::read(at(index), 1), &[], target(at(index)), Some(device))
    };
    let first = read(&mut pipeline, &mut device, 7);
    let dropped = read(&mut pipeline, &mut device, 8);
    device.post(&mut pipeline);
    pipeline.detach(dropped);
    pipeline.forget(dropped);
    // `Device::add` asserts that no request in flight has the same words.
    let others = [9, 10].map(|index| read(&mut pipeline, &mut device, index));
    assert!(!others.contains(&first) && !others.contains(&dropped), "both are in flight");
    device.execute(2, &mut pipeline);
    let after = read(&mut pipeline, &mut device, 11);
    assert_eq!(after, dropped, "nobody takes its result");
    device.post(&mut pipeline);
    device.execute(9, &mut pipeline);
    device.post(&mut pipeline);
    device.execute(9, &mut pipeline);
    for (number, expected) in [(first, 7), (others[0], 9), (others[1], 10), (after, 11)] {
        let mut word = [0];
        pipeline.take_single(number, &mut word, Some(&device)).unwrap().unwrap();
        assert_eq!(word, [expected]);
    }
}

#[test]
fn a_word_that_is_replaced_is_replaced_by_a_cas() {
    let credits = Credits { reads: 1, inline_words: 1, ..PLENTY };
    let (mut pipeline, mut requests) = (Pipeline::new(credits), Requests::of(credits));
    let mut chain = RawChain::default();
    chain.write(at(1), &[5]);
    chain.replace(at(2), 7, 9);
    chain.replace(at(3), 8, 0);
    let number = pipeline.push(chain, Some(&mut requests));
    let [first, second] = &requests.made[..] else { panic!("the third takes a credit for an answer") };
    assert!(matches!(first.verb, Verb::Write { words: 1, inline: true, .. }));
    assert!(matches!(second.verb, Verb::CompareExchange { expected: 7, new: 9, .. }));
    assert!(!second.fence, "a WRITE before it is not sent again after it");
    pipeline.was_posted();
    pipeline.complete(2, &requests);
    pipeline.make_requests(&mut requests);
    assert!(matches!(requests.made[2].verb, Verb::CompareExchange { expected: 8, new: 0, .. }));
    pipeline.was_posted();
    pipeline.complete(3, &requests);
    let (chain, result) = pipeline.take(number, Some(&requests));
    assert!(result.is_ok());
    assert_eq!(chain.failed_exchanges(), 0, "the answer of a replacement is not counted");
}
