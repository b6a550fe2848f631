//! Keepers that fail.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::cluster::served::Served;

/// The number of next ticks of `PANICKY`'s keepers that will panic.
static PANICS: AtomicU32 = AtomicU32::new(0);
const PANICKY: &str = "panicky";

pub(super) fn panic_if_told(ct: &ComputeThread) {
    if ct.cluster().url().contains(PANICKY) {
        let left = PANICS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "planted by a test");
    }
}

/// Waits for an effect of the keeper.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        farfield_fabric::host::sleep(Duration::from_millis(1));
    }
    panic!("{what}");
}

/// Returns the heartbeats of all processes, this one's first.
fn heartbeats(cluster: &Cluster) -> Vec<u32> {
    let mut members = cluster.run(1, async |ct| ct.status().await).unwrap().remove(0).members;
    members.sort_by_key(|member| !member.is_this);
    members.iter().map(|member| member.heartbeats).collect()
}

#[test]
fn a_keeper_that_panics_is_replaced_and_counted() {
    let served = Served::new(PANICKY);
    let cluster = served.connect();
    assert_eq!(cluster.keeper_failures(), KeeperFailures::default());
    PANICS.store(2, Ordering::SeqCst);
    wait_until("both panics are counted", || cluster.keeper_failures().panics == 2);
    let last = cluster.keeper_failures().last;
    assert_eq!(last, "the keeper has panicked: planted by a test");
    let before = heartbeats(&cluster);
    wait_until("the third keeper sends heartbeats", || heartbeats(&cluster) != before);
    // It has the process's record and releases it.
    drop(cluster);
    assert_eq!(heartbeats(&served.connect()).len(), 1, "no record remains");
}

#[test]
fn an_invalid_word_of_the_runtime_is_reported_and_the_keeper_continues() {
    let served = Served::new("senseless");
    let cluster = served.connect();
    // The word's address, an invalid value, and the word's name in the error.
    let words = [
        (control::used_epoch_slots(), 1 << 35, "used epoch slots"),
        (control::epoch(), 0, "epoch"),
        (control::epoch(), u64::MAX, "epoch"),
        (control::member(7), u64::MAX, "state of a member"),
        (control::member(7), 3 << 32, "state of a member"),
    ];
    for (at, word, what) in words {
        let was = cluster.run(1, async |ct| {
            let was = ct.read_word(at).await?;
            ct.write_word(at, word).await?;
            Ok(was)
        });
        let was = was.unwrap()[0];
        wait_until(what, || {
            cluster.keeper_failures().last.contains(&format!("the {what} at {at} is {word:#x}"))
        });
        let status = cluster.run(1, async |ct| {
            let status = ct.status().await.map(drop);
            ct.write_word(at, was).await?;
            Ok(status)
        });
        assert!(matches!(status.unwrap()[0], Err(Error::Corrupted(_))), "{what}");
        let before = heartbeats(&cluster);
        wait_until("the keeper continues", || heartbeats(&cluster) != before);
    }
    assert_eq!(cluster.keeper_failures().panics, 0);
}

#[test]
fn a_process_that_can_not_join_leaves_no_record() {
    let served = Served::new("options");
    let first = served.connect();
    let options = control::options();
    first.run(1, async |ct| ct.write_word(options, 1 << 9).await).unwrap();
    let error = Cluster::connect(&served.url).unwrap_err();
    assert!(error.to_string().contains("the options at"), "{error}");
    first.run(1, async |ct| ct.write_word(options, 0).await).unwrap();
    assert_eq!(heartbeats(&first).len(), 1);
    assert_eq!(first.run(1, async |ct| ct.read_word(control::evictions()).await).unwrap(), [0]);
}
