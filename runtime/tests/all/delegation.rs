//! Delegation: what handles and requests promise, on mapped memory and in the simulator.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::fabrics::on_all;
use farfield::prelude::*;
use farfield::{Context, Error, StoredTrust};

/// Makes a value of thread 0, and a handle of it for each thread.
async fn shared<T: 'static>(ct: &ComputeThread, value: impl FnOnce() -> T) -> Result<Trust<T>> {
    if ct.index() == 0 {
        let stored = ct.entrust(value()).await?.store(ct).await?;
        ct.publish("value", stored).await?;
    }
    ct.barrier("published").await?;
    let trust = Trust::open(ct.lookup("value").await?, ct).await?;
    ct.barrier("opened").await?;
    if ct.index() == 0 {
        drop(Trust::<T>::take(ct.unpublish("value").await?, ct).await?);
    }
    ct.barrier("taken").await?;
    Ok(trust)
}

#[test]
fn every_request_is_executed_once() {
    on_all(4, async |ct| {
        let counter = shared(ct, || 0_u64).await?;
        for _ in 0..100 {
            counter.apply(ct, 1, |count, n: u64| *count += n).await?;
        }
        ct.barrier("counted").await?;
        assert_eq!(counter.apply(ct, (), |count, ()| *count).await?, 400);
        ct.barrier("read").await
    });
}

#[test]
fn requests_of_a_task_take_effect_in_order() {
    on_all(3, async |ct| {
        let log = shared(ct, Vec::<(u64, u64)>::new).await?;
        let me = ct.index() as u64;
        for number in 0..50 {
            log.post(ct, (me, number), |log, entry| log.push(entry)).await?;
        }
        log.apply(ct, (me, 50), |log, entry| log.push(entry)).await?;
        ct.barrier("logged").await?;
        let entries = log.apply(ct, (), |log, ()| log.clone()).await?;
        let mine: Vec<u64> = entries.iter().filter(|(by, _)| *by == me).map(|(_, number)| *number).collect();
        assert_eq!(mine, (0..=50).collect::<Vec<_>>());
        assert_eq!(entries.len(), 153);
        ct.barrier("checked").await
    });
}

#[test]
fn large_arguments_and_results_lie_in_far_memory() {
    on_all(2, async |ct| {
        let store = shared(ct, Vec::<Vec<u8>>::new).await?;
        for length in [0, 300, 5_000, 1 << 19] {
            let bytes = vec![ct.index() as u8; length];
            let back = store.apply(ct, bytes.clone(), |store, bytes: Vec<u8>| {
                store.push(bytes.clone());
                bytes
            });
            assert!(back.await? == bytes);
        }
        ct.barrier("stored").await?;
        let lengths =
            store.apply(ct, (), |store, ()| store.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
        assert_eq!(lengths.await?, 2 * (300 + 5_000 + (1 << 19)));
        ct.barrier("checked").await
    });
}

/// A thread with one task sends its request at once where memory is mapped, and looks for the answer before it does anything else: also if that is slow, far away, or no answer at
/// all, and while the trustee asks this thread.
#[test]
fn threads_that_ask_each_other_have_all_kinds_of_answers() {
    on_all(2, async |ct| {
        let mine = ct.entrust(0_u64).await?;
        ct.publish(&format!("value {}", ct.index()), mine.clone().store(ct).await?).await?;
        ct.barrier("published").await?;
        let other = format!("value {}", 1 - ct.index());
        let stored = ct.lookup::<StoredTrust<u64>>(&other).await?;
        let value = Trust::open(stored, ct).await?;
        for round in 0..200_u64 {
            assert_eq!(
                value
                    .apply(ct, 1, |sum, by: u64| {
                        *sum += by;
                        *sum
                    })
                    .await?,
                2 * round + 1
            );
            let large = value.apply(ct, round, |_, n: u64| vec![n; 100]).await?;
            assert_eq!(large, vec![round; 100]);
            if round % 50 == 0 {
                let slow = |sum: &mut u64, by: u64| {
                    std::thread::sleep(Duration::from_millis(1));
                    *sum += by;
                };
                value.apply(ct, 1, slow).await?;
                let panics = value.apply(ct, (), |_, ()| -> u64 { panic!("as planned") }).await;
                assert!(matches!(panics, Err(Error::DelegatedPanicked(_))), "{panics:?}");
            } else {
                value.post(ct, 1, |sum, by: u64| *sum += by).await?;
            }
        }
        assert_eq!(value.apply(ct, (), |sum, ()| *sum).await?, 400);
        ct.barrier("asked").await?;
        drop((mine, value, Trust::<u64>::take(ct.unpublish(&other).await?, ct).await?));
        ct.barrier("dropped").await
    });
}

#[test]
fn a_panic_is_the_callers_error_and_the_trustee_lives_on() {
    on_all(2, async |ct| {
        let counter = shared(ct, || 0_u64).await?;
        let panicked = counter.apply(ct, 7, |count, n: u64| -> u64 { panic!("no {n} for {count}") }).await;
        let error = panicked.unwrap_err();
        assert!(
            matches!(&error, Error::DelegatedPanicked(panic) if &*panic.message == "no 7 for 0"),
            "{error}"
        );
        ct.barrier("panicked").await?;
        assert_eq!(
            counter
                .apply(ct, 3, |count, n: u64| {
                    *count = n;
                    *count
                })
                .await?,
            3
        );
        ct.barrier("went on").await
    });
}

#[test]
fn a_trustee_that_has_ended_is_gone() {
    on_all(2, async |ct| {
        let counter = shared(ct, || 0_u64).await?;
        if ct.index() == 0 {
            return Ok(());
        }
        loop {
            match counter.apply(ct, 1, |count, n: u64| *count += n).await {
                Ok(()) => ct.yield_now().await,
                Err(Error::TrusteeGone(gone)) => {
                    assert!(!gone.may_have_run, "its end was orderly");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        // And so it stays.
        let again = counter.apply(ct, 1, |count, n: u64| *count += n).await;
        assert!(matches!(again, Err(Error::TrusteeGone(gone)) if !gone.may_have_run));
        Ok(())
    });
}

/// Desks are used again. A client that finds another owner than its trustee, or none, must not refuse the clients of the next one.
#[test]
fn clients_of_a_trustee_whose_desk_was_another_ones_are_served() {
    for seed in 0..400 {
        for delegation in ["hosted", "mailboxes"] {
            let url = format!(
                "sim:seed={seed},jitter=90%,stall=1%,size=4MiB,limit=10s,leaks=ignore,delegation={delegation}"
            );
            let served = Cluster::connect(&url).unwrap().run(5, async |ct| {
                if ct.index() == 0 {
                    let stored = ct.entrust(0_u64).await?.store(ct).await?;
                    ct.publish("old", stored).await?;
                    // Its desk is free at some time from now on.
                    ct.barrier("published").await?;
                    return Ok(());
                }
                ct.barrier("published").await?;
                let mut new = None;
                if ct.index() == 1 {
                    ct.sleep(Duration::from_nanos(ct.random_range(0..30_000))).await;
                    let value = ct.entrust(0_u64).await?;
                    ct.publish("new", value.clone().store(ct).await?).await?;
                    new = Some(value);
                }
                let finds = async |name: &str| loop {
                    match ct.lookup::<StoredTrust<u64>>(name).await {
                        Err(Error::RootNotFound(_)) => ct.yield_now().await,
                        found => return found,
                    }
                };
                if ct.index() >= 3 {
                    // Clients that come too late.
                    ct.sleep(Duration::from_nanos(ct.random_range(0..60_000))).await;
                    match Trust::open(finds("old").await?, ct).await {
                        Ok(_) | Err(Error::TrusteeGone(_)) => {}
                        Err(error) => return Err(error),
                    }
                } else if ct.index() == 2 {
                    let counter = Trust::open(finds("new").await?, ct).await?;
                    counter.apply(ct, 1, |count, n: u64| *count += n).await?;
                }
                if let Some(new) = new {
                    while new.apply(ct, (), |count, ()| *count).await? == 0 {
                        ct.yield_now().await;
                    }
                }
                Ok(())
            });
            served.unwrap_or_else(|error| panic!("seed {seed}, {delegation}: {error}"));
        }
    }
}

/// A value that reports its drop.
struct Noisy(u64);

static DROPPED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Drop for Noisy {
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_value_is_dropped_when_its_last_handle_is() {
    on_all(3, async |ct| {
        let before = DROPPED.load(std::sync::atomic::Ordering::SeqCst);
        ct.barrier("begun").await?;
        let noisy = shared(ct, || Noisy(1)).await?;
        let clone = noisy.clone();
        drop(noisy);
        assert_eq!(clone.apply(ct, (), |noisy, ()| noisy.0).await?, 1);
        ct.barrier("used").await?;
        assert_eq!(DROPPED.load(std::sync::atomic::Ordering::SeqCst), before);
        ct.barrier("looked").await?;
        drop(clone);
        while DROPPED.load(std::sync::atomic::Ordering::SeqCst) == before {
            ct.sleep(std::time::Duration::from_micros(10)).await;
        }
        ct.barrier("dropped").await
    });
}

#[test]
fn handles_travel_as_arguments_and_as_results() {
    on_all(3, async |ct| {
        // Thread 0 has a list of handles; each thread adds one of its own value, and uses those of all.
        let list = shared(ct, Vec::<Trust<u64>>::new).await?;
        let mine = ct.entrust(10 * ct.index() as u64).await?;
        list.apply(ct, mine, |list, handle: Trust<u64>| list.push(handle)).await?;
        ct.barrier("added").await?;
        let handles = list.apply(ct, (), |list, ()| list.clone()).await?;
        let mut sum = 0;
        for handle in &handles {
            sum += handle.apply(ct, (), |value, ()| *value).await?;
        }
        assert_eq!(sum, 30);
        // On to a third thread: from thread 1 through the list to thread 2.
        ct.barrier("used").await?;
        drop(handles);
        let again = list.apply(ct, 1_u8, |list, index| list[usize::from(index)].clone()).await?;
        again.apply(ct, (), |value, ()| *value).await?;
        ct.barrier("used again").await?;
        if ct.index() == 0 {
            list.apply(ct, (), |list, ()| list.clear()).await?;
        }
        ct.barrier("cleared").await?;
        again.apply(ct, (), |value, ()| *value).await?;
        ct.barrier("used last").await
    });
}

#[test]
fn delegated_code_makes_requests_of_its_own() {
    on_all(2, async |ct| {
        let ledger = shared(ct, Vec::<u64>::new).await?;
        let results = Rc::new(RefCell::new(Vec::new()));
        if ct.index() == 1 {
            let counter = ct.entrust(5_u64).await?;
            let forward = |_: &mut Vec<u64>, context: &Context<'_>, counter: Trust<u64>| {
                let doubled = context.apply_then(
                    &counter,
                    2,
                    |count, by: u64| {
                        *count *= by;
                        *count
                    },
                    |_, _| (),
                );
                doubled.unwrap();
            };
            ledger.apply_with(ct, counter.clone(), forward).await?;
            while counter.apply(ct, (), |count, ()| *count).await? == 5 {
                ct.sleep(std::time::Duration::from_micros(10)).await;
            }
            let kept = Rc::clone(&results);
            let then = move |result: Result<u64>| kept.borrow_mut().push(result.unwrap());
            counter.apply_then(ct, (), |count, ()| *count, then).await?;
            assert_eq!(*results.borrow(), [10]);
        }
        ct.barrier("doubled").await
    });
}

#[test]
fn a_dropped_future_loses_nothing() {
    on_all(2, async |ct| {
        let log = shared(ct, Vec::<Trust<u64>>::new).await?;
        let mine = ct.entrust(1_u64).await?;
        for _ in 0..20 {
            let sent = log.apply(ct, mine.clone(), |log, handle| {
                log.push(handle.clone());
                handle
            });
            let _ = ct.within(std::time::Duration::from_nanos(100), sent).await;
        }
        ct.barrier("sent").await?;
        let count = log.apply(ct, (), |log, ()| log.len() as u64).await?;
        assert!(count <= 40);
        ct.barrier("counted").await?;
        if ct.index() == 0 {
            log.apply(ct, (), |log, ()| log.clear()).await?;
        }
        ct.barrier("cleared").await
    });
}

#[test]
fn an_idle_pair_gives_its_slots_back() {
    let cluster = Cluster::connect("sim:").unwrap();
    let done = cluster.run(2, async |ct| {
        let counter = shared(ct, || 0_u64).await?;
        let used = || ct.metrics().allocated - ct.metrics().freed;
        counter.apply(ct, 1, |count, by: u64| *count += by).await?;
        let before = used();
        ct.sleep(std::time::Duration::from_millis(40)).await;
        if ct.index() == 1 {
            assert!(used() < before, "the pair's words are free");
        }
        // Another request opens another pair.
        counter.apply(ct, 1, |count, by: u64| *count += by).await?;
        ct.barrier("counted").await?;
        assert_eq!(counter.apply(ct, 0, |count, _: u64| *count).await?, 4);
        ct.barrier("read").await
    });
    done.unwrap();
}

/// What a trustee counts: requests, and the values that live.
struct Sums {
    requests: u64,
    words: u64,
}

/// 10 million without debug assertions.
#[test]
fn requests_of_all_sizes_with_deadlines_and_drops_lose_and_leak_nothing() {
    let count: u64 = if cfg!(debug_assertions) { 20_000 } else { 5_000_000 };
    let cluster = Cluster::connect("local:size=64MiB").unwrap();
    let done = cluster.run(3, async |ct| {
        let sums = shared(ct, || Sums { requests: 0, words: 0 }).await?;
        let live = ct.metrics().allocated - ct.metrics().freed;
        let acknowledged = std::cell::Cell::new(0);
        if ct.index() > 0 {
            ct.tasks(8, async |_| {
                for _ in 0..count / 8 {
                    let length = match ct.random_range(0..1000_u32) {
                        0 => 5_000,
                        1..10 => ct.random_range(40..400),
                        _ => ct.random_range(0..5_usize),
                    };
                    let request = sums.apply(ct, vec![1_u64; length], |sums, words: Vec<u64>| {
                        sums.requests += 1;
                        sums.words += words.iter().sum::<u64>();
                        words
                    });
                    if ct.random_chance(0.01) {
                        let deadline = std::time::Duration::from_nanos(ct.random_range(0..3_000));
                        if ct.within(deadline, request).await.is_ok() {
                            acknowledged.set(acknowledged.get() + 1);
                        }
                    } else {
                        assert_eq!(request.await?.len(), length);
                        acknowledged.set(acknowledged.get() + 1);
                    }
                }
                Ok(())
            })
            .await?;
        }
        ct.barrier("requested").await?;
        let (requests, words) = sums.apply(ct, (), |sums, ()| (sums.requests, sums.words)).await?;
        assert!(requests >= acknowledged.get() && requests <= 2 * count && words > 0);
        ct.barrier("counted").await?;
        // Results that nobody awaited are released by the pair's next rounds.
        for _ in 0..100 {
            ct.sleep(std::time::Duration::from_micros(10)).await;
        }
        ct.barrier("released").await?;
        Ok((acknowledged.get(), requests, ct.metrics().allocated - ct.metrics().freed - live))
    });
    let done = done.unwrap();
    let acknowledged: u64 = done.iter().map(|(acknowledged, ..)| acknowledged).sum();
    assert!(done[0].1 >= acknowledged, "{done:?}");
    // Blocks that one thread allocates and another frees add up to none.
    let kept: u64 = done.iter().fold(0, |sum, (.., kept)| sum.wrapping_add(*kept));
    assert_eq!(kept, 0, "{done:?}");
}
