//! `LocalEpoch`: objects are dropped once, and not while a guard can reach them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use farfield::LocalEpoch;

const OBJECTS: usize = 20_000;

/// An object that notes when it is dropped.
struct Object {
    number: usize,
    dropped: Arc<Vec<AtomicBool>>,
}

impl Drop for Object {
    fn drop(&mut self) {
        assert!(!self.dropped[self.number].swap(true, Ordering::SeqCst), "dropped twice");
    }
}

fn flags() -> Arc<Vec<AtomicBool>> {
    Arc::new((0..OBJECTS).map(|_| AtomicBool::new(false)).collect())
}

#[test]
fn readers_see_no_dropped_object_and_all_objects_are_dropped() {
    let (epoch, dropped, current) = (LocalEpoch::new(), flags(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let thread = epoch.register();
                while current.load(Ordering::SeqCst) < OBJECTS - 1 {
                    let guard = thread.pin();
                    let number = current.load(Ordering::SeqCst);
                    for _ in 0..50 {
                        assert!(
                            !dropped[number].load(Ordering::SeqCst),
                            "{number} is still linked or protected"
                        );
                    }
                    guard.unpin();
                }
            });
        }
        scope.spawn(|| {
            let thread = epoch.register();
            for number in 0..OBJECTS - 1 {
                let guard = thread.pin();
                current.store(number + 1, Ordering::SeqCst);
                guard.retire(Box::new(Object { number, dropped: Arc::clone(&dropped) }));
                if number % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
    });
    let thread = epoch.register();
    for _ in 0..4 {
        thread.try_reclaim();
    }
    let left = dropped.iter().filter(|flag| !flag.load(Ordering::SeqCst)).count();
    assert_eq!(left, 1, "all but the last");
}

#[test]
fn a_guard_delays_drops_until_it_is_repinned() {
    let (epoch, dropped) = (LocalEpoch::new(), flags());
    let (reader, writer) = (epoch.register(), epoch.register());
    let mut held = reader.pin();
    writer.pin().retire(Box::new(Object { number: 0, dropped: Arc::clone(&dropped) }));
    for _ in 0..10 {
        assert_eq!(writer.try_reclaim(), 0);
    }
    let mut reclaimed = 0;
    for _ in 0..4 {
        held.repin();
        reclaimed += writer.try_reclaim();
    }
    assert_eq!(reclaimed, 1);
}

#[test]
fn garbage_of_an_ended_thread_is_dropped_by_others() {
    let (epoch, dropped) = (LocalEpoch::new(), flags());
    let stays = epoch.register();
    {
        let goes = epoch.register();
        goes.pin().retire(Box::new(Object { number: 0, dropped: Arc::clone(&dropped) }));
    }
    let reclaimed: usize = (0..4).map(|_| stays.try_reclaim()).sum();
    assert_eq!(reclaimed, 1);
    assert!(dropped[0].load(Ordering::SeqCst));
}

#[test]
fn a_destructor_may_retire() {
    struct Chain(LocalEpoch, Arc<AtomicUsize>);
    impl Drop for Chain {
        fn drop(&mut self) {
            let left = self.1.fetch_sub(1, Ordering::SeqCst) - 1;
            if left > 0 {
                let thread = self.0.register();
                thread.pin().retire(Box::new(Self(self.0.clone(), Arc::clone(&self.1))));
            }
        }
    }
    let (epoch, left) = (LocalEpoch::new(), Arc::new(AtomicUsize::new(3)));
    let thread = epoch.register();
    thread.pin().retire(Box::new(Chain(epoch.clone(), Arc::clone(&left))));
    for _ in 0..20 {
        thread.try_reclaim();
    }
    assert_eq!(left.load(Ordering::SeqCst), 0);
}
