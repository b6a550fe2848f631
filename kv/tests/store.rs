//! The store: its answers, its costs, its budget, and what it refuses.

#![allow(clippy::cast_precision_loss)] // of some millions

mod keys;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use farfield::prelude::*;
use farfield::sim::Fault;
use farfield::{Error, Result};
use farfield_kv::{FarStore, MOST_VALUE_BYTES, Options, Store};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use keys::key;

/// Runs one thread with a store.
fn with_store(url: &str, options: &Options, body: impl AsyncFn(&Store, &ComputeThread) -> Result<()> + Sync) {
    let run = Cluster::connect(url).unwrap().run(1, async |ct| {
        let store = Store::open("store", options, ct).await?;
        body(&store, ct).await
    });
    run.unwrap();
}

fn value(rng: &mut SmallRng, number: u64) -> Vec<u8> {
    let length = match rng.random_range(0..10) {
        0..7 => rng.random_range(80..=128),
        7..9 => rng.random_range(129..=256),
        _ => rng.random_range(257..=1024),
    };
    let mut value = vec![number as u8; length];
    rng.fill_bytes(&mut value[..16]);
    value
}

/// Writes, changes and deletes keys, and compares all answers with those of a map.
async fn compare(
    store: &Store,
    operations: u64,
    keys: u64,
    encrypts: bool,
    ct: &ComputeThread,
) -> Result<u64> {
    let (mut model, mut rng) = (HashMap::new(), SmallRng::seed_from_u64(operations));
    for number in 0..operations {
        let name = rng.random_range(0..keys);
        match rng.random_range(0..10) {
            0..5 => {
                let value = value(&mut rng, number);
                store.write(&key(name), &value, encrypts && number % 2 == 0, ct).await?;
                model.insert(name, value);
            }
            5 => {
                let value = value(&mut rng, number);
                let is_there = store.update(&key(name), &value, encrypts, ct).await?;
                assert_eq!(is_there, model.contains_key(&name));
                model.entry(name).and_modify(|old| *old = value);
            }
            6 => assert_eq!(store.delete(&key(name), ct).await?, model.remove(&name).is_some()),
            _ => assert_eq!(store.read(&key(name), ct).await?.as_ref(), model.get(&name)),
        }
    }
    let bytes = model.values().map(|value| value.len() as u64 + 16).sum();
    let words = |value: &Vec<u8>| 1 + (value.len() as u64 + 16).div_ceil(8);
    let live_bytes = 8 * model.values().map(words).sum::<u64>();
    for name in 0..keys {
        assert_eq!(store.read(&key(name), ct).await?.as_ref(), model.get(&name), "key {name}");
    }
    let stats = store.stats();
    assert_eq!((stats.records, stats.user_bytes), (model.len() as u64, bytes));
    assert!(stats.live_bytes == live_bytes || encrypts && stats.live_bytes > live_bytes, "{stats:?}");
    assert_eq!(stats.live_bytes + stats.dead_bytes, stats.far_bytes);
    Ok(bytes)
}

#[test]
fn hints_change_nothing() {
    let options = Options::new(256 << 10, 4 << 20);
    for url in ["local:", "local:delay=1"] {
        with_store(url, &options, async |store, ct| {
            // Some of them are in local memory.
            for number in 0..3000 {
                store.write(&key(number), &[number as u8; 200], false, ct).await?;
            }
            let (before, made) = (store.stats(), ct.metrics());
            for number in 0..4000 {
                let mut hint = store.hint(&key(number));
                hint.fetch(true, ct);
                hint.look_up();
                hint.fetch(number % 2 == 0, ct);
            }
            let mut hint = store.hint(b"short");
            hint.look_up();
            hint.fetch(true, ct);
            assert_eq!((store.stats(), (ct.metrics() - made).reads), (before, 0));
            for number in 0..4000 {
                let mut hint = store.hint(&key(number));
                hint.look_up();
                hint.fetch(number % 2 == 0, ct);
                let expected = (number < 3000).then(|| vec![number as u8; 200]);
                assert_eq!(store.read(&key(number), ct).await?, expected);
            }
            Ok(())
        });
    }
}

#[test]
fn answers_are_those_of_a_map_in_a_quarter_of_the_memory() {
    for (url, encrypts) in
        [("local:size=64MiB", false), ("local:size=64MiB", true), ("sim:seed=1,size=64MiB", false)]
    {
        let operations = if url.starts_with("sim") { 4000 } else { 30_000 };
        let options = Options::new(1 << 20, 48 << 20).with_key([5; 32]);
        with_store(url, &options, async |store, ct| {
            let bytes = compare(store, operations, operations / 4, encrypts, ct).await?;
            let stats = store.stats();
            assert!(stats.local_bytes <= 1 << 20, "{stats:?}");
            assert!(stats.live_bytes as f64 <= bytes as f64 * 1.35, "{stats:?}, {bytes} bytes");
            if operations > 10_000 {
                assert!(
                    stats.evicted_pages > 0 && stats.rebuilt_pages > 0 && stats.evicted_records > 0,
                    "{stats:?}"
                );
                let amplification = stats.far_bytes as f64 / bytes as f64;
                assert!(encrypts || amplification <= 1.3, "{amplification}: {stats:?}, {bytes} bytes");
                assert!((stats.amplification() - amplification).abs() < 1e-9);
                let reads = stats.hits + stats.record_reads;
                assert!((stats.hit_rate() * reads as f64 - stats.hits as f64).abs() < 1e-3);
            }
            Ok(())
        });
    }
}

#[test]
fn a_store_that_is_opened_again_has_what_was_written() {
    let cluster = Cluster::connect("local:size=64MiB").unwrap();
    let options = Options::new(1 << 20, 32 << 20).with_key([7; 32]);
    let mut expected = HashMap::new();
    let mut counted = (0, 0, 0);
    for opening in 0..3_u64 {
        let before = expected.clone();
        let run = cluster.run(1, async |ct| {
            let store = Store::open("store", &options, ct).await?;
            let mut now = before.clone();
            let count = || {
                let stats = store.stats();
                (stats.records, stats.user_bytes, stats.live_bytes)
            };
            assert_eq!(count(), counted);
            for (name, value) in &now {
                assert_eq!(store.read(&key(*name), ct).await?.as_ref(), Some(value), "opening {opening}");
            }
            assert_eq!((store.stats().records, store.stats().torn_records), (now.len() as u64, 0));
            let mut rng = SmallRng::seed_from_u64(opening);
            for number in 0..8000 {
                let name = rng.random_range(0..4000);
                if rng.random_range(0..4) == 0 {
                    store.delete(&key(name), ct).await?;
                    now.remove(&name);
                } else {
                    let value = value(&mut rng, number);
                    store.write(&key(name), &value, number % 3 == 0, ct).await?;
                    now.insert(name, value);
                }
            }
            Ok((now, count()))
        });
        (expected, counted) = run.unwrap().remove(0);
        let bytes: u64 = expected.values().map(|value| value.len() as u64 + 16).sum();
        assert_eq!(counted.1, bytes);
    }
}

#[test]
fn threads_share_a_store() {
    const THREADS: usize = 4;
    const KEYS: u64 = 200;
    let store = OnceLock::<Arc<Store>>::new();
    let cluster = Cluster::connect("local:size=64MiB").unwrap();
    let run = cluster.run(THREADS, async |ct| {
        let mut owner = None;
        if ct.index() == 0 {
            let opened = Store::open("store", &Options::new(1 << 20, 32 << 20), ct).await?;
            assert!(store.set(opened.share()).is_ok());
            owner = Some(opened);
        }
        ct.barrier("opened").await?;
        let store: &Store = store.get().unwrap();
        // Each key has a version, and a value that follows from it.
        ct.tasks(4, async |task| {
            let mut rng = SmallRng::seed_from_u64((ct.index() * 4 + task) as u64);
            for number in 1..3000_u64 {
                let name = rng.random_range(0..KEYS);
                match rng.random_range(0..4) {
                    0 => drop(store.delete(&key(name), ct).await?),
                    1 | 2 => {
                        let mut value = vec![name as u8; rng.random_range(16..400)];
                        value[..8].copy_from_slice(&number.to_le_bytes());
                        let sum = value.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                        value.extend(sum.to_le_bytes());
                        store.write(&key(name), &value, false, ct).await?;
                    }
                    _ => {
                        if rng.random_range(0..50) == 0 {
                            store.rebuild(95, ct).await?;
                        }
                        let Some(value) = store.read(&key(name), ct).await? else { continue };
                        let (value, sum) = value.split_at(value.len() - 8);
                        let found = value.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                        assert_eq!(sum, found.to_le_bytes());
                        assert!(value[8..].iter().all(|byte| *byte == name as u8), "of another key");
                    }
                }
            }
            Ok(())
        })
        .await?;
        ct.barrier("worked").await?;
        let (mut records, mut bytes, mut live_bytes) = (0, 0, 0);
        for name in 0..KEYS {
            let Some(value) = store.read(&key(name), ct).await? else { continue };
            records += 1;
            bytes += 16 + value.len() as u64;
            live_bytes += 8 * (1 + (16 + value.len() as u64).div_ceil(8));
        }
        let stats = store.stats();
        assert_eq!((stats.records, stats.user_bytes, stats.live_bytes), (records, bytes, live_bytes));
        ct.barrier("compared").await?;
        drop(owner);
        ct.barrier("closed").await?;
        assert!(store.read(&key(1), ct).await.unwrap_err().to_string().contains("closed"));
        Ok((stats.records, stats.user_bytes, stats.live_bytes))
    });
    let counted = run.unwrap()[0];
    let again = cluster.run(1, async |ct| {
        let store = Store::open("store", &Options::new(1 << 20, 32 << 20), ct).await?;
        Ok(store.stats())
    });
    let again = again.unwrap()[0];
    assert_eq!((again.records, again.user_bytes, again.live_bytes), counted);
}

#[test]
fn a_miss_is_one_round_trip_and_a_write_is_none() {
    with_store("sim:size=64MiB,seed=3", &Options::new(1 << 20, 48 << 20), async |store, ct| {
        let trips = |ct: &ComputeThread| ct.metrics().chains;
        let rtt = ct.cluster().simulation().unwrap().rtt();
        let (mut slow, before) = (0, trips(ct));
        for number in 0..20_000 {
            let began = ct.now();
            store.write(&key(number), &[1; 100], false, ct).await?;
            slow += u64::from(ct.now() >= began + rtt);
        }
        let stats = store.stats();
        println!("rtts.kv.write.slow {}", slow as f64 / 20_000.0);
        assert!(slow < 20_000 / 80, "{slow} writes have waited");
        assert!(trips(ct) - before < 21_000, "one WRITE each");
        // In a page that is not in local memory.
        ct.flush().await?;
        let began = ct.now();
        assert!(store.read(&key(3), ct).await?.is_some());
        let took = ct.now().abs_diff(began).as_secs_f64() / rtt.as_secs_f64();
        println!("rtts.kv.read.miss {took:.3}");
        assert!((0.9..1.2).contains(&took), "{took} round trips");
        assert_eq!(store.stats().record_reads, stats.record_reads + 1);
        // It is in local memory now, and its neighbour is not. Of several that ask for that, one reads it.
        for (number, more) in [(3, 0), (4, 1), (4, 0)] {
            let (began, before) = (ct.now(), trips(ct));
            ct.tasks(5, async |_| store.read(&key(number), ct).await).await?;
            assert_eq!(u64::from(ct.now() > began + rtt / 2), more);
            assert_eq!(trips(ct) - before, more);
        }
        Ok(())
    });
}

#[test]
fn bad_input_is_refused_and_nothing_is_lost() {
    let small = Options::new(100_000, 8 << 20);
    let run = Cluster::connect("local:")
        .unwrap()
        .run(1, async |ct| Store::open("store", &small, ct).await.map(drop));
    let refused = run.unwrap_err().to_string();
    let least =
        refused.split("too little: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    let least = least.unwrap_or_else(|| panic!("it names the least: {refused}"));
    with_store("local:", &Options::new(least, 8 << 20), async |store, ct| {
        store.write(&key(1), b"value", false, ct).await?;
        for (key, value, named) in
            [(&key(1)[..15], &b"value"[..], "key"), (&key(1)[..], &[0; MOST_VALUE_BYTES + 1][..], "value")]
        {
            let error = store.write(key, value, false, ct).await.unwrap_err();
            assert!(
                matches!(&error, Error::InvalidArgument(argument) if argument.argument == named),
                "{error}"
            );
        }
        let error = store.write(&key(1), b"secret", true, ct).await.unwrap_err();
        assert!(error.to_string().contains("without a key"), "{error}");
        assert_eq!(store.read(&key(1), ct).await?.as_deref(), Some(&b"value"[..]));
        Ok(())
    });
}

#[test]
fn a_full_far_memory_is_an_error_and_space_comes_back() {
    with_store("local:size=8MiB", &Options::new(1 << 20, 1 << 20), async |store, ct| {
        let mut written = 0;
        let error = loop {
            match store.write(&key(written), &[3; 1000], false, ct).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("full"), "{error}");
        for number in 0..written {
            assert!(store.read(&key(number), ct).await?.is_some(), "{number} of {written}");
        }
        for number in 0..written / 2 {
            assert!(store.delete(&key(number), ct).await?);
        }
        for number in 0..written / 4 {
            store.write(&key(number), &[4; 1000], false, ct).await?;
        }
        for number in 0..written {
            let expected = match number {
                _ if number < written / 4 => Some(vec![4; 1000]),
                _ if number < written / 2 => None,
                _ => Some(vec![3; 1000]),
            };
            assert_eq!(store.read(&key(number), ct).await?, expected);
        }
        Ok(())
    });
}

#[test]
fn space_comes_back_although_every_page_has_live_records() {
    with_store("local:size=8MiB", &Options::new(1 << 20, 1 << 20), async |store, ct| {
        let mut live = Vec::new();
        let mut next = 0;
        let mut rng = SmallRng::seed_from_u64(1);
        for round in 0..4 {
            let error = loop {
                match store.write(&key(next), &[round; 1000], false, ct).await {
                    Ok(()) => live.push((next, round)),
                    Err(error) => break error,
                }
                next += 1;
            };
            assert!(error.to_string().contains("full"), "{error}");
            assert_eq!(store.stats().records, live.len() as u64);
            assert!(live.len() > 600, "{} records of 1000 bytes in 1 MiB, round {round}", live.len());
            for _ in 0..live.len() / 2 {
                let (name, _) = live.swap_remove(rng.random_range(0..live.len()));
                assert!(store.delete(&key(name), ct).await?);
            }
            for (name, round) in &live {
                assert_eq!(store.read(&key(*name), ct).await?.as_deref(), Some(&[*round; 1000][..]));
            }
        }
        Ok(())
    });
}

#[test]
fn a_memory_node_without_memory_is_an_error_and_space_comes_back() {
    with_store("local:size=2MiB", &Options::new(1 << 20, 64 << 20), async |store, ct| {
        let mut written = 0;
        let error = loop {
            match store.write(&key(written), &[3; 1000], false, ct).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
        assert!(written > 1000, "{written} records of 1000 bytes in 2 MiB");
        for number in 0..written {
            assert_eq!(store.read(&key(number), ct).await?.as_deref(), Some(&[3; 1000][..]));
        }
        for number in 0..written / 2 {
            assert!(store.delete(&key(number), ct).await?);
        }
        for number in 0..written / 4 {
            store.write(&key(number), &[4; 1000], false, ct).await?;
        }
        assert_eq!(store.read(&key(1), ct).await?.as_deref(), Some(&[4; 1000][..]));
        assert_eq!(store.stats().records, written - written / 2 + written / 4);
        Ok(())
    });
}

#[test]
fn every_operation_refuses_a_key_that_has_not_16_bytes() {
    with_store("local:", &Options::new(1 << 20, 8 << 20), async |store, ct| {
        for length in [0, 1, 15, 17, 32] {
            let key = &[0; 32][..length];
            let errors = [
                store.read(key, ct).await.map(drop),
                store.write(key, b"value", false, ct).await,
                store.update(key, b"value", false, ct).await.map(drop),
                store.delete(key, ct).await.map(drop),
                store.get_many(&[&[0; 16], key], ct).await.map(drop),
            ];
            for refused in errors {
                let error = refused.unwrap_err();
                let is_named = matches!(&error, Error::InvalidArgument(wrong) if wrong.argument == "key");
                assert!(is_named && error.to_string().contains(&format!("{length} bytes")), "{error}");
            }
        }
        assert_eq!(store.stats().records, 0);
        Ok(())
    });
}

#[test]
fn values_of_any_length_up_to_the_limit_are_stored() {
    let options = Options::new(1 << 20, 32 << 20).with_key([1; 32]);
    with_store("local:", &options, async |store, ct| {
        let lengths = (0..64).chain(MOST_VALUE_BYTES - 64..=MOST_VALUE_BYTES);
        for (number, length) in (0..).zip(lengths) {
            let value = vec![length as u8; length];
            store.write(&key(number), &value, number % 2 == 0, ct).await?;
            assert_eq!(store.read(&key(number), ct).await?, Some(value));
        }
        Ok(())
    });
}

#[test]
fn a_key_file_must_have_32_bytes() {
    let path = std::env::temp_dir().join(format!("farfield-kv-key-{}", std::process::id()));
    let read = || Options::new(1 << 20, 8 << 20).with_key_file(&path);
    let missing = read().unwrap_err().to_string();
    assert!(missing.contains(path.to_str().unwrap()), "{missing}");
    for length in [0, 31, 33] {
        std::fs::write(&path, vec![1; length]).unwrap();
        let wrong = read().unwrap_err().to_string();
        assert!(wrong.contains(&format!("the file has {length}")), "{wrong}");
    }
    std::fs::write(&path, [6; 32]).unwrap();
    let of_file = read().unwrap();
    std::fs::remove_file(&path).unwrap();
    // It is the same key.
    let cluster = Cluster::connect("local:").unwrap();
    for options in [of_file, Options::new(1 << 20, 8 << 20).with_key([6; 32])] {
        let run = cluster.run(1, async |ct| {
            let store = Store::open("store", &options, ct).await?;
            if store.stats().records == 0 {
                store.write(&key(1), b"secret", true, ct).await?;
            }
            assert_eq!(store.read(&key(1), ct).await?.as_deref(), Some(&b"secret"[..]));
            Ok(())
        });
        run.unwrap();
    }
}

#[test]
fn too_little_far_memory_is_refused() {
    let least = "far_bytes: 10000 is too little: ";
    let refused = Cluster::connect("local:")
        .unwrap()
        .run(1, async |ct| Store::open("store", &Options::new(1 << 20, 10_000), ct).await.map(drop))
        .unwrap_err()
        .to_string();
    let least = refused.split(least).nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
    let least = least.unwrap_or_else(|| panic!("it names the least: {refused}"));
    with_store("local:", &Options::new(1 << 20, least), async |store, ct| {
        for round in 0..100 {
            for number in 0..10 {
                store.write(&key(number), &[round; 1000], false, ct).await?;
            }
        }
        assert_eq!(store.read(&key(3), ct).await?.as_deref(), Some(&[99; 1000][..]));
        Ok(())
    });
}

#[test]
fn another_key_version_or_process_is_refused() {
    let cluster = Cluster::connect("local:size=64MiB").unwrap();
    let plain = Options::new(1 << 20, 8 << 20);
    let keyed = plain.clone().with_key([1; 32]);
    let open = |options: &Options| {
        let opened = cluster.run(1, async |ct| {
            let store = Store::open("store", options, ct).await?;
            store.write(&key(1), b"secret", true, ct).await
        });
        opened.map(drop).map_err(|error| error.to_string())
    };
    open(&keyed).unwrap();
    assert!(open(&plain).unwrap_err().contains("it has a key, and none was given"));
    assert!(open(&plain.clone().with_key([2; 32])).unwrap_err().contains("it has another key"));
    assert!(
        open(&Options::new(1 << 20, 16 << 20).with_key([1; 32])).unwrap_err().contains("it was made for")
    );
    open(&keyed).unwrap();
    let both = cluster.run(1, async |ct| {
        let _store = Store::open("store", &keyed, ct).await?;
        let mut hasty = keyed.clone();
        hasty.patience = Duration::from_millis(100);
        let second = Store::open("store", &hasty, ct).await.map(drop).unwrap_err();
        assert!(second.to_string().contains("another process has opened it"), "{second}");
        Ok(())
    });
    both.unwrap();
}

#[test]
fn a_store_that_is_destroyed_leaves_nothing() {
    for url in ["local:size=64MiB", "local:nodes=2,size=32MiB", "sim:size=64MiB"] {
        let cluster = Cluster::connect(url).unwrap();
        for round in 0..2 {
            let run = cluster.run(2, async |ct| {
                if ct.index() == 0 {
                    let store = Store::open("store", &Options::new(1 << 20, 16 << 20), ct).await?;
                    assert_eq!(store.stats().records, 0, "{url}, round {round}");
                    for number in 0..5000 {
                        store.write(&key(number), &[1; 200], false, ct).await?;
                    }
                    assert!(store.stats().pages > 60);
                    let shared = store.share();
                    store.destroy(ct).await?;
                    assert!(shared.read(&key(1), ct).await.is_err());
                }
                Ok(())
            });
            run.unwrap();
            let metrics = cluster.metrics();
            assert_eq!(metrics.allocated, metrics.freed, "{url}, round {round}");
        }
    }
}

#[test]
fn a_handle_works_on_any_executor_and_closes_the_store() {
    let cluster = Cluster::connect("local:size=64MiB").unwrap();
    let options = Options::new(1 << 20, 8 << 20).with_key([3; 32]);
    futures_executor::block_on(async {
        for opening in 0..3 {
            let store = Arc::new(FarStore::start(&cluster, "store", &options, 2).await?);
            assert!(store.is_alive());
            assert_eq!(store.stats().records, 400 * opening);
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let store = Arc::clone(&store);
                    std::thread::spawn(move || {
                        futures_executor::block_on(async {
                            for number in 0..100 {
                                let name = key(1000 * opening + 100 * writer + number);
                                store.write(name, vec![7; 200], number % 2 == 0).await?;
                                assert!(store.update(name, vec![8; 100], false).await?);
                            }
                            Ok::<(), Error>(())
                        })
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap().unwrap();
            }
            let some = store.get_many((0..3).map(|number| key(1000 * opening + number)).collect()).await?;
            assert!(some.iter().all(|value| value.as_deref() == Some(&[8; 100][..])));
            assert!(!store.delete(key(999)).await?);
            let store = Arc::into_inner(store).unwrap();
            store.stop().await?;
        }
        Ok::<(), Error>(())
    })
    .unwrap();
}

/// WRITEs of one thread overtake those of another: a burial must not overtake its record, which would be found again.
#[test]
fn a_record_that_another_thread_has_just_deleted_is_not_found_again() {
    for seed in 0..100 {
        let cluster =
            Cluster::connect(&format!("sim:seed={seed},size=8MiB,jitter=90%,nodes=2,slow=40%")).unwrap();
        let options = Options::new(1 << 20, 2 << 20);
        let store = OnceLock::<Arc<Store>>::new();
        let run = cluster.run(2, async |ct| {
            let mut owner = None;
            if ct.index() == 0 {
                let opened = Store::open("store", &options, ct).await?;
                assert!(store.set(opened.share()).is_ok());
                owner = Some(opened);
            }
            ct.barrier("opened").await?;
            let store: &Store = store.get().unwrap();
            for number in 0..20 {
                if ct.index() == 0 {
                    store.write(&key(number), b"value", false, ct).await?;
                } else {
                    while !store.delete(&key(number), ct).await? {
                        ct.sleep(Duration::from_nanos(50)).await;
                    }
                }
            }
            store.flush(ct).await?;
            ct.barrier("flushed").await?;
            drop(owner);
            Ok(())
        });
        run.unwrap();
        let found = cluster.run(1, async |ct| {
            let store = Store::open("store", &options, ct).await?;
            Ok(store.stats().records)
        });
        assert_eq!(found.unwrap(), [0], "seed {seed}");
    }
}

/// A page is freed while another thread's WRITE is under way, of the record that has replaced the page's last one. If the process dies then, the key still has its old value, or the new one.
#[test]
fn a_page_is_freed_only_when_its_burials_have_arrived() {
    const WRITER: usize = 2;
    let (mut deaths, freed) = (0, AtomicU64::new(0));
    for died_ns in (90_000..190_000).step_by(200) {
        let cluster =
            Cluster::connect("sim:seed=1,size=8MiB,jitter=50%,threads-per-node=2,leaks=ignore").unwrap();
        cluster.simulation().unwrap().inject(Fault::crash(1).at(Duration::from_nanos(died_ns)));
        let (options, store) = (Options::new(1 << 20, 1 << 20), OnceLock::<Arc<Store>>::new());
        let (durable, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
        // Two of this length do not fit into one page.
        let value = |number: u64| number.to_le_bytes().repeat(MOST_VALUE_BYTES / 8);
        let run = cluster.run_surviving(4, async |ct| {
            if ct.index() < WRITER {
                return Ok(());
            }
            let mut owner = None;
            if ct.index() == WRITER {
                let opened = Store::open("store", &options, ct).await?;
                assert!(store.set(opened.share()).is_ok());
                owner = Some(opened);
                for number in 1..=12 {
                    store.get().unwrap().write(&key(0), &value(number), false, ct).await?;
                    store.get().unwrap().flush(ct).await?;
                    durable.store(number, Ordering::Relaxed);
                }
                has_ended.store(true, Ordering::Relaxed);
            } else {
                while !has_ended.load(Ordering::Relaxed) {
                    if let Some(store) = store.get() {
                        freed.fetch_add(store.rebuild(1, ct).await?, Ordering::Relaxed);
                    }
                    ct.sleep(Duration::from_nanos(100)).await;
                }
            }
            drop(owner);
            Ok(())
        });
        run.unwrap();
        deaths += u64::from(!has_ended.load(Ordering::Relaxed));
        let found = cluster.run(1, async |ct| {
            let store = Store::open("store", &options, ct).await?;
            store.read(&key(0), ct).await
        });
        let durable = durable.load(Ordering::Relaxed);
        let found = found.unwrap().pop().unwrap();
        let expected = [durable, durable + 1].map(|number| (number > 0).then(|| value(number)));
        let is_expected = expected.contains(&found);
        assert!(
            is_expected,
            "died at {died_ns} ns, after value {durable}: {:?}",
            found.map(|value| value[0])
        );
    }
    assert!(deaths > 400, "{deaths} processes died");
    let freed = freed.into_inner();
    assert!(freed > 1000, "{freed} pages were freed before");
}

/// One thread looks at the depths of the queues while the tasks of others fill them.
#[test]
fn the_depths_of_queues_are_counted() {
    const TASKS: u64 = 16;
    let cluster = Cluster::connect("sim:seed=1,size=64MiB").unwrap();
    let mut options = Options::new(0, 16 << 20);
    options.local_bytes = options.least_local_bytes("store", 2) + (200 << 10);
    let (store, has_ended) = (OnceLock::<Arc<Store>>::new(), AtomicBool::new(false));
    let deepest = std::sync::Mutex::new([0; 5]);
    let depths = |store: &Store| {
        let stats = store.stats();
        assert_eq!(stats.evictions, 0, "no thread of the simulator runs during another one's eviction");
        [
            stats.unwritten_pages,
            stats.pending_reads,
            stats.waiting_reads,
            stats.waiting_writes,
            stats.excess_pages,
        ]
    };
    let run = cluster.run(2, async |ct| {
        if ct.index() == 1 {
            let store = loop {
                if let Some(store) = store.get() {
                    break store;
                }
                ct.sleep(Duration::from_micros(1)).await;
            };
            while !has_ended.load(Ordering::Relaxed) {
                let now = depths(store);
                deepest.lock().unwrap().iter_mut().zip(now).for_each(|(most, now)| *most = now.max(*most));
                ct.sleep(Duration::from_nanos(300)).await;
            }
            return Ok(());
        }
        let opened = Store::open("store", &options, ct).await?;
        assert!(store.set(opened.share()).is_ok());
        let value = [7; 1000];
        let all = |task: usize, count: u64| (0..count).map(move |number| number * TASKS + task as u64);
        let write = async |task| {
            for number in all(task, 100) {
                opened.write(&key(number), &value, false, ct).await?;
            }
            Ok(())
        };
        ct.tasks(TASKS as usize, write).await?;
        // All tasks read the same records.
        let read = async |_| {
            for number in 0..100 {
                assert_eq!(opened.read(&key(number), ct).await?.map(|value| value.len()), Some(1000));
            }
            Ok(())
        };
        ct.tasks(TASKS as usize, read).await?;
        let delete = async |task| {
            for number in all(task, 90) {
                assert!(opened.delete(&key(number), ct).await?);
            }
            Ok(())
        };
        ct.tasks(TASKS as usize, delete).await?;
        while opened.rebuild(80, ct).await? > 0 {}
        opened.flush(ct).await?;
        has_ended.store(true, Ordering::Relaxed);
        assert_eq!(depths(&opened)[..4], [0; 4]);
        Ok(())
    });
    run.unwrap();
    let [unwritten, pending, waiting_reads, waiting_writes, excess] = *deepest.lock().unwrap();
    assert_eq!(unwritten, 1, "the other lane is that of rebuilds");
    assert!((2..=TASKS).contains(&pending), "{pending}");
    assert!((2..TASKS).contains(&waiting_reads), "{waiting_reads}");
    assert!((2..TASKS).contains(&waiting_writes), "{waiting_writes}");
    assert!(excess > 0);
}
