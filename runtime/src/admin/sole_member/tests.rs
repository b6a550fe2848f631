//! A process that ends or is cancelled while it excludes others.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::cluster::served::Served;

/// A process that ends while it excludes others, and a future that is dropped while it does: the next process gets access.
#[test]
fn a_sole_member_that_dies_or_is_cancelled_excludes_no_other() {
    let served = Served::new("alone");
    let dead = served.connect();
    let kept_out = dead.run(1, async |ct| {
        let me = ct.process.member().expect("there may be others").identity;
        let mut alone = Box::pin(ct.while_alone(async |_| std::future::pending::<Result<()>>().await));
        let mut context = Context::from_waker(Waker::noop());
        assert!(alone.as_mut().poll(&mut context).is_pending());
        let by = ct.read_word(control::collector()).await?;
        // As if it was killed: its destructor does not run.
        std::mem::forget(alone);
        Ok(by == u64::from(me) + 1)
    });
    assert_eq!(kept_out.unwrap(), [true]);
    drop(dead);
    let next = served.connect();
    let run = next.run(1, async |ct| {
        {
            let mut given_up = pin!(ct.while_alone(async |_| std::future::pending().await));
            let polled: Poll<Result<Result<(), Vec<SeenMember>>>> =
                given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        assert_eq!(ct.read_word(control::collector()).await?, 0);
        assert_eq!(ct.while_alone(async |_| Ok(7)).await?.ok(), Some(7));
        Ok(())
    });
    run.unwrap();
}
