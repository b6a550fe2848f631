//! The programs of the book's chapter "Choosing a structure".

use farfield::prelude::*;
use farfield_collections::{Array, InterlockedHashTable, OrderedMap, PriorityQueue, Ring, SkipList};

#[test]
fn an_array_is_summed_by_all_threads() -> Result<()> {
    // ANCHOR: array
    let sums = Cluster::connect("local:nodes=4")?.run(8, async |ct| {
        let root = ct.root_or_init("samples", async || Array::<u64>::create(100_000, ct).await).await?;
        let samples = Array::attach(root, ct).await?;
        for range in samples.share(ct) {
            let values: Vec<u64> = range.clone().collect();
            samples.write(range.start, &values, ct).await?;
        }
        ct.barrier("written").await?;
        // Any range, from all memory nodes at once.
        let values = samples.read(500..60_000, ct).await?;
        assert_eq!(values[0], 500);
        let mut sum = 0;
        for range in samples.share(ct) {
            sum += samples.read(range, ct).await?.iter().sum::<u64>();
        }
        Ok(sum)
    })?;
    assert_eq!(sums.iter().sum::<u64>(), 100_000 * 99_999 / 2);
    // ANCHOR_END: array
    Ok(())
}

#[test]
fn all_threads_iterate_over_a_table_together() -> Result<()> {
    // ANCHOR: interlocked
    let sums = Cluster::connect("local:nodes=4")?.run(8, async |ct| {
        let create = async || InterlockedHashTable::<u64, u64>::create(ct).await;
        let degrees = InterlockedHashTable::attach(ct.root_or_init("degrees", create).await?, ct).await?;
        for edge in 0..500 {
            let vertex = (edge * edge + ct.index() as u64) % 1009;
            degrees.modify(&vertex, |degree| Some(degree.unwrap_or(0) + 1), ct).await?;
        }
        ct.barrier("counted").await?;
        let (mut mine, mut sum) = (degrees.share(ct), 0);
        while let Some((_vertex, degree)) = mine.next().await? {
            sum += degree;
        }
        Ok(sum)
    })?;
    assert_eq!(sums.iter().sum::<u64>(), 8 * 500);
    // ANCHOR_END: interlocked
    Ok(())
}

#[test]
fn jobs_pass_through_a_ring() -> Result<()> {
    // ANCHOR: ring
    let done = Cluster::connect("local:")?.run(4, async |ct| {
        let root = ct.root_or_init("jobs", async || Ring::<String>::create(16, ct).await).await?;
        let jobs = Ring::attach(root, ct).await?;
        let mut done = 0;
        if ct.index() == 0 {
            for job in 0..300 {
                jobs.push(&format!("job {job}"), ct).await?;
            }
            for _ in 1..ct.threads() {
                jobs.push("", ct).await?;
            }
        } else {
            while !jobs.pop(ct).await?.is_empty() {
                done += 1;
            }
        }
        Ok(done)
    })?;
    assert_eq!(done.iter().sum::<u64>(), 300);
    // ANCHOR_END: ring
    Ok(())
}

#[test]
fn names_are_found_by_their_beginning() -> Result<()> {
    // ANCHOR: ordered_map
    Cluster::connect("local:nodes=2")?.run(2, async |ct| {
        let root = ct.root_or_init("visits", async || OrderedMap::<String, u64>::create(ct).await).await?;
        let visits = OrderedMap::attach(root, ct).await?;
        for user in (0..1000).filter(|user| user % 2 == ct.index() as u64) {
            visits.insert(&format!("/users/{user:03}"), &user, ct).await?;
        }
        ct.barrier("inserted").await?;
        assert_eq!(visits.get("/users/007", ct).await?, Some(7));

        let mut some = visits.prefix("/users/12", ct);
        let mut found = Vec::new();
        while let Some((_, visits)) = some.next().await? {
            found.push(visits);
        }
        assert_eq!(found, (120..130).collect::<Vec<u64>>());

        let mut latest = visits.range_back(..="/users/500".to_owned(), ct)?;
        assert_eq!(latest.next().await?, Some(("/users/500".to_owned(), 500)));
        assert_eq!(latest.next().await?, Some(("/users/499".to_owned(), 499)));
        Ok(())
    })?;
    // ANCHOR_END: ordered_map
    Ok(())
}

#[test]
fn deadlines_are_kept_in_order() -> Result<()> {
    // ANCHOR: skip_list
    Cluster::connect("local:")?.run(2, async |ct| {
        let root = ct.root_or_init("deadlines", async || SkipList::<u64, u64>::create(ct).await).await?;
        let deadlines = SkipList::attach(root, ct).await?;
        for job in (0..100).filter(|job| job % 2 == ct.index() as u64) {
            deadlines.insert(&(job * 10), &job, ct).await?;
        }
        ct.barrier("inserted").await?;
        let mut due = deadlines.range(..=55, ct)?;
        let mut jobs = Vec::new();
        while let Some((_, job)) = due.next().await? {
            jobs.push(job);
        }
        assert_eq!(jobs, [0, 1, 2, 3, 4, 5]);

        let root = ct.root_or_init("urgent", async || PriorityQueue::<u8, u64>::create(ct).await).await?;
        let urgent = PriorityQueue::attach(root, ct).await?;
        urgent.push(3, 7, ct).await?;
        ct.barrier("pushed").await?;
        assert_eq!(urgent.pop_min(ct).await?, Some((3, 7)));
        Ok(())
    })?;
    // ANCHOR_END: skip_list
    Ok(())
}
