//! Delegated counters: each process gives one to its thread, and requests others.
//!
//! A request that is answered was executed once, and one whose trustee has gone at most once, or not at all, if the error says so. So of each counter all answers
//! differ, they are in the order of the requests, and their largest is no more than the number of requests that were, or may have been, executed.

use std::collections::BTreeMap;

use farfield::prelude::*;
use farfield::{ComputeThread, Error, StoredTrust};

use super::log::Call;
use crate::structures::TALLIES;

/// The name of the root.
const ROOT: &str = "tallies";
/// The answer of a request that was not executed.
const NOT_EXECUTED: u64 = 0;
/// That of one that may have been.
const UNKNOWN: u64 = (1 << 62) - 3;
const COUNT_BITS: u32 = 30;

/// A counter.
pub struct Tally {
    /// Of no other one.
    id: u64,
    count: u64,
}

/// The counters that are requested.
#[remote]
pub struct Tallies {
    slots: [Link<StoredTrust<Tally>>; TALLIES],
}

impl Tallies {
    /// The counters of all processes.
    ///
    /// # Errors
    /// Those of the cluster.
    pub async fn shared(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        ct.root_or_init(ROOT, async || Self::new_in(ct, Self::init()).await?.write(ct).await).await
    }
}

/// Gives a counter to this thread, and puts it into the place of another one. Its number must be that of no other counter, and not 0.
///
/// # Errors
/// Those of the cluster.
pub async fn entrust(all: RemotePtr<Tallies>, id: u64, ct: &ComputeThread) -> Result<()> {
    let stored = ct.entrust(Tally { id, count: 0 }).await?.store(ct).await?;
    let g = &ct.pin();
    let before = all.slots().at(id as usize % TALLIES).swap(g, stored).await?;
    if before.is_null() { Ok(()) } else { g.sched_reclaim(before).await }
}

/// Requests that a counter counts. Returns the answer, for the log.
///
/// # Errors
/// Those of the cluster.
pub async fn count(all: RemotePtr<Tallies>, slot: u64, ct: &ComputeThread) -> Result<u64> {
    let tally = {
        let g = &ct.pin();
        let stored = all.slots().at(slot as usize % TALLIES).load(g).await?;
        if stored.is_null() {
            return Ok(NOT_EXECUTED);
        }
        match Trust::open(stored.as_ptr(), ct).await {
            Err(Error::TrusteeGone(_) | Error::DelegationRefused(_)) => return Ok(NOT_EXECUTED),
            opened => opened?,
        }
    };
    let counted = tally.apply(ct, (), |tally, ()| {
        tally.count += 1;
        (tally.id, tally.count)
    });
    match counted.await {
        Ok((id, count)) => Ok(id << COUNT_BITS | count),
        Err(Error::TrusteeGone(gone)) if gone.may_have_run => Ok(UNKNOWN),
        Err(Error::TrusteeGone(_)) => Ok(NOT_EXECUTED),
        Err(error) => Err(error),
    }
}

/// Frees the counters' handles, whose threads have ended.
///
/// # Errors
/// Those of the cluster.
pub async fn clear(all: RemotePtr<Tallies>, ct: &ComputeThread) -> Result<()> {
    let g = &ct.pin();
    for slot in 0..TALLIES {
        let stored = all.slots().at(slot).swap(g, Shared::NULL).await?;
        if !stored.is_null() {
            g.sched_reclaim(stored).await?;
        }
    }
    Ok(())
}

/// Checks the requests of a slot's counters.
///
/// # Errors
/// A description of the contradiction.
pub fn explain(calls: &[Call]) -> Result<(), String> {
    let (mut counters, mut executed) = (BTreeMap::<u64, Vec<(u64, &Call, u64)>>::new(), 0);
    for call in calls {
        match call.returned {
            Some((_, NOT_EXECUTED)) => {}
            None | Some((_, UNKNOWN)) => executed += 1,
            Some((event, answer)) => {
                executed += 1;
                let (id, count) = (answer >> COUNT_BITS, answer & ((1 << COUNT_BITS) - 1));
                counters.entry(id).or_default().push((count, call, event));
            }
        }
    }
    let mut counted = 0;
    for (id, mut answers) in counters {
        answers.sort_by_key(|(count, ..)| *count);
        counted += answers.last().map_or(0, |(count, ..)| *count);
        if let Some(two) = answers.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(format!("counter {id} has answered {} twice", two[0].0));
        }
        let mut first_return = u64::MAX;
        for (count, call, event) in answers.into_iter().rev() {
            if first_return < call.invoked {
                return Err(format!("counter {id} answered more than {count} before that was requested"));
            }
            first_return = first_return.min(event);
        }
    }
    if counted > executed {
        return Err(format!("{counted} requests were executed, of {executed} that may have been"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structures::Operation;

    fn call(invoked: u64, returned: Option<(u64, u64)>) -> Call {
        Call { operation: Operation::Insert, key: 0, invoked, returned }
    }

    fn answer(id: u64, count: u64) -> u64 {
        id << COUNT_BITS | count
    }

    #[test]
    fn requests_that_were_executed_once_are_explained() {
        let calls = [
            call(1, Some((4, answer(7, 2)))),
            call(2, Some((3, answer(7, 1)))),
            call(5, Some((6, UNKNOWN))),
            call(7, None),
            call(8, Some((9, answer(7, 5)))),
            call(10, Some((11, NOT_EXECUTED))),
            call(12, Some((13, answer(8, 1)))),
        ];
        assert_eq!(explain(&calls), Ok(()));
    }

    #[test]
    fn a_request_that_was_executed_twice_or_out_of_order_is_found() {
        let twice = [call(1, Some((2, answer(7, 1)))), call(3, Some((4, answer(7, 3))))];
        assert!(explain(&twice).unwrap_err().contains("3 requests were executed, of 2"));
        let same = [call(1, Some((2, answer(7, 1)))), call(1, Some((4, answer(7, 1))))];
        assert!(explain(&same).unwrap_err().contains("answered 1 twice"));
        let late = [call(1, Some((2, answer(7, 2)))), call(3, Some((4, answer(7, 1))))];
        assert!(explain(&late).unwrap_err().contains("more than 1 before"));
        let denied = [call(1, Some((2, NOT_EXECUTED))), call(3, Some((4, answer(7, 2))))];
        assert!(explain(&denied).unwrap_err().contains("2 requests were executed, of 1"));
    }

    #[test]
    fn a_counter_counts() -> Result<()> {
        farfield::Cluster::connect("local:")?.run(1, async |ct| {
            let all = Tallies::shared(ct).await?;
            assert_eq!(count(all, 1, ct).await?, NOT_EXECUTED);
            entrust(all, 4, ct).await?;
            assert_eq!([count(all, 1, ct).await?, count(all, 1, ct).await?], [answer(4, 1), answer(4, 2)]);
            clear(all, ct).await?;
            assert_eq!(count(all, 1, ct).await?, NOT_EXECUTED);
            Ok(())
        })?;
        Ok(())
    }
}
