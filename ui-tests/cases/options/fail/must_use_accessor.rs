#![deny(unused_must_use)]

use farfield::prelude::*;

#[remote]
struct Sensor {
    #[must_use = "a sensor's number is what it is known by"]
    id: u64,
}

fn look(sensor: &Sensor) {
    sensor.id();
}

fn main() {}
