//! The pipeline on a fake device with a vector: results, their order, and the limits of credits.

use std::cell::RefCell;
use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::error;

const WORDS: usize = 64;
const CREDITS: Credits = Credits { requests: 5, reads: 3, words: 16, inline_words: 1 };

/// A ring.
#[derive(Default)]
struct Memory(RefCell<Vec<u64>>);

impl Memory {
    fn new() -> Self {
        Self(RefCell::new(vec![0; CREDITS.words]))
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
    taken: VecDeque<Taken>,
}

impl Device {
    fn new() -> Self {
        Self { far: (0..WORDS as u64).collect(), ring: Memory::new(), taken: VecDeque::new() }
    }

    /// Posts as many requests as credits allow.
    fn post(&mut self, pipeline: &mut Pipeline) {
        let mut requests = pipeline.requests();
        while let Some(Request { verb, at, position, .. }) = requests.next(&self.ring) {
            let (ring, operation) = match verb {
                Verb::Read { ring, words } => (ring..ring + words, Operation::Read),
                Verb::Write { ring, words } => {
                    let operation = self.ring.0.borrow()[ring..ring + words].to_vec();
                    (ring..ring + words, Operation::Write(operation))
                }
                Verb::WriteInline(words) => (0..0, Operation::Write(words.to_vec())),
                Verb::CompareExchange { ring, expected, new } => {
                    (ring..ring + 1, Operation::CompareExchange(expected, new))
                }
                Verb::FetchAdd { ring, addend } => (ring..ring + 1, Operation::FetchAdd(addend)),
            };
            assert!(ring.end <= CREDITS.words);
            for other in &self.taken {
                assert!(
                    ring.end <= other.ring.start || other.ring.end <= ring.start,
                    "words of the ring are used twice"
                );
            }
            self.taken.push_back(Taken { position, index: at.offset() as usize / 8, ring, operation });
        }
        let reads = self.taken.iter().filter(|one| !matches!(one.operation, Operation::Write(_))).count();
        assert!(self.taken.len() <= CREDITS.requests && reads <= CREDITS.reads);
    }

    /// Executes some requests, and completes the last of them only.
    fn execute(&mut self, count: usize, pipeline: &mut Pipeline) {
        let mut done = None;
        for _ in 0..count {
            let Some(Taken { position, index, ring, operation }) = self.taken.pop_front() else { break };
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
            done = Some(position);
        }
        if let Some(position) = done {
            pipeline.complete(position, &self.ring);
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
                Some(op @ Op::Write { slot, .. }) => pipeline.push_single(op.clone(), chain.written(slot.range())),
                Some(op) => pipeline.push_single(op.clone(), &[]),
                None => pipeline.push(chain),
            };
            if leave {
                pipeline.detach(number);
            }
            expected.push((number, results, single.is_some() && !leave));
            device.post(&mut pipeline);
            device.execute(executed, &mut pipeline);
        }
        while pipeline.has_queued() || pipeline.in_flight() > 0 {
            device.post(&mut pipeline);
            device.execute(3, &mut pipeline);
        }
        prop_assert_eq!(&device.far, &far);
        for (number, results, in_place) in expected {
            if in_place {
                let words = pipeline.take_single(number, |_, words| *words).unwrap();
                if let [(slot, expected)] = &results[..] {
                    prop_assert_eq!(&words[slot.range()], expected);
                }
                continue;
            }
            let (chain, result) = pipeline.take(number);
            result.unwrap();
            for (slot, words) in results {
                prop_assert_eq!(chain.words(slot), words);
            }
        }
    }
}

/// Returns the fences of all posted requests.
fn fences(pipeline: &mut Pipeline, ring: &Memory) -> Vec<bool> {
    let mut requests = pipeline.requests();
    std::iter::from_fn(|| requests.next(ring).map(|request| request.fence)).collect()
}

const PLENTY: Credits = Credits { requests: 64, reads: 64, words: 256, inline_words: 0 };

#[test]
fn only_operations_that_must_not_overtake_are_fenced() {
    let ring = Memory(RefCell::new(vec![0; PLENTY.words]));
    let mut pipeline = Pipeline::new(PLENTY);
    let mut chain = RawChain::default();
    chain.write(at(1), &[1]); // nothing before it
    chain.compare_exchange(at(2), 0, 1); // after a WRITE
    chain.fetch_add(at(2), 1); // after an atomic
    chain.read(at(3), 1); // after an atomic
    chain.read(at(4), 1); // after a READ
    chain.fetch_add(at(2), 1); // after a READ
    chain.write(at(3), &[1]); // after READs and atomics
    pipeline.push(chain);
    assert_eq!(fences(&mut pipeline, &ring), [false, false, false, false, false, true, true]);
    // Another chain of the thread needs no order.
    let mut other = RawChain::default();
    other.write(at(3), &[2]);
    pipeline.push(other);
    assert_eq!(fences(&mut pipeline, &ring), [false]);
}

#[test]
fn a_detached_chain_is_not_overtaken_until_it_is_done() {
    let ring = Memory(RefCell::new(vec![0; PLENTY.words]));
    let mut pipeline = Pipeline::new(PLENTY);
    let write = || {
        let mut chain = RawChain::default();
        chain.write(at(3), &[2]);
        chain
    };
    let mut chain = RawChain::default();
    chain.fetch_add(at(2), 1);
    let number = pipeline.push(chain);
    assert_eq!(fences(&mut pipeline, &ring), [false]);
    pipeline.detach(number);
    pipeline.push(write());
    assert_eq!(fences(&mut pipeline, &ring), [true]);
    pipeline.complete(0, &ring);
    pipeline.push(write());
    assert_eq!(fences(&mut pipeline, &ring), [false], "it is done");
    // Detached before it is posted.
    let mut chain = RawChain::default();
    chain.fetch_add(at(2), 1);
    let number = pipeline.push(chain);
    pipeline.detach(number);
    pipeline.push(write());
    assert_eq!(fences(&mut pipeline, &ring), [false, true]);
}

#[test]
fn when_the_connection_fails_each_chain_has_its_own_error() {
    let (mut pipeline, mut device) = (Pipeline::new(CREDITS), Device::new());
    let numbers: Vec<usize> = (0..8)
        .map(|index| {
            let mut chain = RawChain::default();
            chain.fetch_add(at(index), 1);
            chain.read(at(index), 2);
            pipeline.push(chain)
        })
        .collect();
    device.post(&mut pipeline);
    device.execute(2, &mut pipeline);
    pipeline.forget(numbers[2]);
    let failed = pipeline.fail(|operation, address| {
        error::NodeUnreachable { node: 0, timeout_us: 1, operation, address }.into()
    });
    assert_eq!(failed, 7);
    assert!(pipeline.take(numbers[0]).1.is_ok());
    for (index, number) in (1..8).zip(&numbers[1..]) {
        if index != 2 {
            let (_, result) = pipeline.take(*number);
            assert!(matches!(result, Err(Error::NodeUnreachable(error)) if error.address == at(index)));
        }
    }
    // All credits are back.
    device.taken.clear();
    let mut chain = RawChain::default();
    let slot = chain.read(at(7), 32);
    let number = pipeline.push(chain);
    while pipeline.has_queued() || pipeline.in_flight() > 0 {
        device.post(&mut pipeline);
        device.execute(1, &mut pipeline);
    }
    assert_eq!(pipeline.take(number).0.words(slot), &device.far[7..39]);
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
    let numbers = [9, 1, 1].map(|times| pipeline.push(adding(times)));
    device.post(&mut pipeline);
    assert_eq!(
        (pipeline.in_flight(), pipeline.under_way()),
        (CREDITS.reads, 1),
        "a part of the first is posted"
    );
    pipeline.forget(numbers[0]);
    pipeline.forget(numbers[1]);
    let failed = pipeline.fail(|operation, address| {
        Error::from(error::NodeUnreachable { node: 0, timeout_us: 1, operation, address })
    });
    assert_eq!(failed, 3);
    assert!(pipeline.take(numbers[2]).1.is_err());
    let mut reused = [1, 1, 1].map(|times| pipeline.push(adding(times)));
    reused.sort_unstable();
    assert_eq!(reused, numbers, "each slot is free once");
    let mut device = Device::new();
    while pipeline.has_queued() || pipeline.in_flight() > 0 {
        device.post(&mut pipeline);
        device.execute(usize::MAX, &mut pipeline);
    }
    assert!(reused.iter().all(|number| pipeline.take(*number).1.is_ok()));
}

#[test]
fn a_warm_pipeline_does_not_allocate() {
    let ring = Memory(RefCell::new(vec![0; PLENTY.words]));
    let mut pipeline = Pipeline::new(PLENTY);
    let mut chains: Vec<RawChain> = (0..8).map(|_| RawChain::default()).collect();
    let mut numbers = Vec::with_capacity(8);
    let mut round = || {
        for mut chain in chains.drain(..) {
            chain.clear();
            chain.read(at(1), 3);
            chain.fetch_add(at(2), 1);
            chain.write(at(3), &[1, 2, 3]);
            numbers.push(pipeline.push(chain));
        }
        let singles = [(Op::read(at(1), 3), &[][..]), (Op::write(at(2), 1), &[7])]
            .map(|(op, written)| pipeline.push_single(op, written));
        while let Some(request) = pipeline.requests().next(&ring) {
            let position = request.position;
            if position % 5 == 0 {
                pipeline.complete(position, &ring);
            }
        }
        pipeline.complete(u64::MAX, &ring);
        for number in singles {
            pipeline.take_single(number, |_, _| ()).unwrap();
        }
        chains.extend(numbers.drain(..).map(|number| pipeline.take(number).0));
    };
    round();
    let counted = allocation_counter::measure(|| (0..100).for_each(|_| round()));
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_single_operation_that_is_polled_as_a_chain_has_its_result() {
    let (mut pipeline, mut device) = (Pipeline::new(CREDITS), Device::new());
    let numbers = [Op::read(at(5), 2), Op::compare_exchange(at(9), 9, 1), Op::compare_exchange(at(9), 9, 2)]
        .map(|op| pipeline.push_single(op, &[]));
    let forgotten = pipeline.push_single(Op::write(at(3), 2), &[30, 40]);
    pipeline.forget(forgotten);
    device.post(&mut pipeline);
    device.execute(3, &mut pipeline);
    device.post(&mut pipeline);
    device.execute(1, &mut pipeline);
    let [read, replaced, failed] = numbers.map(|number| pipeline.take(number).0);
    assert_eq!(read.buffer(), [5, 6]);
    assert_eq!((replaced.buffer(), replaced.failed_exchanges()), (&[9][..], 0));
    assert_eq!((failed.buffer(), failed.failed_exchanges()), (&[1][..], 1));
    assert_eq!(device.far[3..5], [30, 40], "it has taken effect");
    assert_eq!(
        pipeline.push_single(Op::read(at(0), 1), &[]),
        numbers[2],
        "its slot was free before those of the others"
    );
}

#[test]
fn a_word_that_is_replaced_is_replaced_by_a_cas() {
    let ring = Memory(RefCell::new(vec![0; PLENTY.words]));
    let mut pipeline = Pipeline::new(Credits { reads: 1, inline_words: 1, ..PLENTY });
    let mut chain = RawChain::default();
    chain.write(at(1), &[5]);
    chain.replace(at(2), 7, 9);
    chain.replace(at(3), 8, 0);
    let number = pipeline.push(chain);
    assert!(matches!(pipeline.requests().next(&ring).unwrap().verb, Verb::WriteInline([5])));
    let request = pipeline.requests().next(&ring).unwrap();
    assert!(matches!(request.verb, Verb::CompareExchange { expected: 7, new: 9, .. }));
    assert!(!request.fence, "a WRITE before it is not sent again after it");
    assert_eq!(pipeline.requests().next(&ring), None, "it takes a credit for an answer");
    pipeline.complete(1, &ring);
    assert!(matches!(
        pipeline.requests().next(&ring).unwrap().verb,
        Verb::CompareExchange { expected: 8, new: 0, .. }
    ));
    pipeline.complete(2, &ring);
    let (chain, result) = pipeline.take(number);
    assert!(result.is_ok());
    assert_eq!(chain.failed_exchanges(), 0, "the answer of a replacement is not counted");
}
