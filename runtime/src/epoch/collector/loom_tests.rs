//! Model checks of the epochs: all interleavings up to a bound on preemptions, and planted bugs that must be found.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release -p farfield --lib loom`.

use super::*;

/// The far-memory side of the scheme, as in `memory/global` but synchronous: the epoch, and the announcements of two processes.
struct Far {
    epoch: AtomicU64,
    announced: [AtomicU64; 2],
}

impl Far {
    fn step(&self, process: usize, collector: &Collector) {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let other = self.announced[1 - process].load(Ordering::SeqCst);
        collector.observe(epoch);
        if !collector.has_caught_up(epoch) {
            return;
        }
        self.announced[process].store(epoch, Ordering::SeqCst);
        if other >= epoch
            && self.epoch.compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            collector.observe(epoch + 1);
        }
    }
}

/// Reads through the link, as a reader does. A reachable object must not be freed.
fn read(me: &Participant, link: &AtomicU64, freed: &AtomicU64) {
    let pin = me.pin();
    if link.load(Ordering::SeqCst) == 1 {
        assert_eq!(freed.load(Ordering::Relaxed), 0, "a reachable object was freed");
    }
    me.unpin(pin);
}

/// A structure with one link: the writer unlinks an object, retires and frees it; a reader that reached it must not find it freed. With overlapping
/// guards, or where a pin may be late, a third thread advances the epoch.
fn in_one_process(overlapping: bool, without: Option<Part>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let collector = Arc::new(Collector::new());
        let link = Arc::new(AtomicU64::new(1));
        let freed = Arc::new(AtomicU64::new(0));
        let reader = {
            let (collector, link, freed) = (Arc::clone(&collector), Arc::clone(&link), Arc::clone(&freed));
            loom::thread::spawn(move || {
                let me = Collector::register(&collector, 0);
                me.without.set(without);
                let outer = overlapping.then(|| me.pin());
                let pin = me.pin();
                if let Some(outer) = outer {
                    me.unpin(outer);
                }
                if link.load(Ordering::Acquire) == 1 {
                    assert_eq!(freed.load(Ordering::Relaxed), 0, "a reachable object was freed");
                }
                me.unpin(pin);
            })
        };
        let advancer = (overlapping || without == Some(Part::Look)).then(|| {
            let collector = Arc::clone(&collector);
            loom::thread::spawn(move || {
                collector.try_advance();
                if !overlapping {
                    collector.try_advance();
                }
            })
        });
        let me = Collector::register(&collector, 0);
        me.without.set(without);
        let pin = me.pin();
        link.store(0, Ordering::Release);
        let tag = me.tag();
        me.unpin(pin);
        for _ in 0..3 {
            if collector.try_advance() >= tag + GRACE_EPOCHS {
                freed.store(1, Ordering::Relaxed);
                break;
            }
        }
        reader.join().unwrap();
        if let Some(advancer) = advancer {
            advancer.join().unwrap();
        }
    });
}

/// The same, with the reader in another process that has observed an epoch before the writer's process has. The memory is freed `grace` epochs after
/// its tag.
fn in_two_processes(grace: u64) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let far = Arc::new(Far {
            epoch: AtomicU64::new(FIRST_EPOCH + 1),
            announced: [AtomicU64::new(FIRST_EPOCH), AtomicU64::new(FIRST_EPOCH + 1)],
        });
        let link = Arc::new(AtomicU64::new(1));
        let freed = Arc::new(AtomicU64::new(0));
        let other = {
            let (far, link, freed) = (Arc::clone(&far), Arc::clone(&link), Arc::clone(&freed));
            loom::thread::spawn(move || {
                let collector = Arc::new(Collector::new());
                collector.observe(FIRST_EPOCH + 1);
                let reader = {
                    let (collector, link, freed) =
                        (Arc::clone(&collector), Arc::clone(&link), Arc::clone(&freed));
                    loom::thread::spawn(move || {
                        let me = Collector::register(&collector, 0);
                        read(&me, &link, &freed);
                    })
                };
                far.step(1, &collector);
                reader.join().unwrap();
            })
        };
        let collector = Arc::new(Collector::new());
        let me = Collector::register(&collector, 0);
        let pin = me.pin();
        link.store(0, Ordering::SeqCst);
        let tag = me.tag();
        me.unpin(pin);
        for _ in 0..3 {
            far.step(0, &collector);
            if collector.epoch() >= tag + grace {
                freed.store(1, Ordering::Relaxed);
                break;
            }
        }
        other.join().unwrap();
    });
}

#[test]
fn loom_no_reader_finds_its_object_freed() {
    in_one_process(false, None);
}

#[test]
fn loom_overlapping_guards_protect_as_one_does() {
    in_one_process(true, None);
}

#[test]
fn loom_a_reader_of_another_process_is_protected() {
    in_two_processes(GRACE_EPOCHS);
}

#[test]
#[should_panic(expected = "a reachable object was freed")]
fn loom_finds_memory_freed_one_epoch_early() {
    in_two_processes(GRACE_EPOCHS - 1);
}

#[test]
#[should_panic(expected = "a reachable object was freed")]
fn loom_finds_a_pin_without_its_fence() {
    in_one_process(false, Some(Part::Fence));
}

#[test]
#[should_panic(expected = "a reachable object was freed")]
fn loom_finds_a_pin_without_its_second_load() {
    in_one_process(false, Some(Part::Look));
}
