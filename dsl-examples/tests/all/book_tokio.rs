//! The small programs of the book's chapter "Farfield beside tokio". The service is in `program_axum.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use farfield::prelude::*;
use farfield::{Client, ClientOptions, Error};
use farfield_examples::Counter;
use tokio::sync::oneshot;

async fn hits(ct: &ComputeThread) -> Result<Counter> {
    let root = ct.root_or_init("hits", async || Counter::create(ct).await).await?;
    Counter::attach(root, ct).await
}

// ANCHOR: first
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn count() -> Result<u64> {
    let client = Cluster::connect("local:size=1MiB")?.client()?;
    let mut tasks = Vec::new();
    for _ in 0..100 {
        let client = client.clone();
        tasks.push(tokio::spawn(
            async move { client.call(async |ct| hits(ct).await?.add(1, ct).await).await },
        ));
    }
    for task in tasks {
        task.await.map_err(Error::other)??;
    }
    let total = client.call(async |ct| hits(ct).await?.get(ct).await).await?;
    client.shutdown().await?;
    Ok(total)
}
// ANCHOR_END: first

#[test]
fn tasks_of_tokio_share_a_client() {
    assert_eq!(count().unwrap(), 100);
}

// ANCHOR: shed
/// Accepts a request if there is room, and refuses it immediately if not.
async fn hit(client: &Client) -> Result<Option<u64>> {
    match client.try_call(async |ct| hits(ct).await?.add(1, ct).await) {
        Ok(call) => Ok(Some(call.deadline(Duration::from_secs(5)).await?)),
        Err(Error::ClientFull(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
// ANCHOR_END: shed

#[tokio::test]
async fn calls_without_room_are_refused() {
    let mut options = ClientOptions::new();
    (options.tasks, options.queue) = (1, 1);
    let client = Cluster::connect("local:size=1MiB").unwrap().client_with(&options).unwrap();
    let ((has_begun, begun), (go_on, may_go_on)) = (oneshot::channel(), oneshot::channel::<()>());
    let busy = client.try_call(async move |_| {
        has_begun.send(()).unwrap();
        may_go_on.await.map_err(Error::other)
    });
    begun.await.unwrap();
    let queued = client.try_call(async |ct| hits(ct).await?.add(1, ct).await).unwrap();
    assert_eq!(hit(&client).await.unwrap(), None);
    go_on.send(()).unwrap();
    busy.unwrap().await.unwrap();
    assert_eq!(queued.await.unwrap(), 0);
    assert_eq!(hit(&client).await.unwrap(), Some(1));
}

#[tokio::test]
async fn a_call_that_times_out_is_cancelled() {
    let client = Cluster::connect("local:size=1MiB").unwrap().client().unwrap();
    let (dropped, drops) = oneshot::channel::<()>();
    // ANCHOR: cancel
    let stuck = client.call(async move |ct| {
        let _dropped = dropped;
        let hits = hits(ct).await?;
        hits.add(1, ct).await?; // takes effect
        std::future::pending::<()>().await; // is cancelled here
        hits.add(1, ct).await
    });
    let answer = tokio::time::timeout(Duration::from_millis(20), stuck).await;
    assert!(answer.is_err());
    // ANCHOR_END: cancel
    assert!(drops.await.is_err());
    // On a busy machine it may be cancelled before it has begun.
    let counted = client.call(async |ct| hits(ct).await?.get(ct).await).await.unwrap();
    assert!(counted <= 1, "{counted}");
    client.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_call_may_wait_for_tokio() -> Result<()> {
    let client = Cluster::connect("local:size=1MiB")?.client()?;
    let (send, receive) = oneshot::channel();
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    let call = client.try_call(async move |ct| {
        let mut receive = std::pin::pin!(receive);
        let amount = std::future::poll_fn(|context| {
            counted.fetch_add(1, Ordering::Relaxed);
            receive.as_mut().poll(context)
        });
        let amount = amount.await.map_err(Error::other)?;
        hits(ct).await?.add(amount, ct).await
    })?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    send.send(5).map_err(|_| Error::other("the call has ended"))?;
    assert_eq!(call.await?, 0);
    // The compute thread slept meanwhile.
    assert!(polls.load(Ordering::Relaxed) < 10);
    Ok(())
}

/// The panic of tokio's timers on a thread that is not one of tokio's.
const NO_REACTOR: &str =
    "there is no reactor running, must be called from the context of a Tokio 1.x runtime";

async fn a_while() -> Result<()> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(())
}

#[test]
fn tokio_s_timers_panic_on_compute_threads() {
    for url in ["local:size=1MiB", "sim:"] {
        let run = || Cluster::connect(url).unwrap().run(1, async |_| a_while().await);
        let panic = std::panic::catch_unwind(run).unwrap_err();
        let said = panic.downcast_ref::<&str>().map(ToString::to_string);
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        assert_eq!(said, NO_REACTOR, "{url}");
    }
}

#[tokio::test]
async fn a_timer_s_panic_in_a_call_is_the_call_s_error() {
    let client = Cluster::connect("local:size=1MiB").unwrap().client().unwrap();
    let error = client.call(async |_| a_while().await).await.unwrap_err();
    assert!(matches!(error, Error::CallPanicked { .. }) && error.to_string().contains(NO_REACTOR), "{error}");
    client.shutdown().await.unwrap();
}

/// A simulated run may be on a thread of tokio's. The timer then waits for real time, which does not pass in virtual time.
#[tokio::test]
async fn in_virtual_time_tokio_s_timers_are_a_deadlock() {
    let run = Cluster::connect("sim:leaks=ignore").unwrap().run(1, async |ct| {
        hits(ct).await?;
        a_while().await
    });
    let Err(Error::Simulation(found)) = run else { panic!("{run:?}") };
    assert_eq!(found.finding, farfield::sim::Finding::Deadlock);
    assert!(found.to_string().contains("usually a channel or tokio's timers"), "{found}");
}
