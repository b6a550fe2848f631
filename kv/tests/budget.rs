//! The budget of local memory: a counting allocator compares it with what a store allocates, and the system with what its process has.

#![allow(clippy::cast_possible_wrap)] // of some millions

mod keys;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use farfield::Result;
use farfield::prelude::*;
use farfield_kv::{Options, Store};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use keys::key;

/// The bytes that this thread has allocated and not freed, now and at most, while work was counted.
#[derive(Default, Debug)]
struct Allocated {
    now: i64,
    most: i64,
}

impl Allocated {
    /// Counts during a future that is ready at its first poll, as all of the embedded fabric are.
    fn by<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut polled = Poll::Pending;
        let counted = measure(|| polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        self.most = self.most.max(self.now + counted.bytes_max as i64);
        self.now += counted.bytes_current;
        match polled {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("an operation of the embedded fabric waits"),
        }
    }
}

/// What an operation may allocate besides what is counted.
const OPERATION_BYTES: i64 = 12 << 10;
/// What the runtime's buffers for a thread take, at most.
const RUNTIME_BYTES: i64 = 64 << 10;

/// What a store is used for while the allocations are counted.
#[derive(Clone, Copy, Debug)]
enum Use {
    Write,
    Read,
    Rewrite,
    Delete,
    Rebuild,
}

const KEYS: u64 = 8000;

impl Use {
    fn run(self, store: &Store, ct: &ComputeThread, allocated: &mut Allocated) -> Result<()> {
        let mut rng = SmallRng::seed_from_u64(self as u64);
        let value = vec![3; 500];
        for number in 0..KEYS {
            let (any, length) = (rng.random_range(0..KEYS), rng.random_range(0..500));
            match self {
                Self::Write => allocated.by(store.write(&key(number), &value[..length], false, ct))?,
                Self::Read => {
                    let read = async { store.read(&key(any), ct).await.map(drop) };
                    allocated.by(read)?;
                }
                Self::Rewrite => allocated.by(store.write(&key(any), &value[..length], true, ct))?,
                Self::Delete => drop(allocated.by(store.delete(&key(any), ct))?),
                Self::Rebuild => return allocated.by(store.rebuild(95, ct)).map(drop),
            }
        }
        Ok(())
    }
}

/// Several times the budget is written, read, changed and deleted.
#[test]
fn a_store_allocates_what_it_counts_and_no_more_than_the_budget() {
    const BUDGET: usize = 550_000;
    let options = Options::new(BUDGET, 8 << 20).with_key([7; 32]);
    let run = Cluster::connect("local:size=64MiB").unwrap().run(1, async |ct| {
        let mut allocated = Allocated::default();
        for uses in [
            &[Use::Write][..],
            &[Use::Read],
            &[Use::Rewrite, Use::Read],
            &[Use::Delete],
            &[Use::Rebuild, Use::Write, Use::Read, Use::Rewrite, Use::Delete],
        ] {
            allocated.most = 0;
            let store = allocated.by(Store::open("store", &options, ct))?;
            for of in uses {
                of.run(&store, ct, &mut allocated)?;
                assert!(store.stats().local_bytes <= BUDGET as u64, "{of:?}");
                ct.yield_now().await;
            }
            allocated.by(ct.flush())?;
            let (stats, before) = (store.stats(), allocated.now);
            let data = 8 * stats.pages * 2045;
            assert!(data > 3 * BUDGET as u64 || matches!(uses[0], Use::Delete | Use::Rebuild), "{stats:?}");
            allocated.by(async { drop(store) });
            let freed = before - allocated.now;
            println!(
                "kv.budget.counted {}\nkv.budget.allocated {freed}\nkv.budget.most {}",
                stats.local_bytes,
                allocated.most - allocated.now
            );
            assert_eq!(freed, stats.local_bytes as i64, "after {uses:?}");
            assert!(allocated.now <= RUNTIME_BYTES, "{allocated:?} after {uses:?}");
            let most = allocated.most - allocated.now;
            assert!(most <= BUDGET as i64 + OPERATION_BYTES, "{most} bytes were allocated in {uses:?}");
        }
        Ok(())
    });
    run.unwrap();
}

/// Returns the least budget that an error names.
fn least(refused: &str) -> usize {
    let bytes = refused.split("too little: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    bytes.unwrap_or_else(|| panic!("it names the least: {refused}"))
}

#[test]
fn too_small_a_budget_is_refused_with_the_least_that_works() {
    for (threads, far_bytes) in [(1, 1 << 20), (1, 32 << 20), (4, 32 << 20)] {
        let cluster = Cluster::connect("local:size=64MiB").unwrap();
        let open = |local_bytes: usize| {
            let opened = cluster.run(threads, async |ct| {
                if ct.index() == 0 {
                    let store = Store::open("store", &Options::new(local_bytes, far_bytes), ct).await?;
                    for round in 0..5 {
                        for number in 0..1000 {
                            store.write(&key(number), &[round; 400], false, ct).await?;
                        }
                        for number in 0..1000 {
                            assert_eq!(
                                store.read(&key(number), ct).await?.as_deref(),
                                Some(&[round; 400][..])
                            );
                        }
                    }
                    assert!(store.stats().rebuilt_pages > 0 && store.stats().evicted_pages > 0);
                }
                Ok(())
            });
            opened.map(drop).map_err(|error| error.to_string())
        };
        let least = least(&open(10_000).unwrap_err());
        assert_eq!(self::least(&open(least - 1).unwrap_err()), least);
        for _ in 0..2 {
            open(least).unwrap();
        }
    }
}

#[test]
fn a_budget_that_is_exhausted_refuses_new_keys_and_nothing_else() {
    let cluster = Cluster::connect("local:size=64MiB").unwrap();
    let options = Options::new(550_000, 32 << 20);
    let run = cluster.run(1, async |ct| {
        let mut written = 0;
        {
            let store = Store::open("store", &options, ct).await?;
            let error = loop {
                match store.write(&key(written), &[1; 100], false, ct).await {
                    Ok(()) => written += 1,
                    Err(error) => break error,
                }
            };
            assert!(error.to_string().contains("budget of local memory is exhausted"), "{error}");
            assert!(store.stats().local_bytes <= 550_000);
            assert_eq!(store.read(&key(written), ct).await?, None);
            assert_eq!(store.stats().records, written);
        }
        for round in 2..5 {
            let store = Store::open("store", &options, ct).await?;
            for number in 0..written {
                assert!(store.update(&key(number), &[round; 100], false, ct).await?, "{number} of {written}");
            }
            for number in 0..written {
                assert_eq!(store.read(&key(number), ct).await?.as_deref(), Some(&[round; 100][..]));
            }
            assert!(store.stats().rebuilt_pages > 0);
            written -= 500;
            for number in written..written + 500 {
                assert!(store.delete(&key(number), ct).await?);
            }
            store.write(&key(written), &[round; 100], false, ct).await?;
            assert!(store.delete(&key(written), ct).await?);
        }
        Ok(written)
    });
    let written = run.unwrap()[0];
    assert!(written > 5000, "{written} records have had room in the index");
}
