//! Round trips of an allocation, counted by the simulator.
//!
//! Remus takes an FAA and two WRITEs to allocate an object, and a READ to free it. Here a thread takes a chunk in three round trips
//! and divides it into blocks. It reuses the blocks that it frees, and other threads take surplus blocks, some 250 at a time.

use farfield::prelude::*;

const EXACT: &str = "sim:jitter=0%,bandwidth=inf,rate=inf,doorbell=0ns,compute=0,leaks=ignore";
const ALLOCATIONS: u64 = 10_000;

#[remote]
struct Object {
    words: [u64; 8],
}

/// The number of round trips of `work`, on one thread.
fn round_trips(work: impl AsyncFn(&ComputeThread) -> Result<()> + Sync) -> u64 {
    let took = Cluster::connect(EXACT).unwrap().run(1, async |ct| {
        let began = ct.now();
        work(ct).await?;
        let took = ct.now().saturating_sub(began).as_nanos();
        let rtt = ct.cluster().simulation().expect("it is simulated").rtt().as_nanos();
        assert!(took.is_multiple_of(rtt), "{took} ns are not a whole number of round trips");
        Ok((took / rtt) as u64)
    });
    took.unwrap()[0]
}

#[test]
fn growth_takes_three_round_trips_for_each_chunk() {
    let took = round_trips(async |ct| {
        let mut objects = Vec::new();
        for _ in 0..ALLOCATIONS {
            objects.push(Object::new_in(ct, Object::init([0; 8])).await?);
        }
        Ok(())
    });
    #[allow(clippy::cast_precision_loss)]
    let each = took as f64 / ALLOCATIONS as f64;
    println!("alloc.rtts_per_alloc {each:.5}");
    // A chunk of 16 KiB has 256 blocks of 64 bytes.
    assert_eq!(took, 3 * ALLOCATIONS.div_ceil(256), "{took} round trips for {ALLOCATIONS} allocations");
}

#[test]
fn a_steady_live_set_takes_none_after_its_growth() {
    let took = round_trips(async |ct| {
        let mut objects = std::collections::VecDeque::new();
        let mut grown = None;
        for turn in 0..ALLOCATIONS {
            objects.push_back(Object::new_in(ct, Object::init([turn; 8])).await?);
            if objects.len() > 100 {
                grown.get_or_insert(ct.metrics().faa);
                objects.pop_front();
            }
        }
        assert_eq!(grown, Some(ct.metrics().faa), "no FAA after the first 100");
        Ok(())
    });
    assert_eq!(took, 3, "for a chunk");
}

#[test]
fn blocks_of_another_process_take_three_for_a_page() {
    let url = format!("{EXACT},threads-per-node=1");
    let took = Cluster::connect(&url).unwrap().run(2, async |ct| {
        let mut took = [0, 0];
        for (turn, took) in took.iter_mut().enumerate() {
            if ct.index() != turn {
                ct.barrier("done").await?;
                continue;
            }
            let mut objects = Vec::new();
            let (began, before) = (ct.now(), ct.metrics());
            for _ in 0..ALLOCATIONS - 1000 * turn as u64 {
                objects.push(Object::new_in(ct, Object::init([0; 8])).await?);
            }
            let allocated = ct.now();
            if turn > 0 {
                assert_eq!((ct.metrics() - before).faa, 0, "no chunk is needed");
                *took = allocated.saturating_sub(began).as_nanos();
            } else {
                drop(objects);
                // Surplus blocks go back to the pool.
                ct.try_reclaim().await;
                ct.flush().await?;
                *took = ct.now().saturating_sub(allocated).as_nanos();
            }
            ct.barrier("done").await?;
        }
        let rtt = ct.cluster().simulation().expect("it is simulated").rtt().as_nanos();
        Ok(took.map(|took| (took / rtt) as u64))
    });
    let took = took.unwrap();
    println!("{} round trips for giving, {} for taking", took[0][0], took[1][1]);
    assert!(took[0][0] <= 20 && took[1][1] <= 9000 / 254 * 3 + 4, "{took:?}");
}
