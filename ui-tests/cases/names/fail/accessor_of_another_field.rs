use farfield::prelude::*;

#[remote]
struct Sensor {
    value: u64,
    #[accessor(value)]
    read: u64,
}

fn main() {}
