//! An acquisition that is undone late releases no later acquisition, however many there were meanwhile.

use farfield::Place;
use farfield::Result;
use farfield::prelude::*;

#[remote]
struct Two {
    one: Lock,
    other: Lock,
}

/// Returns the number of acquisitions after which a thread's tokens repeat, as far as a lock's state shows.
async fn period(ct: &ComputeThread, lock: Place<'_, Lock>) -> Result<u32> {
    let mut first = None;
    for count in 0..1 << 20 {
        let guard = lock.acquire(ct).await?;
        let state = lock.state(ct).await?;
        guard.release().await?;
        if *first.get_or_insert(state) == state && count > 0 {
            return Ok(count);
        }
    }
    panic!("a token has far fewer than 20 bits that change");
}

#[test]
fn an_acquisition_undone_late_releases_no_other_one() -> Result<()> {
    Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
        let two = Two::new_in(ct, Two::init()).await?.write(ct).await?;
        let period = period(ct, two.other()).await?;
        let first = two.one().acquire(ct).await?;
        let g = &ct.pin();
        let mut in_vain = Box::pin(g.chain(op::try_lock(two.one())).submit());
        // Posted, and never polled again: its outcome is not read.
        let _ = std::future::poll_fn(|context| std::task::Poll::Ready(in_vain.as_mut().poll(context))).await;
        first.release().await?;
        for _ in 1..period {
            two.other().acquire(ct).await?.release().await?;
        }
        let held = two.one().acquire(ct).await?;
        drop(in_vain);
        assert!(
            two.one().state(ct).await?.is_held(),
            "the late compensation has released the next owner's lock"
        );
        Ok(held.release().await?)
    })?;
    Ok(())
}

/// The same for a guard that was passed to a chain, if the chain's future is dropped after it was posted.
#[test]
fn a_release_repeated_late_releases_no_other_acquisition() -> Result<()> {
    Cluster::connect("sim:size=64KiB,leaks=ignore")?.run(1, async |ct| {
        let two = Two::new_in(ct, Two::init()).await?.write(ct).await?;
        let period = period(ct, two.other()).await?;
        let held_long = two.one().acquire(ct).await?;
        for _ in 1..period {
            two.other().acquire(ct).await?.release().await?;
        }
        let g = &ct.pin();
        let mut submitted = Box::pin(g.chain(op::release(held_long)).submit());
        // The chain is posted, and takes effect without being awaited.
        let _ =
            std::future::poll_fn(|context| std::task::Poll::Ready(submitted.as_mut().poll(context))).await;
        let held = two.one().acquire(ct).await?;
        drop(submitted);
        assert!(two.one().state(ct).await?.is_held(), "an old release has released the next owner's lock");
        Ok(held.release().await?)
    })?;
    Ok(())
}
