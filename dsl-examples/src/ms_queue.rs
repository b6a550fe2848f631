//! The Michael-Scott queue: a queue without locks.
//!
//! After Michael and Scott, "Simple, Fast, and Practical Non-Blocking and Blocking Concurrent Queue Algorithms" (PODC
//! 1996). The list begins with a *dummy*, whose value has been dequeued. `head` links to it, `tail` to the last node or the
//! one before it. An operation that finds `tail` one node behind advances it.
//!
//! Invariants:
//! - every node in the queue is reachable from `head`, and `tail` is one of them or the dummy;
//! - `tail` passes a node before `head` does, so `tail` never links to a retired dummy;
//! - a node's link is written once, from null, by the CAS that enqueues behind it.
//!
//! | operation | takes effect | round trips without contention |
//! |---|---|---|
//! | `enqueue` | at the CAS of the last node's link | 2: `tail` is advanced without waiting |
//! | `dequeue` | at the CAS of `head`, or at the READ of the dummy that finds no successor | 2 if this handle was the last to dequeue, else 3; one less if it is empty |
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_examples::MsQueue;
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(1, async |ct| {
//!     let queue = MsQueue::attach(MsQueue::create(ct).await?, ct).await?;
//!     queue.enqueue(1_u64, ct).await?;
//!     queue.enqueue(2, ct).await?;
//!     assert_eq!(queue.dequeue(ct).await?, Some(1));
//!     queue.destroy(ct).await
//! })?;
//! # Ok(())
//! # }
//! ```

use std::cell::Cell;

use farfield::prelude::*;

/// A node of the queue.
#[remote]
pub struct Node<T: Word> {
    value: T,
    next: Link<Node<T>>,
}

/// A queue of words without locks.
#[remote]
pub struct MsQueue<T: Word> {
    head: Link<Node<T>>,
    tail: Link<Node<T>>,
    /// The last dummy that this handle has seen: a guess.
    #[local]
    known: Cell<RemotePtr<Node<T>>>,
}

impl<T: Word> MsQueue<T> {
    /// Creates an empty queue. Two round trips.
    pub async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        let dummy = Node::new_in(ct, Node::init(T::initial())).await?.write(ct).await?;
        Self::new_in(ct.near(dummy), Self::init().head(dummy).tail(dummy)).await?.write(ct).await
    }

    /// Adds `value` at the end.
    pub async fn enqueue(&self, value: T, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        let mut node = Node::new_in(ct.near(self.this()), Node::init(value)).await?;
        let mut tail = self.tail().load(g).await?;
        let mut walk = Walk::new();
        loop {
            // The CAS succeeds only if `tail` is the last node, whose link is null.
            match tail.next().compare_exchange(g, Shared::NULL, node).await? {
                Ok(last) => {
                    // Not awaited. If it fails, another operation has advanced `tail`.
                    return g.chain(op::compare_exchange_link(self.tail(), tail, last)).post();
                }
                Err(changed) => {
                    walk.visit(tail)?;
                    node = changed.new;
                    tail = self.help_tail(tail, changed.current, g).await?;
                }
            }
            backoff.wait().await;
        }
    }

    /// Advances `tail` from a node with a successor. Returns the node that `tail` links to afterwards.
    async fn help_tail<'g>(
        &self,
        tail: Shared<'g, Node<T>>,
        next: Shared<'g, Node<T>>,
        g: &'g Guard<'_>,
    ) -> Result<Shared<'g, Node<T>>> {
        Ok(self.tail().compare_exchange(g, tail, next).await?.unwrap_or_else(|changed| changed.current))
    }

    /// Removes and returns the value at the front, if there is one.
    pub async fn dequeue(&self, ct: &ComputeThread) -> Result<Option<T>> {
        let g = &ct.pin();
        let mut backoff = ct.backoff();
        loop {
            // One READ of both, `head` first: a `tail` other than `head` is a later node.
            let guess = self.known.get();
            // Behind the READ of `head`: if `head` is the guess, the guard protects the node.
            let guessed = (!guess.is_null()).then(|| op::peek(guess));
            let (ends, guessed) = g.chain((op::read(self.this()), guessed)).submit().await?;
            let MsQueueSnapshot { head, tail, .. } = ends;
            let next = match guessed {
                Some(dummy) if head == guess => dummy?.next,
                _ => head.next().load(g).await?,
            };
            if next.is_null() {
                return Ok(None);
            }
            // `tail` must not link to a node that is about to be retired.
            if tail == head {
                self.help_tail(tail, next, g).await?;
            }
            // The value is frozen and the guard protects its node, so the READ is valid even if another thread dequeues it.
            let chain = g.chain((op::read(next.value()), op::compare_exchange_link(self.head(), head, next)));
            let (value, moved) = chain.submit().await?;
            if moved.is_ok() {
                self.known.set(next.as_ptr());
                g.sched_reclaim(head).await?;
                return Ok(Some(value));
            }
            backoff.wait().await;
        }
    }

    /// Frees the queue with its nodes. No other thread may use it any more. One READ a node.
    pub async fn destroy(self, ct: &ComputeThread) -> Result<()> {
        let g = &ct.pin();
        let mut node = self.head().load(g).await?;
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
