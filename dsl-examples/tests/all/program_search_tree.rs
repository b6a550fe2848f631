//! A lock-free search tree: a CAS of a null link adds a node, and each node has a flag that says if its key is in the set.
//!
//! Links change once, from null to a node. So a search ends at the node of its key, or at the only link where it can be added.

use farfield::prelude::*;
use std::cmp::Ordering;

const KEYS: usize = 8;

#[remote]
struct Node {
    key: u64,
    /// True if the key is in the set.
    present: Atomic<bool>,
    smaller: Link<Node>,
    larger: Link<Node>,
}

#[remote]
struct Tree {
    root: Link<Node>,
    /// For the test: the number of insertions of each key, less its removals.
    balance: [Atomic<u64>; KEYS],
}

/// A node and the link that points to it.
type Found<'g> = (Shared<'g, Node>, Place<'g, Link<Node>>);

impl Tree {
    /// Finds the node of a key, or null and the link where it can be added. One round trip for each node on the path.
    async fn find<'g>(&self, key: u64, g: &'g Guard<'_>) -> Result<Found<'g>> {
        let (mut node, mut link): Found<'g> = (self.root().load(g).await?, self.root());
        while !node.is_null() {
            let seen = node.read(g).await?;
            (node, link) = match key.cmp(&seen.key) {
                Ordering::Less => (seen.smaller, node.smaller()),
                Ordering::Equal => break,
                Ordering::Greater => (seen.larger, node.larger()),
            };
        }
        Ok((node, link))
    }

    /// Inserts a key. Returns `true` if it was absent.
    async fn insert(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        loop {
            let (node, link) = self.find(key, g).await?;
            if !node.is_null() {
                return Ok(!node.present().swap(ct, true).await?);
            }
            let new = Node::new_in(ct, Node::init(key).present(true)).await?;
            if link.compare_exchange(g, Shared::NULL, new).await?.is_ok() {
                return Ok(true);
            }
        }
    }

    /// Removes a key. Returns `true` if it was present.
    async fn remove(&self, key: u64, ct: &ComputeThread) -> Result<bool> {
        let g = &ct.pin();
        let (node, _) = self.find(key, g).await?;
        if node.is_null() { Ok(false) } else { node.present().swap(ct, false).await }
    }

    /// Returns each node's key and flag in order, and frees the nodes. No other thread may use the tree.
    async fn take_apart(&self, ct: &ComputeThread) -> Result<Vec<(u64, bool)>> {
        let g = &ct.pin();
        let (mut keys, mut above) = (Vec::new(), Vec::new());
        let mut node = self.root().swap(g, Shared::NULL).await?;
        loop {
            while !node.is_null() {
                let seen = node.read(g).await?;
                above.push((node, seen.key, seen.present, seen.larger));
                node = seen.smaller;
            }
            let Some((done, key, present, larger)) = above.pop() else { return Ok(keys) };
            keys.push((key, present));
            node = larger;
            ct.delete(done).await?;
        }
    }
}

async fn update(ct: &ComputeThread) -> Result<()> {
    let tree = async || Tree::new_in(ct, Tree::init()).await?.write(ct).await;
    let tree = Tree::attach(ct.root_or_init("tree", tree).await?, ct).await?;
    for _ in 0..12 {
        let (key, inserts) = (ct.random_range(0..KEYS), ct.random());
        if inserts && tree.insert(key as u64, ct).await? {
            tree.balance()[key].fetch_add(ct, 1).await?;
        } else if !inserts && tree.remove(key as u64, ct).await? {
            tree.balance()[key].fetch_sub(ct, 1).await?;
        }
    }
    ct.barrier("done").await?;
    if ct.index() == 0 {
        let keys = tree.take_apart(ct).await?;
        assert!(keys.is_sorted_by(|(one, _), (next, _)| one < next), "each key is in one node: {keys:?}");
        for key in 0..KEYS {
            let balance = tree.balance()[key].load(ct).await?;
            assert_eq!(balance, u64::from(keys.contains(&(key as u64, true))), "key {key}");
        }
    }
    Ok(())
}

#[test]
fn on_threads() -> Result<()> {
    for url in ["local:", "local:delay=3"] {
        Cluster::connect(url)?.run(4, update)?;
    }
    Ok(())
}

#[farfield::test(sim, seeds = 0..200, threads = 4)]
async fn simulated(ct: &ComputeThread) -> Result<()> {
    update(ct).await
}
