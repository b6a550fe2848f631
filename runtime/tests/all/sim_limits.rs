//! The limits of a simulated run. A larger run is refused before it begins.

use std::sync::atomic::{AtomicBool, Ordering};

use farfield::prelude::*;

#[remote]
struct Counter {
    value: Atomic<u64>,
}

/// Returns the refusal of a run, after checking that no thread has begun and no virtual time has passed.
fn refused(url: &str, threads: usize) -> String {
    let cluster = Cluster::connect(url).unwrap();
    let simulation = cluster.simulation().unwrap();
    let (before, began) = (simulation.trace_hash(), AtomicBool::new(false));
    let run = cluster.run(threads, async |_| {
        began.store(true, Ordering::Relaxed);
        Ok(())
    });
    let refused = run.unwrap_err().to_string();
    assert!(!began.load(Ordering::Relaxed), "{refused}");
    assert_eq!((simulation.trace_hash(), simulation.operations()), (before, 0), "{refused}");
    refused
}

#[test]
fn a_run_that_is_too_large_is_refused_before_it_begins() {
    assert_eq!(
        refused("sim:", 100_000),
        "threads is 100000 on 100000 compute nodes: a cluster has epoch slots for 16510 compute nodes; raise the option \
         `threads-per-node`"
    );
    assert!(refused("sim:threads-per-node=2", 33_021).contains("33021 on 16511 compute nodes"));
    assert!(refused("sim:threads-per-node=100", 262_145).contains("at most 262144 threads"));
    assert!(refused("sim:size=64KiB", 1000).contains(
        "threads is 1000 on 1000 compute nodes: their epoch slots do not fit in segment 0; raise the option `size` or \
         `threads-per-node`"
    ));
    assert!(refused("sim:", 0).contains("at least one thread"));
}

/// Two thousand threads meet and count, on as many compute nodes and on few.
#[test]
fn thousands_of_threads_count() {
    for threads_per_node in [1, 100] {
        let cluster = Cluster::connect(&format!("sim:threads-per-node={threads_per_node}")).unwrap();
        let counts = cluster
            .run(2000, async |ct| {
                let counter = async || Counter::new_in(ct, Counter::init()).await?.write(ct).await;
                let counter = ct.root_or_init("counter", counter).await?;
                counter.value().fetch_add(ct, 1).await?;
                ct.barrier("counted").await?;
                counter.value().load(ct).await
            })
            .unwrap();
        assert_eq!(counts, [2000; 2000]);
    }
}
