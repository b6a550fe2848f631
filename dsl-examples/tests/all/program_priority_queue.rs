//! A priority queue: a binary heap of bounded size, under one lock.
//!
//! An operation takes the lock and reads the whole heap in one round trip, and changes the copy. A second round trip writes the
//! changed words and releases the lock.

use farfield::prelude::*;

const CAPACITY: usize = 15;

#[remote]
struct Heap {
    lock: Lock,
    length: Atomic<u64>,
    /// A binary heap: no entry is smaller than the entry at half its index. The smallest is at 1; 0 is not used.
    entries: [Atomic<u64>; CAPACITY + 1],
    /// For the test: the number and the sum of entries pushed, less those popped.
    balance: [Atomic<u64>; 2],
}

impl Heap {
    /// Changes the heap under its lock. `change` gets the entries from index 1 on, and may change their number by one.
    async fn change<R>(&self, ct: &ComputeThread, change: impl FnOnce(&mut Vec<u64>) -> R) -> Result<R> {
        let g = &ct.pin();
        let [(lock, seen)] = g.lock_and_read([(self.lock(), self.this().shared(g))]).await?;
        let mut entries = seen.entries[..=seen.length as usize].to_vec();
        let result = change(&mut entries);
        let changed = (0..entries.len()).filter(|place| seen.entries[*place] != entries[*place]);
        let changed: Vec<_> = changed.map(|place| op::store(self.entries()[place], entries[place])).collect();
        let length = op::store(self.length(), entries.len() as u64 - 1);
        g.chain((changed, length, op::release(lock))).submit().await?;
        Ok(result)
    }

    /// Adds an entry. Returns `false` if the heap is full.
    async fn push(&self, entry: u64, ct: &ComputeThread) -> Result<bool> {
        let push = |entries: &mut Vec<u64>| {
            let mut place = entries.len();
            if place > CAPACITY {
                return false;
            }
            entries.push(entry);
            while place > 1 && entries[place] < entries[place / 2] {
                entries.swap(place, place / 2);
                place /= 2;
            }
            true
        };
        self.change(ct, push).await
    }

    /// Removes and returns the smallest entry.
    async fn pop(&self, ct: &ComputeThread) -> Result<Option<u64>> {
        let pop = |entries: &mut Vec<u64>| {
            let last = entries.len() - 1;
            if last == 0 {
                return None;
            }
            entries.swap(1, last);
            let (smallest, mut place) = (entries.pop(), 1);
            while let Some(least) = (place * 2..(place * 2 + 2).min(last)).min_by_key(|child| entries[*child])
            {
                if entries[place] <= entries[least] {
                    break;
                }
                entries.swap(place, least);
                place = least;
            }
            smallest
        };
        self.change(ct, pop).await
    }
}

async fn push_and_pop(ct: &ComputeThread) -> Result<()> {
    let heap = async || Heap::new_in(ct, Heap::init()).await?.write(ct).await;
    let heap = Heap::attach(ct.root_or_init("heap", heap).await?, ct).await?;
    let [entries, sum] = heap.balance();
    for _ in 0..6 {
        let entry = ct.random_range(0..1000);
        if heap.push(entry, ct).await? {
            entries.fetch_add(ct, 1).await?;
            sum.fetch_add(ct, entry).await?;
        }
        let popped = if ct.random_chance(0.4) { heap.pop(ct).await? } else { None };
        if let Some(entry) = popped {
            entries.fetch_sub(ct, 1).await?;
            sum.fetch_sub(ct, entry).await?;
        }
    }
    ct.barrier("done").await?;
    if ct.index() == 0 {
        let mut left = Vec::new();
        while let Some(entry) = heap.pop(ct).await? {
            left.push(entry);
        }
        assert!(left.is_sorted(), "the smallest comes first: {left:?}");
        assert_eq!(entries.load(ct).await?, left.len() as u64, "the entries that were pushed and not popped");
        assert_eq!(sum.load(ct).await?, left.iter().sum::<u64>());
    }
    Ok(())
}

#[test]
fn on_threads() -> Result<()> {
    for url in ["local:", "local:delay=3"] {
        Cluster::connect(url)?.run(4, push_and_pop)?;
    }
    Ok(())
}

#[farfield::test(sim, seeds = 0..200, threads = 4)]
async fn simulated(ct: &ComputeThread) -> Result<()> {
    push_and_pop(ct).await
}
