//! The simulator as a fabric.

use std::cell::Cell;
use std::sync::Arc;

use farfield_fabric::conformance::{self, Fabric, GEOMETRY};
use farfield_fabric::host::Arena;

use super::*;

mod hosted;

/// With the largest jitter, so that only the fabric's own ordering keeps chains in order.
#[test]
fn the_simulator_conforms() {
    for seed in 0..20 {
        conformance::check(|| {
            let mut options = SimConfig::default();
            assert_eq!(options.set("jitter", "100%"), Ok(true));
            let arena = Arc::new(Arena::new(GEOMETRY).unwrap());
            let mut world = World::new(options, GEOMETRY, arena, seed, None);
            world.admit(64);
            let (world, next) = (SharedWorld::new(world), Cell::new(0));
            Fabric::new(move || Sim::new(world.clone(), next.replace(next.get() + 1)))
        });
    }
}
