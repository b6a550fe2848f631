//! A lock-free skip list. Each tower has a link for each of its levels, in a `Tail`.
use farfield::{LinkWord, prelude::*};
const LEVELS: usize = 3;

/// A key, and a link for each of its levels. It is removed only when all levels are linked, so none is linked afterwards.
#[remote]
struct Tower {
    key: u64,
    is_linked: Atomic<bool>,
    #[marks(deleted)]
    next: Tail<Link<Tower>>,
}

/// Finds the towers before and after a key on each level. Unlinks marked towers on the way.
async fn find<'g>(head: RemotePtr<Tower>, key: u64, g: &'g Guard<'_>) -> Result<[[Shared<'g, Tower>; 3]; 2]> {
    'restart: loop {
        let (mut preds, mut succs) = ([head.shared(g); LEVELS], [Shared::NULL; LEVELS]);
        let mut pred = head.shared(g);
        for level in (0..LEVELS).rev() {
            let mut curr = pred.next().at(level as u64).load(g).await?.without_marks();
            while !curr.is_null() {
                let next = curr.next().at(level as u64).load(g).await?;
                if next.is_deleted() {
                    let link = pred.next().at(level as u64);
                    if link.compare_exchange(g, curr, next.without_marks()).await?.is_err() {
                        g.backoff().wait().await;
                        continue 'restart;
                    }
                } else if curr.key().read(g).await? < key {
                    pred = curr;
                } else {
                    break;
                }
                curr = next.without_marks();
            }
            (preds[level], succs[level]) = (pred, curr);
        }
        return Ok([preds, succs]);
    }
}

async fn insert(head: RemotePtr<Tower>, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    let height = LEVELS.min(1 + key.trailing_zeros() as usize);
    let tower = loop {
        let [preds, succs] = find(head, key, g).await?;
        if !succs[0].is_null() && succs[0].key().read(g).await? == key {
            return Ok(false);
        }
        let links = succs[..height].iter().map(|succ| LinkWord::from(*succ)).collect();
        let tower = Tower::new_in(g, Tower::init(key, links)).await?;
        if let Ok(tower) = preds[0].next().at(0).compare_exchange(g, succs[0], tower).await? {
            break tower.without_marks();
        }
    };
    for level in 1..height {
        loop {
            let [preds, succs] = find(head, key, g).await?;
            tower.next().at(level as u64).store(g, succs[level]).await?;
            if preds[level].next().at(level as u64).compare_exchange(g, succs[level], tower).await?.is_ok() {
                break;
            }
        }
    }
    tower.is_linked().store(g, true).await?;
    Ok(true)
}

async fn remove(head: RemotePtr<Tower>, key: u64, ct: &ComputeThread) -> Result<bool> {
    let g = &ct.pin();
    let tower = find(head, key, g).await?[1][0];
    if tower.is_null() || tower.key().read(g).await? != key || !tower.is_linked().load(g).await? {
        return Ok(false);
    }
    for level in (0..tower.next().len(g).await?).rev() {
        let link = tower.next().at(level);
        let mut next = link.load(g).await?;
        while !next.is_deleted() {
            match link.compare_exchange(g, next, next.with_deleted()).await? {
                Ok(_) if level == 0 => {
                    find(head, key, g).await?; // unlinks it on all levels
                    g.sched_reclaim(tower).await?;
                    return Ok(true);
                }
                Ok(marked) => next = marked,
                Err(changed) => next = changed.current,
            }
        }
    }
    Ok(false) // another thread has marked the lowest level
}

async fn insert_all_and_remove_every_third(ct: &ComputeThread) -> Result<()> {
    let create =
        async || Tower::new_in(ct, Tower::init(0, vec![LinkWord::default(); 3])).await?.write(ct).await;
    let (head, mut removed) = (ct.root_or_init("towers", create).await?, 0);
    for key in (1..=24).filter(|key| key % ct.threads() as u64 == ct.index() as u64) {
        assert!(insert(head, key, ct).await? && !insert(head, key, ct).await?);
    }
    for key in (3..=24).step_by(3) {
        removed += usize::from(remove(head, key, ct).await?);
    }
    ct.barrier("done").await?;
    let (g, mut keys) = (&ct.pin(), vec![]);
    let mut curr = head.next().read(g, 0..1).await?[0];
    while !curr.is_null() {
        keys.push(curr.key().read(g).await?);
        curr = curr.next().at(0).load(g).await?;
    }
    assert!(keys.is_sorted() && (16..=24 - removed).contains(&keys.len()), "{keys:?}");
    Ok(())
}

#[test]
fn the_skip_list_works_on_threads_and_in_the_simulator() {
    for url in (0..200).map(|seed| format!("sim:seed={seed}")).chain(["local:".to_owned()]) {
        Cluster::connect(&url).unwrap().run(3, insert_all_and_remove_every_third).unwrap();
    }
}
