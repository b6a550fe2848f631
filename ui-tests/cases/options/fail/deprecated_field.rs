#![deny(deprecated)]

use farfield::prelude::*;

#[remote]
struct Sensor {
    #[deprecated = "use `samples`"]
    last: Atomic<u64>,
    samples: Atomic<u64>,
}

async fn load(sensor: RemotePtr<Sensor>, g: &Guard<'_>) -> farfield::Result<u64> {
    let seen = sensor.read(g).await?;
    Ok(sensor.last().load(g).await? + seen.last)
}

fn main() {
    let _ = Sensor::init().last(1);
}
