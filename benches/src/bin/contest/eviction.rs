//! Which records to keep? The hot phase's trace, by several policies.
//!
//! The engine's is a CLOCK whose records begin without a second chance. This compares it with LRU and S3-FIFO (Yang, Zhang, Qiu, Yue and Rashmi, SOSP 2023), each with room for a share of the
//! records. A record that is written is a new one, as in the engine.

use std::collections::{HashMap, VecDeque};

use crate::workload::{Key, Phase, Plan, Request, Worker};

/// A cache of records.
trait Policy {
    /// A record is read. Returns whether it was there; if not, it is inserted.
    fn read(&mut self, key: Key) -> bool;

    /// A record is written, and inserted.
    fn write(&mut self, key: Key);
}

#[derive(Default)]
struct Clock {
    room: usize,
    touched: HashMap<Key, bool>,
    order: VecDeque<Key>,
}

impl Policy for Clock {
    fn read(&mut self, key: Key) -> bool {
        if let Some(touched) = self.touched.get_mut(&key) {
            *touched = true;
            return true;
        }
        self.write(key);
        false
    }

    fn write(&mut self, key: Key) {
        if let Some(touched) = self.touched.get_mut(&key) {
            *touched = false;
            return;
        }
        while self.touched.len() >= self.room {
            let first = self.order.pop_front().unwrap();
            if std::mem::take(self.touched.get_mut(&first).unwrap()) {
                self.order.push_back(first);
            } else {
                self.touched.remove(&first);
            }
        }
        self.touched.insert(key, false);
        self.order.push_back(key);
    }
}

#[derive(Default)]
struct Lru {
    room: usize,
    /// When each was used last.
    used: HashMap<Key, u64>,
    /// In the order of uses; only the last use of a record counts.
    order: VecDeque<(Key, u64)>,
    now: u64,
}

impl Policy for Lru {
    fn read(&mut self, key: Key) -> bool {
        let is_there = self.used.contains_key(&key);
        self.write(key);
        is_there
    }

    fn write(&mut self, key: Key) {
        self.now += 1;
        self.used.insert(key, self.now);
        self.order.push_back((key, self.now));
        while self.used.len() > self.room {
            let (first, used) = self.order.pop_front().unwrap();
            if self.used.get(&first) == Some(&used) {
                self.used.remove(&first);
            }
        }
    }
}

#[derive(Default)]
struct S3Fifo {
    room: usize,
    /// How often each was used, at most 3, and whether it is in the main queue.
    uses: HashMap<Key, (u8, bool)>,
    small: VecDeque<Key>,
    main: VecDeque<Key>,
    ghosts: VecDeque<Key>,
    is_ghost: HashMap<Key, u32>,
}

impl S3Fifo {
    fn evict(&mut self) {
        if self.small.len() * 10 >= self.room || self.main.is_empty() {
            let Some(first) = self.small.pop_front() else { return };
            if self.uses[&first].0 > 1 {
                self.uses.insert(first, (0, true));
                self.main.push_back(first);
            } else {
                self.uses.remove(&first);
                self.ghosts.push_back(first);
                *self.is_ghost.entry(first).or_default() += 1;
                if self.ghosts.len() > self.room * 9 / 10 {
                    let oldest = self.ghosts.pop_front().unwrap();
                    let count = self.is_ghost.get_mut(&oldest).unwrap();
                    *count -= 1;
                    if *count == 0 {
                        self.is_ghost.remove(&oldest);
                    }
                }
            }
        } else {
            let first = self.main.pop_front().unwrap();
            let (uses, _) = self.uses[&first];
            if uses > 0 {
                self.uses.insert(first, (uses - 1, true));
                self.main.push_back(first);
            } else {
                self.uses.remove(&first);
            }
        }
    }
}

impl Policy for S3Fifo {
    fn read(&mut self, key: Key) -> bool {
        if let Some((uses, _)) = self.uses.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        self.write(key);
        false
    }

    fn write(&mut self, key: Key) {
        if self.uses.contains_key(&key) {
            return;
        }
        while self.uses.len() >= self.room {
            self.evict();
        }
        let is_main = self.is_ghost.contains_key(&key);
        self.uses.insert(key, (0, is_main));
        if is_main { self.main.push_back(key) } else { self.small.push_back(key) }
    }
}

/// Returns the share of the reads of the hot phase that find their record.
fn hit_rate(plan: &Plan, mut policy: impl Policy) -> f64 {
    let mut workers: Vec<_> = (0..plan.workers).map(|index| Worker::new(plan, index)).collect();
    let (mut hits, mut reads) = (0_u32, 0_u32);
    for phase in Phase::ALL {
        for worker in &mut workers {
            worker.begin(phase);
        }
        loop {
            let requests: Vec<_> = workers.iter_mut().filter_map(Worker::next).collect();
            if requests.is_empty() {
                break;
            }
            for request in requests {
                match request {
                    Request::Read { key, .. } => {
                        let is_hit = policy.read(key);
                        if phase == Phase::Hot {
                            hits += u32::from(is_hit);
                            reads += 1;
                        }
                    }
                    Request::Write { key, .. } => policy.write(key),
                    Request::Delete { .. } => {}
                }
            }
        }
    }
    f64::from(hits) / f64::from(reads)
}

#[test]
fn a_clock_keeps_as_many_of_the_hot_records_as_other_policies() {
    let plan = Plan::new(0.0005, 32, 1);
    for percent in [5, 15, 30] {
        let room = plan.all_records() as usize * percent / 100;
        let clock = hit_rate(&plan, Clock { room, ..Clock::default() });
        let lru = hit_rate(&plan, Lru { room, ..Lru::default() });
        let s3_fifo = hit_rate(&plan, S3Fifo { room, ..S3Fifo::default() });
        println!("hit rates with room for {percent} %: CLOCK {clock:.3}, LRU {lru:.3}, S3-FIFO {s3_fifo:.3}");
        assert!(clock > 0.2 && clock > lru.max(s3_fifo) - 0.02);
    }
}
