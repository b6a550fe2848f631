#![deny(unused_must_use)]

use farfield::prelude::*;

#[remote]
struct Sensor {
    #[must_use = "the number identifies the sensor"]
    id: u64,
}

fn look(sensor: &Sensor) {
    sensor.id();
}

fn main() {}
