//! Lanes on a fake wire to a vector, with failures that real devices show only when they break.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::super::pipeline::Verb;
use super::*;

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
    posted: VecDeque<(u64, bool, Work)>,
    flushing: bool,
}

struct VectorRing(Mutex<Vec<u64>>);

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

    fn credits(&self) -> Credits {
        Credits { requests: 32, reads: 8, words: 64, inline_words: 2 }
    }
    fn ring(&self) -> &VectorRing {
        &self.ring
    }
    fn post<'a>(
        &mut self,
        mut next: impl FnMut(&VectorRing) -> Option<(Request<'a>, Target)>,
    ) -> Result<usize, Refused> {
        let mut added = VecDeque::new();
        while added.len() < 32
            && let Some((request, target)) = next(&self.ring)
        {
            added.push_back((request.position, request.signal, self.work(&request, target)));
        }
        // The last request of a batch is always signalled.
        if let Some((_, signal, _)) = added.back_mut() {
            *signal = true;
        }
        let count = added.len();
        self.posted.append(&mut added);
        Ok(count)
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
    fn queue_pair_state(&mut self) -> &'static str {
        "which is simulated by vectors"
    }
    fn stop(&mut self) {
        self.flushing = true;
    }
}

impl ToVector {
    fn work(&self, request: &Request<'_>, target: Target) -> Work {
        let index = target.address as usize / 8;
        match request.verb {
            Verb::Read { ring, words } => Work::Read { index, ring, words },
            Verb::Write { ring, words } => {
                let mut copied = vec![0; words];
                self.ring.read(ring, &mut copied);
                Work::Write { index, words: copied }
            }
            Verb::WriteInline(words) => Work::Write { index, words: words.to_vec() },
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
            ring: VectorRing(Mutex::new(vec![0; 64])),
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
fn wait(lane: &Lane<ToDevice>, number: usize) -> (RawChain, Result<()>) {
    loop {
        if let Some(done) = lane.poll(number) {
            return done;
        }
        lane.poll_round(4);
    }
}

#[test]
fn chains_of_a_threads_tasks_share_one_doorbell() {
    let (device, lane) = lane();
    let numbers: Vec<usize> = (1..=8).map(|index| lane.push(adding(index))).collect();
    assert!(numbers.iter().all(|number| lane.poll(*number).is_none()), "it waits for the round's end");
    lane.poll_round(1);
    assert_eq!(lane.doorbells(), 1);
    assert!(numbers.iter().all(|number| wait(&lane, *number).1.is_ok()));
    assert_eq!(device.far.lock().unwrap()[1..=8], [2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn queued_chains_are_posted_when_their_thread_ends() {
    let (device, lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Silent;
    for index in 1..=4 {
        lane.push(adding(index));
    }
    lane.poll_round(1);
    lane.push(adding(5));
    lane.poll_round(1);
    assert_eq!(lane.doorbells(), 1, "one of five waits for the others");
    assert!(lane.describe().contains("4 chains under way, 1 wait to be posted"), "{}", lane.describe());
    lane.post_all();
    assert_eq!(lane.doorbells(), 2);
    *device.behavior.lock().unwrap() = DeviceBehavior::Works;
    assert!(lane.poll_round(1));
    assert_eq!(device.far.lock().unwrap()[1..=5], [2, 3, 4, 5, 6]);
}

/// A polling thread holds the lane's lock nearly all the time, also while a report is made.
#[test]
fn a_report_of_a_stall_describes_requests_in_flight_while_a_thread_polls() {
    let (device, lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Silent;
    lane.push(adding(1));
    lane.poll_round(1);
    thread::scope(|scope| {
        let looks = scope.spawn(|| lane.poll_round(u32::MAX));
        let mut reports = 0;
        while !looks.is_finished() && reports < 5 {
            let report = lane.describe();
            assert!(report.contains("1 chains under way") || looks.is_finished(), "{report}");
            reports += 1;
        }
        assert!(reports > 0);
        assert!(looks.join().unwrap(), "its chain fails after the timeout");
    });
}

#[test]
fn polling_alone_posts_and_completes_a_chain() {
    let (_, lane) = lane();
    let number = lane.push(adding(1));
    assert!((0..3).any(|_| lane.poll(number).is_some()));
}

#[test]
fn requests_beyond_the_credits_are_posted_in_turn() {
    let (device, lane) = lane();
    let mut chain = RawChain::default();
    let slots: Vec<_> = (0..100).map(|_| chain.fetch_add(at(5), 1)).collect();
    let all = chain.read(at(0), 100);
    chain.write(at(0), &[9; 100]);
    let number = lane.push(chain);
    let (chain, result) = wait(&lane, number);
    result.unwrap();
    assert!((5..).zip(&slots).all(|(value, slot)| chain.word(slot) == value));
    assert_eq!(chain.words(&all)[5], 105);
    assert_eq!(device.far.lock().unwrap()[..100], [9; 100]);
}

#[test]
fn requests_without_completions_fail_after_the_timeout() {
    let (device, lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Silent;
    let began = Instant::now();
    let numbers = [lane.push(adding(1)), lane.push(adding(2))];
    let errors = numbers.map(|number| wait(&lane, number).1.unwrap_err());
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
    let (device, lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Ended;
    let number = lane.push(adding(1));
    assert!(matches!(wait(&lane, number).1, Err(Error::NodeUnreachable(_))));
}

#[test]
fn an_evicted_process_gets_the_error_immediately_and_always() {
    let (device, lane) = lane();
    *device.evicts.lock().unwrap() = true;
    *device.behavior.lock().unwrap() = DeviceBehavior::Ended;
    for _ in 0..3 {
        let number = lane.push(adding(1));
        let Err(Error::Evicted(evicted)) = wait(&lane, number).1 else { panic!("it was evicted") };
        assert_eq!(evicted.process, 7);
    }
    assert_eq!(device.attempts.load(Ordering::Relaxed), 2, "no further attempt to connect");
    assert_eq!(device.far.lock().unwrap()[1], 1, "no chain had an effect");
}

#[test]
fn a_connection_that_the_other_side_has_closed_is_made_again_immediately() {
    let (device, lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Ended;
    let number = lane.push(adding(1));
    assert!(wait(&lane, number).1.is_err());
    *device.behavior.lock().unwrap() = DeviceBehavior::Works;
    let number = lane.push(adding(1));
    wait(&lane, number).1.unwrap();
    assert_eq!(device.attempts.load(Ordering::Relaxed), 2);
}

#[test]
fn errors_name_the_operation_that_the_device_refused() {
    let (device, lane) = lane();
    let before = lane.push(adding(1));
    lane.poll_round(1);
    wait(&lane, before).1.unwrap();
    *device.behavior.lock().unwrap() = DeviceBehavior::Fails(Outcome::Failed("remote access error"));
    let numbers = [lane.push(adding(2)), lane.push(adding(3))];
    let errors = numbers.map(|number| wait(&lane, number).1.unwrap_err().to_string());
    assert_eq!(errors[0], "FAA of 3:0x10 failed on memory node 1: remote access error");
    let second = "FAA of 3:0x18 failed on memory node 1: the connection failed with FAA of 3:0x10: remote access error";
    assert_eq!(errors[1], second);
    assert_eq!(device.far.lock().unwrap()[1..4], [2, 2, 3], "earlier operations keep their effect");
}

#[test]
fn a_lost_connection_is_made_again_but_not_for_every_chain() {
    let (device, lane) = lane();
    *device.behavior.lock().unwrap() = DeviceBehavior::Fails(Outcome::NoAnswer);
    let number = lane.push(adding(1));
    assert!(matches!(wait(&lane, number).1, Err(Error::NodeUnreachable(_))));
    *device.behavior.lock().unwrap() = DeviceBehavior::Works;
    let number = lane.push(adding(1));
    assert!(wait(&lane, number).1.is_err(), "too soon");
    assert_eq!(device.attempts.load(Ordering::Relaxed), 1);
    *device.can_connect.lock().unwrap() = false;
    let next = || {
        let number = lane.push(adding(1));
        wait(&lane, number).1
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
fn threads_that_share_a_lane_get_their_own_results() {
    let (device, lane) = lane();
    std::thread::scope(|scope| {
        for index in 1..=4 {
            let lane = &lane;
            scope.spawn(move || {
                for count in 0..500 {
                    let mut chain = RawChain::default();
                    let slot = chain.fetch_add(at(index), 1);
                    let number = lane.push(chain);
                    let (chain, result) = wait(lane, number);
                    result.unwrap();
                    assert_eq!(chain.word(&slot), index + count);
                }
            });
        }
    });
    assert_eq!(device.far.lock().unwrap()[1..=4], [501, 502, 503, 504]);
}
