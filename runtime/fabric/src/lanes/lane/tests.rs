//! Lanes on a fake wire to a vector, with failures that real devices show only when they break.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::super::config::Sharing;
use super::super::pipeline::{Credits, Verb};
use super::super::sets::{self, Lanes, Pool};
use super::super::wire::{Completion, Refused};
use super::*;
use crate::chain::SINGLE_WORDS;

const TIMEOUT: Duration = Duration::from_millis(50);

/// The behavior of the device.
#[derive(Clone, Copy, PartialEq)]
enum DeviceBehavior {
    Works,
    /// Takes requests and never answers.
    Silent,
    /// Completes the next request with this outcome, and executes none after it.
    Fails(Outcome),
    /// The other side has ended the connection.
    Ended,
}

struct Device {
    far: Mutex<Vec<u64>>,
    behavior: Mutex<DeviceBehavior>,
    can_connect: Mutex<bool>,
    /// True if it reports that the process was evicted.
    evicts: Mutex<bool>,
    attempts: AtomicUsize,
    wires: AtomicUsize,
}

/// Makes connections to a device.
struct ToDevice(Arc<Device>);

struct ToVector {
    device: Arc<Device>,
    ring: VectorRing,
    added: VecDeque<(u64, bool, Work)>,
    posted: VecDeque<(u64, bool, Work)>,
    flushing: bool,
}

struct VectorRing(Mutex<Vec<u64>>);

const CREDITS: Credits = Credits { requests: 32, reads: 8, words: 64, places: 6, inline_words: 2 };

enum Work {
    Read { index: usize, ring: usize, words: usize },
    Write { index: usize, words: Vec<u64> },
    CompareExchange { index: usize, ring: usize, expected: u64, new: u64 },
    FetchAdd { index: usize, ring: usize, addend: u64 },
}

impl Ring for VectorRing {
    fn read(&self, at: usize, into: &mut [u64]) {
        into.copy_from_slice(&self.0.lock().unwrap()[at..at + into.len()]);
    }
    fn write(&self, at: usize, from: &[u64]) {
        self.0.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
    }
}

impl Wire for ToVector {
    type Ring = VectorRing;
    const LOOKS: u32 = 32;

    fn credits(&self) -> Credits {
        CREDITS
    }
    fn ring(&self) -> &VectorRing {
        &self.ring
    }
    fn add(&mut self, request: Request) {
        assert!(self.added.len() + self.posted.len() < CREDITS.requests);
        self.added.push_back((request.position, request.signal, self.work(&request)));
    }
    fn signal_last(&mut self) {
        self.added.back_mut().unwrap().1 = true;
    }
    fn post(&mut self) -> Result<(), Refused> {
        // The last request of a batch is always signalled.
        self.signal_last();
        self.posted.append(&mut self.added);
        Ok(())
    }
    fn completions(&mut self, mut each: impl FnMut(Completion)) -> usize {
        let mut given = 0;
        while let Some((number, signal, work)) = self.posted.pop_front() {
            let behavior = *self.device.behavior.lock().unwrap();
            let outcome = match behavior {
                _ if self.flushing => Outcome::Flushed,
                DeviceBehavior::Fails(outcome) => {
                    self.flushing = true;
                    outcome
                }
                DeviceBehavior::Works => Outcome::Done,
                DeviceBehavior::Silent | DeviceBehavior::Ended => {
                    self.posted.push_front((number, signal, work));
                    return given;
                }
            };
            if outcome == Outcome::Done {
                self.execute(work);
            }
            if signal || outcome != Outcome::Done {
                each(Completion { number, outcome, bytes: 0 });
                given += 1;
            }
        }
        given
    }
    fn has_ended(&mut self) -> bool {
        *self.device.behavior.lock().unwrap() == DeviceBehavior::Ended
    }
    fn state(&mut self) -> &'static str {
        "which is simulated by vectors"
    }
    fn stop(&mut self) {
        self.flushing = true;
    }
}

impl ToVector {
    fn work(&self, request: &Request) -> Work {
        let index = request.target.address as usize / 8;
        match request.verb {
            Verb::Read { ring, words } => Work::Read { index, ring, words },
            Verb::Write { ring, words, inline } => {
                assert_eq!(inline, words <= CREDITS.inline_words);
                let mut copied = vec![0; words];
                self.ring.read(ring, &mut copied);
                Work::Write { index, words: copied }
            }
            Verb::CompareExchange { ring, expected, new } => {
                Work::CompareExchange { index, ring, expected, new }
            }
            Verb::FetchAdd { ring, addend } => Work::FetchAdd { index, ring, addend },
        }
    }

    fn execute(&self, work: Work) {
        let mut far = self.device.far.lock().unwrap();
        match work {
            Work::Read { index, ring, words } => self.ring.write(ring, &far[index..index + words]),
            Work::Write { index, words } => far[index..index + words.len()].copy_from_slice(&words),
            Work::CompareExchange { index, ring, expected, new } => {
                self.ring.write(ring, &[far[index]]);
                if far[index] == expected {
                    far[index] = new;
                }
            }
            Work::FetchAdd { index, ring, addend } => {
                self.ring.write(ring, &[far[index]]);
                far[index] += addend;
            }
        }
    }
}

impl Drop for ToVector {
    fn drop(&mut self) {
        self.device.wires.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connect for ToDevice {
    type Wire = ToVector;

    fn connect(&self) -> Result<ToVector> {
        self.0.attempts.fetch_add(1, Ordering::Relaxed);
        if *self.0.evicts.lock().unwrap() {
            return Err(Error::from(error::Evicted { process: 7 }));
        }
        if !*self.0.can_connect.lock().unwrap() {
            return Err(Error::from(error::CannotConnect {
                address: "there".into(),
                reason: "no memory node".into(),
            }));
        }
        self.0.wires.fetch_add(1, Ordering::Relaxed);
        Ok(ToVector {
            device: Arc::clone(&self.0),
            ring: VectorRing(Mutex::new(vec![0; CREDITS.places * SINGLE_WORDS + CREDITS.words])),
            added: VecDeque::new(),
            posted: VecDeque::new(),
            flushing: false,
        })
    }
    fn segments(&self) -> (u16, &[Segment]) {
        (3, &[Segment { base: 0, rkey: 7 }])
    }
    fn node(&self) -> u16 {
        1
    }
    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

fn lane() -> (Arc<Device>, Lane<ToDevice>) {
    let device = Arc::new(Device {
        far: Mutex::new((0..128).collect()),
        behavior: Mutex::new(DeviceBehavior::Works),
        can_connect: Mutex::new(true),
        evicts: Mutex::new(false),
        attempts: AtomicUsize::new(0),
        wires: AtomicUsize::new(0),
    });
    let lane = Lane::new(ToDevice(Arc::clone(&device))).unwrap();
    (device, lane)
}

fn at(index: u64) -> Address {
    Address::new(3, index * 8)
}

fn adding(index: u64) -> RawChain {
    let mut chain = RawChain::default();
    chain.fetch_add(at(index), 1);
    chain
}

/// Waits like a thread without other work.
fn wait(lane: &mut Lane<ToDevice>, number: usize) -> (RawChain, Result<()>) {
    while !lane.is_done(number) {
        lane.poll_round(4);
    }
    lane.take(number)
}

#[test]
fn chains_of_a_threads_tasks_share_one_doorbell() {
    let (device, mut lane) = lane();
    let numbers: Vec<usize> = (1..=8).map(|index| lane.push(adding(index))).collect();
    assert!(numbers.iter().all(|number| !lane.is_done(*number)), "it waits for the round's end");
    lane.poll_round(1);
    assert_eq!(lane.doorbells(), 1);
    assert!(numbers.iter().all(|number| wait(&mut lane, *number).1.is_ok()));
    assert_eq!(device.far.lock().unwrap()[1..=8], [2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn queued_chains_are_posted_when_their_thread_ends() {
    let (device, mut lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Silent;
    for index in 1..=4 {
        lane.push(adding(index));
    }
    lane.poll_round(1);
    lane.push(adding(5));
    lane.poll_round(1);
    assert_eq!(lane.doorbells(), 1, "one of five waits for the others");
    let described = lane.describe();
    assert!(described.contains("4 chains under way, 1 wait to be posted"), "{described}");
    lane.post_all();
    assert_eq!(lane.doorbells(), 2);
    *device.behavior.lock().unwrap() = DeviceBehavior::Works;
    assert!(lane.poll_round(1));
    assert_eq!(device.far.lock().unwrap()[1..=5], [2, 3, 4, 5, 6]);
}

/// The polling thread answers between two polls.
#[test]
fn a_report_of_a_stall_describes_requests_in_flight_while_a_thread_polls() {
    let (device, mut lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Silent;
    lane.push(adding(1));
    lane.poll_round(1);
    let inquiry = Arc::clone(lane.inquiry());
    thread::scope(|scope| {
        let looks = scope.spawn(|| lane.poll_round(u32::MAX));
        let mut reports = 0;
        while !looks.is_finished() && reports < 5 {
            let report = inquiry.ask();
            assert!(report.contains("1 chains under way") || looks.is_finished(), "{report}");
            reports += 1;
        }
        assert!(reports > 0);
        assert!(looks.join().unwrap(), "its chain fails after the timeout");
    });
}

#[test]
fn polling_alone_posts_and_completes_a_chain() {
    let (_, mut lane) = lane();
    let number = lane.push(adding(1));
    assert!((0..3).any(|_| lane.is_done(number)));
}

#[test]
fn requests_beyond_the_credits_are_posted_in_turn() {
    let (device, mut lane) = lane();
    let mut chain = RawChain::default();
    let slots: Vec<_> = (0..100).map(|_| chain.fetch_add(at(5), 1)).collect();
    let all = chain.read(at(0), 100);
    chain.write(at(0), &[9; 100]);
    let number = lane.push(chain);
    let (chain, result) = wait(&mut lane, number);
    result.unwrap();
    assert!((5..).zip(&slots).all(|(value, slot)| chain.word(*slot) == value));
    assert_eq!(chain.words(all)[5], 105);
    assert_eq!(device.far.lock().unwrap()[..100], [9; 100]);
}

/// Pushes a single operation.
fn push_single(lane: &mut Lane<ToDevice>, op: impl Fn() -> Op, written: &[u64]) -> usize {
    let target = Target { address: op().at().offset(), key: 7 };
    lane.try_push_single(&op, written, target).unwrap_or_else(|| lane.push_single(op, written, target))
}

fn wait_for_single(lane: &mut Lane<ToDevice>, number: usize, into: &mut [u64]) -> Result<()> {
    loop {
        if lane.try_poll_single(number, into).is_some() {
            return Ok(());
        }
        if let Poll::Ready(result) = lane.poll_single(number, into) {
            return result;
        }
        lane.poll_round(4);
    }
}

#[test]
fn single_operations_have_their_results_also_without_credits_and_places() {
    let (device, mut lane) = lane();
    let numbers: Vec<usize> = (1..100)
        .map(|index| push_single(&mut lane, move || Op::compare_exchange(at(index), index, 7), &[]))
        .collect();
    let written = push_single(&mut lane, || Op::write(at(100), 3), &[1, 2, 3]);
    for (number, expected) in numbers.iter().zip(1..) {
        let mut word = [0];
        wait_for_single(&mut lane, *number, &mut word).unwrap();
        assert_eq!(word, [expected]);
    }
    let (chain, result) = wait(&mut lane, written);
    result.unwrap();
    assert_eq!((chain.ops().len(), chain.buffer()), (1, &[1, 2, 3][..]));
    let far = device.far.lock().unwrap();
    assert_eq!((&far[1..100], &far[100..103]), (&[7; 99][..], &[1, 2, 3][..]));
}

#[test]
fn results_that_were_not_taken_outlive_the_connection() {
    let (device, mut lane) = lane();
    let read = push_single(&mut lane, || Op::read(at(4), 3), &[]);
    let abandoned = push_single(&mut lane, || Op::fetch_add(at(5), 1), &[]);
    assert!(lane.poll_round(4));
    *device.behavior.lock().unwrap() = DeviceBehavior::Ended;
    let fails = push_single(&mut lane, || Op::read(at(9), 1), &[]);
    let Err(Error::NodeUnreachable(error)) = wait_for_single(&mut lane, fails, &mut [0]) else {
        panic!("the connection has ended")
    };
    assert_eq!((error.operation, error.address), ("READ", at(9)));
    // The new connection uses the same places.
    *device.behavior.lock().unwrap() = DeviceBehavior::Works;
    let other = push_single(&mut lane, || Op::read(at(20), 16), &[]);
    wait_for_single(&mut lane, other, &mut [0; 16]).unwrap();
    let mut words = [0; 3];
    wait_for_single(&mut lane, read, &mut words).unwrap();
    assert_eq!(words, [4, 5, 6]);
    assert_eq!(lane.take(abandoned).0.buffer(), [5]);
    assert_eq!(device.attempts.load(Ordering::Relaxed), 2);
}

#[test]
fn requests_without_completions_fail_after_the_timeout() {
    let (device, mut lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Silent;
    let began = Instant::now();
    let numbers = [lane.push(adding(1)), lane.push(adding(2))];
    let errors = numbers.map(|number| wait(&mut lane, number).1.unwrap_err());
    assert!(began.elapsed() >= TIMEOUT && began.elapsed() < 20 * TIMEOUT);
    assert_eq!(device.wires.load(Ordering::Relaxed), 0, "no wire remains");
    for (index, error) in (1..).zip(errors) {
        let Error::NodeUnreachable(error) = error else { panic!("{error}") };
        assert_eq!((error.node, error.operation, error.address), (1, "FAA", at(index)));
        assert_eq!(u128::from(error.timeout_us), TIMEOUT.as_micros());
    }
}

#[test]
fn an_ended_connection_ends_the_wait_immediately() {
    let (device, mut lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Ended;
    let number = lane.push(adding(1));
    assert!(matches!(wait(&mut lane, number).1, Err(Error::NodeUnreachable(_))));
}

#[test]
fn an_evicted_process_gets_the_error_immediately_and_always() {
    let (device, mut lane) = lane();
    *device.evicts.lock().unwrap() = true;
    *device.behavior.lock().unwrap() = DeviceBehavior::Ended;
    for _ in 0..3 {
        let number = lane.push(adding(1));
        let Err(Error::Evicted(evicted)) = wait(&mut lane, number).1 else { panic!("it was evicted") };
        assert_eq!(evicted.process, 7);
    }
    assert_eq!(device.attempts.load(Ordering::Relaxed), 2, "no further attempt to connect");
    assert_eq!(device.far.lock().unwrap()[1], 1, "no chain had an effect");
}

#[test]
fn a_connection_that_the_other_side_has_closed_is_made_again_immediately() {
    let (device, mut lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Ended;
    let number = lane.push(adding(1));
    assert!(wait(&mut lane, number).1.is_err());
    *device.behavior.lock().unwrap() = DeviceBehavior::Works;
    let number = lane.push(adding(1));
    wait(&mut lane, number).1.unwrap();
    assert_eq!(device.attempts.load(Ordering::Relaxed), 2);
}

#[test]
fn errors_name_the_operation_that_the_device_refused() {
    let (device, mut lane) = lane();
    let before = lane.push(adding(1));
    lane.poll_round(1);
    wait(&mut lane, before).1.unwrap();
    *device.behavior.lock().unwrap() = DeviceBehavior::Fails(Outcome::Failed("remote access error"));
    let numbers = [lane.push(adding(2)), lane.push(adding(3))];
    let errors = numbers.map(|number| wait(&mut lane, number).1.unwrap_err().to_string());
    assert_eq!(errors[0], "FAA of 3:0x10 failed on memory node 1: remote access error");
    let second = "FAA of 3:0x18 failed on memory node 1: the connection failed with FAA of 3:0x10: remote access error";
    assert_eq!(errors[1], second);
    assert_eq!(device.far.lock().unwrap()[1..4], [2, 2, 3], "earlier operations keep their effect");
}

#[test]
fn a_lost_connection_is_made_again_but_not_for_every_chain() {
    let (device, mut lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Fails(Outcome::NoAnswer);
    let number = lane.push(adding(1));
    assert!(matches!(wait(&mut lane, number).1, Err(Error::NodeUnreachable(_))));
    *device.behavior.lock().unwrap() = DeviceBehavior::Works;
    let number = lane.push(adding(1));
    assert!(wait(&mut lane, number).1.is_err(), "too soon");
    assert_eq!(device.attempts.load(Ordering::Relaxed), 1);
    *device.can_connect.lock().unwrap() = false;
    let mut next = || {
        let number = lane.push(adding(1));
        wait(&mut lane, number).1
    };
    let mut failed = 0;
    while device.attempts.load(Ordering::Relaxed) < 2 {
        assert!(next().is_err());
        failed += 1;
    }
    assert!(failed > 1, "only the last of {failed} chains has tried");
    *device.can_connect.lock().unwrap() = true;
    while next().is_err() {}
    assert_eq!(device.attempts.load(Ordering::Relaxed), 3);
    assert_eq!(device.far.lock().unwrap()[1], 2);
}

#[test]
fn a_lane_that_nobody_polls_does_not_hold_up_a_report() {
    let (_, mut lane) = lane();
    lane.push(adding(1));
    assert_eq!(lane.inquiry().ask(), "no thread polls the lane to memory node 1, which may be reconnecting");
    lane.poll_round(0);
    let answer = lane.inquiry().answer_that_came();
    assert!(answer.is_some_and(|answer| answer.contains("1 wait to be posted")), "the next round answers");
}

#[test]
fn a_lane_that_was_never_connected_connects_at_its_first_chain() {
    let (device, _) = lane();
    let mut lane = Lane::unconnected(ToDevice(Arc::clone(&device)));
    assert_eq!(device.attempts.load(Ordering::Relaxed), 1, "the other lane's");
    let number = lane.push(adding(1));
    wait(&mut lane, number).1.unwrap();
    assert_eq!((device.attempts.load(Ordering::Relaxed), device.far.lock().unwrap()[1]), (2, 2));
    *device.can_connect.lock().unwrap() = false;
    let mut lane = Lane::unconnected(ToDevice(Arc::clone(&device)));
    let number = lane.push(adding(1));
    assert!(matches!(wait(&mut lane, number).1, Err(Error::NodeUnreachable(_))));
    assert_eq!(device.attempts.load(Ordering::Relaxed), 3);
}

/// A set of one lane that several threads share, or that one has for itself.
fn sets() -> (Arc<Device>, [Lanes<ToDevice>; 2]) {
    let (device, own) = lane();
    let other = Lane::new(ToDevice(Arc::clone(&device))).unwrap();
    (device, [Lanes::Own(RefCell::new(vec![own])), Lanes::Shared(sets::shared(vec![other]))])
}

#[test]
fn own_and_shared_lanes_execute_and_fail_alike() {
    let (device, sets) = sets();
    for (index, set) in (1..).zip(&sets) {
        let execute = || {
            // Each operation uses the lane anew, as endpoints do.
            let number = set.lane(0).push(adding(index));
            while !set.lane(0).is_done(number) {
                set.lane(0).poll_round(4);
            }
            set.lane(0).take(number).1
        };
        *device.behavior.lock().unwrap() = DeviceBehavior::Works;
        for _ in 0..100 {
            execute().unwrap();
        }
        assert_eq!(device.far.lock().unwrap()[index as usize], index + 100);
        for behavior in [DeviceBehavior::Silent, DeviceBehavior::Fails(Outcome::NoAnswer)] {
            *device.behavior.lock().unwrap() = behavior;
            assert!(matches!(execute(), Err(Error::NodeUnreachable(_))), "and then without a connection");
        }
    }
    assert_eq!(device.wires.load(Ordering::Relaxed), 0, "no wire remains");
}

#[test]
fn a_set_of_lanes_belongs_to_one_thread_at_a_time_and_is_used_again() {
    let (device, _) = lane();
    let open = || vec![Lane::unconnected(ToDevice(Arc::clone(&device)))];
    let (sharing, mut pool) = (Sharing::OneToOne, Pool::default());
    let mut sets = 0;
    let mut run = |pool: &mut Pool<ToDevice>| {
        while pool.lacks(sharing, 2) {
            sets += 1;
            pool.add(sharing, open());
        }
        sets
    };
    assert_eq!(run(&mut pool), 2);
    // A second run begins before the first has taken its sets.
    assert_eq!(run(&mut pool), 2);
    let made = Cell::new(0);
    let unconnected = || {
        made.set(made.get() + 1);
        open()
    };
    let mut taken = Vec::new();
    for thread in [0, 1, 0, 1] {
        let Lanes::Own(set) = pool.take(sharing, thread, 0, unconnected) else { panic!("it is shared") };
        taken.push(set.into_inner());
    }
    assert_eq!(made.get(), 2, "four threads, two sets that were prepared");
    for set in taken {
        pool.give_back(set);
    }
    assert_eq!(run(&mut pool), 2, "the next run opens none");
}

#[test]
fn threads_that_share_a_lane_get_their_own_results() {
    let (device, lane) = lane();
    let lane = &Mutex::new(lane);
    thread::scope(|scope| {
        for index in 1..=4 {
            scope.spawn(move || {
                for count in 0..500 {
                    let mut chain = RawChain::default();
                    let slot = chain.fetch_add(at(index), 1);
                    let number = lane.lock().unwrap().push(chain);
                    while !lane.lock().unwrap().is_done(number) {
                        lane.lock().unwrap().poll_round(4);
                    }
                    let (chain, result) = lane.lock().unwrap().take(number);
                    result.unwrap();
                    assert_eq!(chain.word(slot), index + count);
                }
            });
        }
    });
    assert_eq!(device.far.lock().unwrap()[1..=4], [501, 502, 503, 504]);
}
