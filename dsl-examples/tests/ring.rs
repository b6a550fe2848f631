//! The ring under the simulator, against a sequential model.

use std::collections::VecDeque;

use farfield::Result;
use farfield::prelude::*;
use farfield_collections::{Ring, RingRoot};
use farfield_testing::{Checker, Faults, Model, Random, Tested};

/// So small that it is full, empty, and in another round, in each run.
const CAPACITY: u64 = 2;

struct BoundedQueue;

#[derive(Clone, Debug, PartialEq)]
enum Operation {
    Push(u64),
    Pop,
}

#[derive(Clone, Debug, PartialEq)]
enum Returned {
    Pushed(bool),
    Popped(Option<u64>),
}

impl Model for BoundedQueue {
    type Operation = Operation;
    type Returned = Returned;
    type State = VecDeque<u64>;

    fn step(items: &mut VecDeque<u64>, operation: &Operation) -> Returned {
        match operation {
            Operation::Push(item) => {
                let has_room = (items.len() as u64) < CAPACITY;
                if has_room {
                    items.push_back(*item);
                }
                Returned::Pushed(has_room)
            }
            Operation::Pop => Returned::Popped(items.pop_front()),
        }
    }
}

impl Tested for BoundedQueue {
    type Model = Self;
    type Structure = Ring<u64>;

    async fn open(ct: &ComputeThread) -> Result<Ring<u64>> {
        let ring = async || Ring::<u64>::create(CAPACITY, ct).await;
        Ring::attach(ct.root_or_init("ring", ring).await?, ct).await
    }

    async fn perform(ring: &Ring<u64>, operation: &Operation, ct: &ComputeThread) -> Result<Returned> {
        Ok(match operation {
            Operation::Push(item) => Returned::Pushed(ring.try_push(item, ct).await?),
            Operation::Pop => Returned::Popped(ring.try_pop(ct).await?),
        })
    }

    fn operation(random: &mut Random) -> Operation {
        if random.percent(50) { Operation::Push(random.fresh()) } else { Operation::Pop }
    }

    fn is_lock_free() -> bool {
        true
    }

    async fn verify(ring: &Ring<u64>, ct: &ComputeThread) -> Result<()> {
        assert!(ring.check(ct).await? <= CAPACITY);
        Ok(())
    }

    async fn destroy(ring: Ring<u64>, ct: &ComputeThread) -> Result<()> {
        ct.unpublish::<RingRoot<u64>>("ring").await?;
        ring.destroy(ct).await
    }
}

#[test]
fn a_ring_is_a_bounded_queue() {
    Checker::new().assert_sound::<BoundedQueue>();
}

#[test]
fn it_is_one_also_while_clients_die_and_links_are_cut() {
    Checker::new().faults(Faults::Injected).search_limit(5_000_000).assert_sound::<BoundedQueue>();
}

/// A bug: the hints are behind the slots, so a ring with an item may seem to be empty.
struct Hinted;

impl Tested for Hinted {
    type Model = BoundedQueue;
    type Structure = Ring<u64>;

    async fn open(ct: &ComputeThread) -> Result<Ring<u64>> {
        BoundedQueue::open(ct).await
    }

    async fn perform(ring: &Ring<u64>, operation: &Operation, ct: &ComputeThread) -> Result<Returned> {
        if *operation == Operation::Pop && ring.is_empty(ct).await? {
            return Ok(Returned::Popped(None));
        }
        BoundedQueue::perform(ring, operation, ct).await
    }

    fn operation(random: &mut Random) -> Operation {
        BoundedQueue::operation(random)
    }
}

#[test]
#[should_panic(expected = "1 failing")]
fn the_check_finds_an_answer_that_comes_from_the_hints() {
    Checker::new().assert_sound::<Hinted>();
}
