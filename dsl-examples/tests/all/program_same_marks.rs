//! Two lists whose links have a mark of the same name: waiting jobs and running jobs, each with a mark `cancelled`.

use farfield::prelude::*;

// ANCHOR: marks
/// A job in the list of waiting jobs.
#[remote]
struct Waiting {
    job: u64,
    #[marks(cancelled)]
    next: Link<Waiting>,
}

/// A job in the list of running jobs.
#[remote]
struct Running {
    job: u64,
    #[marks(cancelled)]
    next: Link<Running>,
    /// A link to the other type, with a mark of the same name.
    #[marks(cancelled)]
    after: Link<Waiting>,
    /// The waiting job that it was: a link without marks to a type whose own links have marks.
    origin: Link<Waiting>,
}

/// Cancels the successors of a waiting and of a running job. Each `is_cancelled` belongs to its link, so they cannot be confused.
async fn cancel(waiting: RemotePtr<Waiting>, running: RemotePtr<Running>, g: &Guard<'_>) -> Result<()> {
    let next = waiting.next().load(g).await?;
    waiting.next().store(g, next.with_cancelled()).await?;
    let next = running.next().load(g).await?;
    running.next().store(g, next.with_cancelled()).await?;
    let after = running.after().load(g).await?;
    running.after().store(g, after.with_cancelled()).await?;
    Ok(())
}
// ANCHOR_END: marks

/// Another module, which imports the marks.
mod elsewhere {
    use super::{Running, RunningMarks, Waiting, WaitingMarks};
    use farfield::prelude::*;

    pub(super) async fn are_cancelled(
        waiting: RemotePtr<Waiting>,
        running: RemotePtr<Running>,
        g: &Guard<'_>,
    ) -> Result<[bool; 3]> {
        let (waiting, running) = (waiting.read(g).await?, running.read(g).await?);
        Ok([waiting.next.is_cancelled(), running.next.is_cancelled(), running.after.is_cancelled()])
    }
}

/// A list whose anchor has the marks of its nodes, so that pointers with marks can be moved between their links.
#[remote]
struct Anchor {
    #[marks(like = WaitingMarked)]
    first: Link<Waiting>,
}

#[farfield::test(threads = 2)]
async fn the_same_mark_in_two_structs_and_on_two_links(ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    let waiting = Waiting::new_in(ct, Waiting::init(1)).await?.write(ct).await?;
    let init = Running::init(2).after(waiting).origin(waiting);
    let running = Running::new_in(ct, init).await?.write(ct).await?;
    assert_eq!(elsewhere::are_cancelled(waiting, running, g).await?, [false; 3]);
    cancel(waiting, running, g).await?;
    assert_eq!(elsewhere::are_cancelled(waiting, running, g).await?, [true; 3]);
    // Each link has its own mark.
    assert_eq!(running.origin().load(g).await?.marks(), 0);
    assert_eq!(running.after().load(g).await?.without_marks(), running.origin().load(g).await?);

    let anchor = Anchor::new_in(ct, Anchor::init()).await?.write(ct).await?;
    let next = waiting.next().load(g).await?;
    anchor.first().store(g, next).await?;
    assert!(anchor.first().load(g).await?.is_cancelled());
    Ok(())
}
