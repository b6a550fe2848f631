//! Members that die, in the simulator.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::segment::record::all_places;
use crate::session::Cluster;
use farfield_sim::Fault;

#[test]
fn states_survive_encoding() {
    let taken = [0, 7, u32::MAX - 1].map(RecordState::Taken);
    let evicting = [(0, 0), (0, 7), (u32::MAX - 1, 0)]
        .map(|(process, evictor)| RecordState::Evicting { process, evictor });
    for state in [RecordState::Free].into_iter().chain(taken).chain(evicting) {
        assert_eq!(RecordState::from_word(state.to_word()), Some(state));
    }
    assert_eq!(RecordState::Free.to_word(), 0);
    assert_eq!(RecordState::from_word(1 << 32), None, "an evictor without a process");
}

/// Another process takes a free record before it writes the record's words.
#[cfg(target_os = "linux")]
#[test]
fn a_free_record_names_no_group() {
    use std::sync::Mutex;

    use crate::memory_node::{MemoryNode, MemoryNodeOptions};
    use farfield_fabric::host::{ThreadReservation, run_threads};

    let mut options = MemoryNodeOptions::new(&format!("shm:free-records-{}", std::process::id()));
    options.segment_bytes = 1 << 20;
    let node = MemoryNode::listen(&options).unwrap();
    let (stopper, url) = (node.stopper().unwrap(), options.listen[0].clone());
    let node = Mutex::new(Some(node));
    let in_threads = |body: &(dyn Fn(usize) + Sync)| {
        run_threads(&ThreadReservation::new(2).unwrap(), body, |_| {}).unwrap();
    };
    let part = |part| {
        let cluster = Cluster::connect(&url).unwrap().in_group("pair", part as u16, 2).unwrap();
        let ran = cluster.run(1, async |ct| {
            let member = ct.process.member().expect("there are others");
            assert_ne!(ct.read_word(Record::group(member.record())).await?, 0);
            ct.barrier("met").await
        });
        ran.unwrap();
    };
    in_threads(&|thread| {
        if thread == 0 {
            return node.lock().unwrap().take().unwrap().serve().unwrap();
        }
        // Also if a part fails.
        let _stops = StopAtEnd(&stopper);
        in_threads(&part);
        let checked = Cluster::connect(&url).unwrap().run(1, async |ct| {
            for number in 0..4 {
                let named = ct.read_word(Record::group(Places::here(number).record)).await?;
                assert_eq!(named, 0, "record {number}");
            }
            Ok(())
        });
        checked.unwrap();
    });
}

#[cfg(target_os = "linux")]
struct StopAtEnd<'a>(&'a farfield_fabric::Stopper);

#[cfg(target_os = "linux")]
impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Processes die, and evictors die while they evict. In the end no dead process has a record, and a slot whose record is free is 0.
#[test]
fn a_dead_process_is_evicted_once_even_if_evictors_die() {
    let (mut evicted, mut died) = (0, 0);
    let seeds = if cfg!(debug_assertions) { 100 } else { 2000 };
    for seed in 0..seeds {
        let url = format!("sim:seed={seed},stall=15%,jitter=90%,leaks=ignore,dead=marked");
        let cluster = Cluster::connect(&url).unwrap();
        let simulation = cluster.simulation().unwrap();
        for compute in 0..4 {
            let chains = 10 + (seed * 31 + compute * 47) % 40;
            simulation.inject(Fault::crash(compute as usize).after_chains(chains));
        }
        // Keepers evict, too.
        let ended = cluster.run_surviving(6, async |ct| {
            for _ in 0..30 {
                ct.evict_gone(|_| false).await?;
                ct.try_reclaim().await;
                ct.yield_now().await;
            }
            Ok(())
        });
        let ended = ended.unwrap_or_else(|error| panic!("{url}: {error}"));
        died += ended.iter().filter(|ended| ended.is_none()).count();
        evicted += cluster.shared.world().unwrap().lock().peek(control::evictions());
        // New processes take the places of dead ones, and the epoch advances.
        let checked = cluster.run(6, async |ct| {
            ct.evict_gone(|_| false).await?;
            ct.barrier("evicted").await?;
            let members = ct.members().await?;
            assert!(members.iter().all(|member| !member.is_gone()), "{url}: {members:?}");
            let before = ct.reclamation().await?.epoch;
            while ct.reclamation().await?.epoch < before + 3 {
                ct.try_reclaim().await;
                ct.yield_now().await;
            }
            let member = ct.process.member().expect("there are others");
            let state = ct.read_word(member.record()).await?;
            assert_eq!(
                state,
                RecordState::Taken(member.identity).to_word(),
                "{url}: a record was taken from its process"
            );
            Ok(())
        });
        checked.unwrap_or_else(|error| panic!("{url}: {error}"));
        let world = cluster.shared.world().unwrap().lock();
        for places in all_places(|at| world.peek(at)) {
            if world.peek(places.record) == 0 {
                assert_eq!(world.peek(places.slot), 0, "{url}: {places:?}");
            }
        }
    }
    assert!(
        died as u64 == 4 * seeds && evicted >= died as u64,
        "{died} died, {evicted} evictions by the survivors"
    );
}

/// The link of the only survivor is cut while it evicts. In the end it has evicted the dead process, and counted it once.
#[test]
fn an_eviction_that_an_error_interrupts_is_finished() {
    let (interrupted, seeds) = (AtomicUsize::new(0), if cfg!(debug_assertions) { 200 } else { 2000 });
    for seed in 0..seeds {
        let url = format!("sim:seed={seed},stall=15%,jitter=90%,leaks=ignore,dead=marked");
        let cluster = Cluster::connect(&url).unwrap();
        let simulation = cluster.simulation().unwrap();
        let ended = cluster.run_surviving(2, async |ct| {
            let (fault, after_ns) = match ct.index() {
                0 => (Fault::cut(0, 0, Duration::from_micros(150)), 977 * seed % 60_000),
                dies => (Fault::crash(dies), 311 * seed % 60_000),
            };
            simulation.inject(fault.at(ct.now() + Duration::from_nanos(after_ns)));
            for _ in 0..200 {
                // The keeper, another task of the thread, evicts, too.
                let has_failed = ct.evict_gone(|_| false).await.is_err();
                let unfinished = ct.unfinished_evictions.take();
                let is_interrupted = has_failed && unfinished.as_ref().is_some_and(|list| !list.is_empty());
                interrupted.fetch_add(is_interrupted.into(), Ordering::Relaxed);
                ct.unfinished_evictions.set(unfinished);
                ct.sleep(Duration::from_micros(5)).await;
            }
            let members = ct.members().await?;
            assert!(members.iter().all(|member| !member.is_gone()), "{url}: {members:?}");
            Ok(())
        });
        let ended = ended.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(ended, [Some(()), None], "{url}");
        let evictions = cluster.shared.world().unwrap().lock().peek(control::evictions());
        assert_eq!(evictions, 1, "{url}");
    }
    let interrupted = interrupted.into_inner();
    assert!(interrupted > 10, "{interrupted} evictions were interrupted");
}
