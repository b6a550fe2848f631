//! Values of several words: readers see no partial write, even if writers die or fail.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farfield::prelude::*;
use farfield::sim::Fault;
use farfield::{Address, Error};

#[remote]
struct Record {
    state: Versioned<[u64; 5]>,
    lock: Lock,
}

async fn record(ct: &ComputeThread) -> Result<RemotePtr<Record>> {
    ct.root_or_init("record", async || Record::new_in(ct, Record::init([0; 5])).await?.write(ct).await).await
}

/// Reads the value, or the thread that left it half-written.
async fn seen(at: RemotePtr<Record>, ct: &ComputeThread) -> Result<Result<u64, farfield::ThreadId>> {
    match at.state().read(ct).await {
        Ok(value) if value == [value[0]; 5] => Ok(Ok(value[0])),
        Ok(torn) => Err(Error::other(format!("torn: {torn:?}"))),
        Err(Error::HalfWritten(half)) => Ok(Err(half.writer)),
        Err(other) => Err(other),
    }
}

#[test]
fn a_write_takes_two_round_trips_and_a_read_one() {
    let run = Cluster::connect("sim:").unwrap().run(1, async |ct| {
        let at = record(ct).await?;
        let before = ct.metrics();
        at.state().write(ct, [1; 5]).await?;
        let wrote = ct.metrics();
        assert_eq!(at.state().read(ct).await?, [1; 5]);
        Ok(((wrote - before).chains, (ct.metrics() - wrote).chains))
    });
    assert_eq!(run.unwrap(), [(2, 1)]);
}

/// The number of seeds, of times of the fault for each seed, and of reads: 20 by threads 0 and 3 each, and 15 by thread 2.
const SEEDS: usize = 40;
const TIMES: usize = 30;
const READS: usize = SEEDS * TIMES * (2 * 20 + 15);

/// Threads 1 and 2 write, the others read, and a fault hits thread 1 at any time, also within its chains. Returns how
/// often a value was found whole, how often half-written, and how many writes failed.
fn with_faults(url: &str, fault: impl Fn(Duration) -> Fault) -> Result<[usize; 3]> {
    let mut counts = [0; 3];
    for time in 0..TIMES as u64 {
        let cluster = Cluster::connect(url)?;
        let time = Duration::from_nanos(60_000 + 371 * time);
        cluster.simulation().expect("it is simulated").inject(fault(time));
        let ended = cluster.run_surviving(4, async |ct| {
            let at = record(ct).await?;
            ct.sleep(Duration::from_micros(50).saturating_sub(ct.now())).await;
            let me = ct.index() as u64;
            let (mut whole, mut half, mut vain) = (0, 0, 0);
            for round in 0..20 {
                if me == 1 || (me == 2 && round % 4 == 3) {
                    match at.state().write(ct, [round * 4 + me; 5]).await {
                        Err(Error::NodeUnreachable(_)) => vain += 1,
                        other => other?,
                    }
                    continue;
                }
                match seen(at, ct).await? {
                    Ok(_) => whole += 1,
                    Err(_) => half += 1,
                }
            }
            Ok([whole, half, vain])
        });
        for ended in ended?.into_iter().flatten() {
            counts = std::array::from_fn(|index| counts[index] + ended[index]);
        }
    }
    Ok(counts)
}

#[test]
fn a_value_is_whole_or_marked_half_written_when_its_writer_dies() {
    let mut sums = [0; 3];
    for seed in 0..SEEDS {
        let url = format!("sim:seed={seed},jitter=90%,stall=2%,leaks=ignore,limit=1s");
        let counts = with_faults(&url, |time| Fault::crash(1).at(time));
        let counts = counts.unwrap_or_else(|error| panic!("{url}: {error}"));
        sums = std::array::from_fn(|index| sums[index] + counts[index]);
    }
    assert_eq!((sums[0] + sums[1], sums[2]), (READS, 0), "readers do not die");
    assert!(sums[1] > 500, "{sums:?}");
}

#[test]
fn a_value_is_whole_or_marked_half_written_when_a_write_fails() {
    let mut sums = [0; 3];
    for seed in 0..SEEDS {
        let url = format!("sim:seed={seed},jitter=90%,leaks=ignore,limit=1s,timeout=50us");
        let cut = |time| Fault::cut(1, 0, Duration::from_micros(80)).at(time);
        let counts = with_faults(&url, cut).unwrap_or_else(|error| panic!("{url}: {error}"));
        sums = std::array::from_fn(|index| sums[index] + counts[index]);
    }
    assert_eq!((sums[0] + sums[1], sums[2]), (READS, SEEDS * TIMES), "one write of each run fails");
}

/// Many threads write and read at the same time.
fn contend(url: &str) -> Result<()> {
    let run = Cluster::connect(url)?.run(6, async |ct| {
        let at = record(ct).await?;
        for round in 0..10 {
            at.state().write(ct, [round * 6 + ct.index() as u64; 5]).await?;
            assert!(seen(at, ct).await?.is_ok(), "its writer lives");
        }
        Ok(())
    });
    run.map(drop)
}

#[test]
fn writers_exclude_each_other() {
    for seed in 0..100 {
        let url = format!("sim:seed={seed},jitter=90%,stall=5%,leaks=ignore,limit=1s");
        contend(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

/// The tests find planted mistakes of the protocol.
#[test]
fn planted_bugs_of_the_protocol_are_found() {
    for plant in ["same-version", "hasty-takeover"] {
        let found = (0..100).find(|seed| {
            let url = format!("sim:seed={seed},jitter=90%,stall=5%,leaks=ignore,limit=1s,plant={plant}");
            matches!(contend(&url), Err(Error::Other(torn)) if torn.to_string().starts_with("torn"))
        });
        assert!(found.is_some(), "{plant}");
    }
}

/// Leaves the value as a writer that stops in the middle: it holds the write lock, the version is odd, and one word is written.
async fn stop_in_the_middle(at: RemotePtr<Record>, ct: &ComputeThread) -> Result<()> {
    let word = |address: Address, index: u64| {
        Place::<Atomic<u64>>::from_address(Address::new(address.segment(), address.offset() + 8 * index))
    };
    let lock = at.lock().acquire(ct).await?;
    let token = word(at.lock().address(), 0).load(ct).await?;
    for (index, value) in [token, 7, 99].into_iter().enumerate() {
        word(at.state().address(), index as u64).store(ct, value).await?;
    }
    Ok(lock.release().await?)
}

#[test]
fn a_value_of_an_ended_writer_is_half_written_until_it_is_written_again() {
    for url in ["local:", "local:delay=4", "sim:leaks=ignore"] {
        let cluster = Cluster::connect(url).unwrap();
        let writer = cluster.run(1, async |ct| {
            let at = record(ct).await?;
            at.state().write(ct, [5; 5]).await?;
            stop_in_the_middle(at, ct).await?;
            // The writer is alive, so readers wait.
            let mut read = pin!(at.state().read(ct));
            let mut context = Context::from_waker(Waker::noop());
            assert!((0..100).all(|_| read.as_mut().poll(&mut context).is_pending()));
            Ok(ct.id())
        });
        let writer = writer.unwrap()[0];
        let run = cluster.run(3, async |ct| {
            let at = record(ct).await?;
            for _ in 0..3 {
                assert_eq!(seen(at, ct).await?, Err(writer));
            }
            let error = at.state().read(ct).await.unwrap_err().to_string();
            assert!(error.contains("left half-written by thread") && !error.contains('\n'), "{error}");
            ct.barrier("looked").await?;
            if ct.index() == 0 {
                at.state().write(ct, [8; 5]).await?;
            }
            ct.barrier("written").await?;
            assert_eq!(seen(at, ct).await?, Ok(8));
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{url}: {error}"));
    }
}

/// A leaked future keeps the write lock until its thread ends. Readers do not wait for it, and later writers do not, either.
#[test]
fn a_write_that_is_leaked_ends_with_its_thread() {
    for polls in 0..40 {
        let cluster = Cluster::connect("local:delay=8").unwrap();
        let leaked = cluster.run(1, async |ct| {
            let at = record(ct).await?;
            let mut write = Box::pin(at.state().write(ct, [7; 5]));
            let mut context = Context::from_waker(Waker::noop());
            let done = (0..polls).any(|_| matches!(write.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
            std::mem::forget(write);
            let now = seen(at, ct).await?;
            assert!(now == Ok(7) || (now == Ok(0) && !done), "{now:?}");
            Ok(())
        });
        leaked.unwrap();
        let run = cluster.run(2, async |ct| {
            let at = record(ct).await?;
            at.state().write(ct, [8 + ct.index() as u64; 5]).await?;
            assert!(seen(at, ct).await?.is_ok_and(|value| value >= 8));
            Ok(())
        });
        run.unwrap();
    }
}
