//! A bounded queue of many producers and many consumers, after Vyukov.
//!
//! Producers and consumers draw tickets from two counters. Ticket `t` uses slot `t % SLOTS`. A producer waits until the slot's turn is
//! `t`, a consumer until it is `t + 1`. So each value is dequeued once, and the values of one producer in their order.

use farfield::prelude::*;

/// The ring's capacity, smaller than the number of producing tasks.
const SLOTS: usize = 2;
/// The number of values of each producer.
const EACH: u64 = 5;

#[remote]
struct Slot {
    /// The ticket that may store a value, or one more than the ticket whose value is stored.
    turn: Atomic<u64>,
    value: Atomic<u64>,
}

#[remote]
struct Ring {
    /// The next tickets to store and to take a value.
    tail: Atomic<u64>,
    head: Atomic<u64>,
    slots: [Slot; SLOTS],
}

impl Ring {
    async fn create(ct: &ComputeThread) -> Result<RemotePtr<Self>> {
        let ring =
            Self::new_in(ct, Self::init(std::array::from_fn(|_| Slot::init()))).await?.write(ct).await?;
        for slot in 0..SLOTS {
            ring.slots().at(slot).turn().store(ct, slot as u64).await?;
        }
        Ok(ring)
    }

    /// Waits until a slot's turn is `turn`.
    async fn wait_for(&self, slot: usize, turn: u64, ct: &ComputeThread) -> Result<()> {
        let mut backoff = ct.backoff();
        while self.slots()[slot].turn().load(ct).await? != turn {
            backoff.wait().await;
        }
        Ok(())
    }

    /// Adds a value; waits while the ring is full.
    async fn put(&self, value: u64, ct: &ComputeThread) -> Result<()> {
        let ticket = self.tail().fetch_add(ct, 1).await?;
        let slot = ticket as usize % SLOTS;
        self.wait_for(slot, ticket, ct).await?;
        // One chain: a thread that sees the turn sees the value.
        let g = &ct.pin();
        let (slot, turn) = (self.slots()[slot], ticket + 1);
        g.chain((op::store(slot.value(), value), op::store(slot.turn(), turn))).submit().await.map(drop)
    }

    /// Removes and returns a value; waits while the ring is empty.
    async fn take(&self, ct: &ComputeThread) -> Result<u64> {
        let ticket = self.head().fetch_add(ct, 1).await?;
        let slot = ticket as usize % SLOTS;
        self.wait_for(slot, ticket + 1, ct).await?;
        let value = self.slots()[slot].value().load(ct).await?;
        self.slots()[slot].turn().store(ct, ticket + SLOTS as u64).await?;
        Ok(value)
    }
}

/// The values taken out: for each producer their sum, and a bit for each.
#[remote]
struct Taken {
    sums: [Atomic<u64>; 6],
    numbers: [Atomic<u64>; 6],
}

/// Even threads add numbers; odd threads remove as many.
async fn produce_and_consume(ct: &ComputeThread) -> Result<()> {
    let ring = Ring::attach(ct.root_or_init("ring", async || Ring::create(ct).await).await?, ct).await?;
    let taken = async || Taken::new_in(ct, Taken::init()).await?.write(ct).await;
    let taken = Taken::attach(ct.root_or_init("taken", taken).await?, ct).await?;
    let producer = ct.index() as u64;
    if producer & 1 == 0 {
        for number in 0..EACH {
            ring.put(producer << 32 | number, ct).await?;
        }
    } else {
        let mut last = [None; 6];
        for _ in 0..EACH {
            let value = ring.take(ct).await?;
            let (producer, number) = ((value >> 32) as usize, value & 0xffff_ffff);
            assert!(last[producer] < Some(number), "in the order of producer {producer}");
            last[producer] = Some(number);
            taken.sums()[producer].fetch_add(ct, number).await?;
            taken.numbers()[producer].fetch_or(ct, 1 << number).await?;
        }
    }
    ct.barrier("done").await?;
    for producer in 0..6 {
        let (sum, numbers) = if producer & 1 == 0 { (10, 0b11111) } else { (0, 0) };
        assert_eq!(taken.sums()[producer].load(ct).await?, sum, "of producer {producer}, once each");
        assert_eq!(taken.numbers()[producer].load(ct).await?, numbers, "all of producer {producer}");
    }
    Ok(())
}

#[test]
fn on_threads() -> Result<()> {
    for url in ["local:", "local:delay=3"] {
        Cluster::connect(url)?.run(6, produce_and_consume)?;
    }
    Ok(())
}

#[farfield::test(sim, seeds = 0..200, threads = 6)]
async fn simulated(ct: &ComputeThread) -> Result<()> {
    produce_and_consume(ct).await
}
