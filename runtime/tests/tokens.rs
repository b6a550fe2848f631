//! An attempt to take a lock that is undone late releases no lock but its own, however many have been taken meanwhile.

use farfield::Place;
use farfield::Result;
use farfield::prelude::*;

#[remote]
struct Two {
    one: Lock,
    other: Lock,
}

/// After how many acquisitions a thread's tokens come round, as far as a lock's state shows.
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
fn an_attempt_that_is_undone_late_releases_no_other() -> Result<()> {
    Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
        let two = Two::new_in(ct, Two::init()).await?.write(ct).await?;
        let period = period(ct, two.other()).await?;
        let first = two.one().acquire(ct).await?;
        let g = &ct.pin();
        let mut chain = g.chain();
        let in_vain = chain.try_lock(two.one());
        chain.submit().await?;
        first.release().await?;
        for _ in 1..period {
            two.other().acquire(ct).await?.release().await?;
        }
        let held = two.one().acquire(ct).await?;
        drop(in_vain);
        assert!(
            two.one().state(ct).await?.is_held(),
            "an attempt in vain has released the next owner's lock"
        );
        Ok(held.release().await?)
    })?;
    Ok(())
}

/// The same for a guard that is given to a chain, which is dropped after it was posted.
#[test]
fn a_release_that_is_repeated_late_releases_no_other() -> Result<()> {
    Cluster::connect("sim:size=64KiB,leaks=ignore")?.run(1, async |ct| {
        let two = Two::new_in(ct, Two::init()).await?.write(ct).await?;
        let period = period(ct, two.other()).await?;
        let held_long = two.one().acquire(ct).await?;
        for _ in 1..period {
            two.other().acquire(ct).await?.release().await?;
        }
        let g = &ct.pin();
        let mut chain = g.chain();
        chain.release(held_long);
        let mut submitted = Box::pin(chain.submit());
        // Posted; it takes effect, whether it is waited for or not.
        let _ =
            std::future::poll_fn(|context| std::task::Poll::Ready(submitted.as_mut().poll(context))).await;
        let held = two.one().acquire(ct).await?;
        drop(submitted);
        assert!(two.one().state(ct).await?.is_held(), "an old release has released the next owner's lock");
        Ok(held.release().await?)
    })?;
    Ok(())
}
