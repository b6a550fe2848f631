//! A structure that uses only the prelude: it has every item that a first structure needs.

use farfield::prelude::*;

/// A node of a stack.
#[remote]
struct Node {
    value: u64,
    next: Link<Node>,
}

#[remote]
struct Stack {
    top: Link<Node>,
    pushed: Atomic<u64>,
}

impl Stack {
    async fn create<'a>(site: impl Into<Site<'a>>) -> Result<Owned<Self>> {
        Self::new_in(site, Self::init()).await
    }

    async fn push(&self, value: u64, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut node = Node::new_in(ct.near(self.this()), Node::init(value)).await?;
        let mut backoff: Backoff<'_> = ct.backoff();
        loop {
            let top: Shared<'_, Node> = self.top().load(g).await?;
            node.set(|node| node.next(), top);
            match self.top().compare_exchange(g, top, node).await? {
                Ok(_) => break,
                Err(changed) => node = changed.new,
            }
            backoff.wait().await;
        }
        let g = &ct.pin();
        let chain: Chain<'_, _> = g.chain(op::fetch_add(self.pushed(), 1));
        chain.submit().await?;
        Ok(())
    }
}

#[farfield::test(threads = 4, cluster = "local:delay=3")]
async fn a_first_structure_needs_only_the_prelude(ct: &ComputeThread) -> Result<()> {
    let root = ct.root_or_init("stack", async || Stack::create(ct).await?.write(ct).await).await?;
    let stack = Stack::attach(root, ct).await?;
    stack.push(ct.index() as u64, ct).await?;
    ct.barrier("pushed").await?;
    assert_eq!(stack.pushed().load(ct).await?, 4);
    let g = &ct.pin();
    let (mut node, mut sum) = (stack.top().load(g).await?, 0);
    while !node.is_null() {
        let seen = node.read(g).await?;
        (node, sum) = (seen.next, sum + seen.value);
    }
    assert_eq!(sum, 6);
    Ok(())
}
