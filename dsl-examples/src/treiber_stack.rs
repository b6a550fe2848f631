//! The Treiber stack: a stack without locks.
//!
//! After Treiber, "Systems Programming: Coping with Parallelism" (IBM RJ 5118, 1986): a link to the top node, changed by
//! CAS only. A popped node is retired: while a thread that has read it is pinned, the node's address cannot become the top again.
//! So there is no ABA problem.
//!
//! | operation | takes effect | round trips without contention |
//! |---|---|---|
//! | `push` | at the CAS of `top` | 1 if this handle was the last to change the stack, else 2: the new node's image travels with the CAS |
//! | `pop` | at the CAS of `top`, or at the READ that finds it null | 2 if this handle was the last to change the stack, else 3; 1 if it is empty |
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_examples::TreiberStack;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(1, async |ct| {
//!     let stack = TreiberStack::attach(TreiberStack::create(ct).await?, ct).await?;
//!     stack.push(1_u64, ct).await?;
//!     stack.push(2, ct).await?;
//!     assert_eq!(stack.pop(ct).await?, Some(2));
//!     stack.destroy(ct).await
//! })?;
//! # Ok(())
//! # }
//! ```

use std::cell::Cell;

use farfield::prelude::*;

/// A node of the stack.
#[remote]
pub struct Node<T: Word> {
    value: T,
    next: Link<Node<T>>,
}

/// A stack of words without locks.
#[remote]
pub struct TreiberStack<T: Word> {
    top: Link<Node<T>>,
    /// The last top that this handle has seen: a guess. A push does not read the node, and its CAS verifies the guess. A pop peeks
    /// at the node behind the READ of the link, which verifies it.
    #[local]
    known: Cell<RemotePtr<Node<T>>>,
}

impl<T: Word> TreiberStack<T> {
    /// Creates an empty stack. One round trip.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        Self::new_in(ct, Self::init()).await?.write(ct).await
    }

    /// Pushes `value`.
    pub async fn push(&self, value: T, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        let mut top = self.known.get().shared(g);
        let mut node = Node::new_in(ct.near(self.this()), Node::init(value).next(top)).await?;
        loop {
            match self.top().compare_exchange(g, top, node).await? {
                Ok(pushed) => {
                    self.known.set(pushed.as_ptr());
                    return Ok(());
                }
                Err(changed) => (top, node) = (changed.current, changed.new),
            }
            node.set(|node| node.next(), top);
            backoff.wait().await;
        }
    }

    /// Removes and returns the value on top, if there is one.
    pub async fn pop(&self, ct: &ComputeThread) -> Result<Option<T>> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        let guess = self.known.get();
        let guessed = (!guess.is_null()).then(|| op::peek(guess));
        let (mut top, guessed) = g.chain((op::load(self.top()), guessed)).submit().await?;
        let mut guessed = guessed.filter(|_| top == guess);
        while !top.is_null() {
            let node = match guessed.take() {
                Some(seen) => seen?,
                None => top.read(g).await?,
            };
            match self.top().compare_exchange(g, top, node.next).await? {
                Ok(next) => {
                    self.known.set(next.as_ptr());
                    g.sched_reclaim(top).await?;
                    return Ok(Some(node.value));
                }
                Err(changed) => top = changed.current,
            }
            backoff.wait().await;
        }
        Ok(None)
    }

    /// Frees the stack with its nodes. No other thread may use it any more. One READ a node.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut node = self.top().load(g).await?;
        let mut walk = Walk::new();
        while !node.is_null() {
            walk.visit(node)?;
            let next = node.next().load(g).await?;
            ct.delete(node).await?;
            node = next;
        }
        ct.delete(self.this()).await
    }
}
