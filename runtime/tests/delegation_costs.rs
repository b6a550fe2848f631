//! What requests to a trustee cost, in round trips of the simulator.
//!
//! With `--nocapture` each test prints its measurements as `rtts.trust.…`.

#![allow(clippy::cast_precision_loss)] // far below 2^52

use std::time::Duration;

use farfield::prelude::*;

/// The defaults of the simulator, and the same without the costs of bytes, NICs and processors.
const DEFAULTS: &str = "sim:";
const LATENCY_ONLY: &str = "sim:jitter=0%,bandwidth=inf,rate=inf,doorbell=0ns,compute=0";

/// The requests over which a time is averaged.
const REQUESTS: u32 = 1000;

#[remote]
struct Word {
    value: Atomic<u64>,
}

/// Makes a value of thread 0, and a handle of it for each thread.
async fn shared<T: 'static>(ct: &ComputeThread, value: T) -> Result<Trust<T>> {
    let mine = if ct.index() == 0 { Some(ct.entrust(value).await?) } else { None };
    if let Some(mine) = mine {
        ct.publish("value", mine.store(ct).await?).await?;
    }
    ct.barrier("published").await?;
    let trust = Trust::open(ct.lookup("value").await?, ct).await?;
    ct.barrier("opened").await?;
    if ct.index() == 0 {
        drop(Trust::<T>::take(ct.unpublish("value").await?, ct).await?);
    }
    Ok(trust)
}

/// Returns the time of `work`, in round trips.
async fn round_trips(ct: &ComputeThread, work: impl AsyncFnOnce() -> Result<()>) -> Result<f64> {
    ct.flush().await?;
    let began = ct.now();
    work().await?;
    let took = ct.now().saturating_sub(began);
    Ok(took.as_secs_f64() / ct.cluster().simulation().expect("it is simulated").rtt().as_secs_f64())
}

async fn add_one(counter: &Trust<u64>, ct: &ComputeThread) -> Result<()> {
    counter.apply(ct, 1, |count, by: u64| *count += by).await
}

/// Returns the results of thread 1, the client of thread 0.
fn of_a_client<R: Send + Default>(
    url: &str,
    measure: impl AsyncFn(&ComputeThread, &Trust<u64>) -> Result<R> + Sync,
) -> R {
    let results = Cluster::connect(url).unwrap().run(2, async |ct| {
        let counter = shared(ct, 0_u64).await?;
        let mut result = R::default();
        if ct.index() == 1 {
            // The first request makes the pair, and names the function.
            add_one(&counter, ct).await?;
            // Long enough that the trustee waits at the barrier only.
            ct.sleep(Duration::from_micros(100)).await;
            result = measure(ct, &counter).await?;
        }
        ct.barrier("measured").await?;
        Ok(result)
    });
    results.unwrap().pop().unwrap()
}

/// Returns the time of an awaited request over that of an awaited READ of one word.
async fn ratio(ct: &ComputeThread, counter: &Trust<u64>) -> Result<f64> {
    let word = Word::new_in(ct, Word::init()).await?.write(ct).await?;
    let load = round_trips(ct, async || {
        for _ in 0..REQUESTS {
            word.value().load(ct).await?;
        }
        Ok(())
    });
    let load = load.await?;
    let apply = round_trips(ct, async || {
        for _ in 0..REQUESTS {
            add_one(counter, ct).await?;
        }
        Ok(())
    });
    let ratio = apply.await? / load;
    let g = ct.pin();
    g.sched_reclaim(word.shared(&g)).await?;
    Ok(ratio)
}

/// Two one-way WRITEs, and two READs that find what they have written: each takes a half of a round trip to return, and begins half of one too early on average.
#[test]
fn a_request_through_mailboxes_takes_three_round_trips() {
    let by_default = of_a_client("sim:delegation=mailboxes", ratio);
    println!("rtts.trust.apply_by_mailbox {by_default:.3}");
    let by_latency = of_a_client(&format!("{LATENCY_ONLY},delegation=mailboxes"), ratio);
    println!("without the costs of bytes, NICs and processors: {by_latency:.3}");
    assert!(by_default <= 4.25 && by_latency <= 3.25);
}

#[test]
fn an_awaited_request_takes_about_a_round_trip() {
    let by_default = of_a_client(DEFAULTS, ratio);
    println!("rtts.trust.apply {by_default:.3}");
    let by_latency = of_a_client(LATENCY_ONLY, ratio);
    println!("without the costs of bytes, NICs and processors: {by_latency:.3}");
    assert!(by_default <= 1.25 && by_latency <= 1.25);
}

#[test]
fn a_request_to_this_thread_takes_no_time() {
    for url in [DEFAULTS, LATENCY_ONLY] {
        let run = Cluster::connect(url).unwrap().run(1, async |ct| {
            let counter = ct.entrust(0_u64).await?;
            let trips = round_trips(ct, async || {
                add_one(&counter, ct).await?;
                counter.post(ct, 1, |count, by: u64| *count += by).await
            });
            let trips = trips.await?;
            assert_eq!(counter.apply(ct, (), |count, ()| *count).await?, 2);
            Ok(trips)
        });
        assert_eq!(run.unwrap(), [0.0]);
    }
    println!("rtts.trust.apply.here 0");
}

#[test]
fn requests_that_are_made_together_share_their_way() {
    for url in [DEFAULTS, LATENCY_ONLY] {
        let shares = of_a_client(url, async |ct, counter| {
            let mut took = Vec::new();
            for tasks in [1, 4, 16] {
                let all = round_trips(ct, async || {
                    for _ in 0..REQUESTS {
                        ct.tasks(tasks, async |_| add_one(counter, ct).await).await?;
                    }
                    Ok(())
                });
                took.push(all.await? / tasks as f64);
            }
            Ok(took)
        });
        for (tasks, took) in [4.0, 16.0].into_iter().zip(&shares[1..]) {
            let share = took * tasks / shares[0];
            if url == DEFAULTS {
                println!("rtts.trust.batch{tasks} {:.3}", took / shares[0]);
            }
            assert!((0.8..=1.2).contains(&share), "{tasks} requests take {share} of the time of one: {url}");
        }
    }
}
