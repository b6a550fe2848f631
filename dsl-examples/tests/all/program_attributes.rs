//! A struct whose fields have attributes and names of generated methods.

#![deny(warnings, missing_docs)]

use farfield::prelude::*;

// ANCHOR: struct
/// A sensor.
#[remote]
pub struct Sensor {
    /// Its number.
    #[must_use]
    pub id: u64,
    /// The last measurement, of versions without samples.
    #[deprecated = "use `samples`"]
    pub last: Atomic<u64>,
    /// The measurements.
    pub samples: [Atomic<u64>; 4],
    #[doc(hidden)]
    pub internal: Atomic<u64>,
    #[allow(missing_docs)]
    pub raw_value: Atomic<u64>,
    /// How often it was read. The accessors have another name, because every pointer has a method `read`.
    #[accessor(read_count)]
    pub read: Atomic<u64>,
    /// Where it was calibrated.
    #[accessor(this_sensor)]
    pub this: u32,
    /// The initial value.
    #[accessor(initial)]
    pub init: u32,
}
// ANCHOR_END: struct

/// Uses a deprecated field, with an explicit `allow`.
#[allow(deprecated)]
async fn migrate(sensor: RemotePtr<Sensor>, g: &Guard<'_>) -> Result<u64> {
    let last = sensor.last().load(g).await?;
    sensor.samples().at(0).store(g, last).await?;
    Ok(last)
}

#[farfield::test]
async fn attributes_reach_the_accessors_and_any_name_works(ct: &ComputeThread) -> Result<()> {
    let new = Sensor::init(7, 8, 9).read(1).raw_value(5);
    let sensor = Sensor::new_in(ct, new).await?.write(ct).await?;
    let g = &ct.pin();
    assert_eq!(migrate(sensor, g).await?, 0);

    // ANCHOR: use
    sensor.read_count().fetch_add(g, 1).await?;
    let (reads, calibrated) = farfield::fetch!(g, sensor.{read_count, this_sensor}).await?;
    assert_eq!((reads, calibrated), (2, 8));
    let seen = sensor.read(g).await?;
    assert_eq!((seen.read, seen.this, seen.init, seen.raw_value), (2, 8, 9, 5));
    // ANCHOR_END: use

    let handle = Sensor::attach(sensor, ct).await?;
    assert_eq!((handle.id(), handle.this_sensor(), handle.initial()), (7, 8, 9));
    assert_eq!(handle.this(), sensor);
    assert_eq!(handle.internal().load(ct).await?, 0);

    // The snapshot is not bound to a guard, so a guard of the statement is enough.
    let seen = sensor.read(&ct.pin()).await?;
    assert_eq!(seen.id, 7);
    Ok(())
}
