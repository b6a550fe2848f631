use farfield::prelude::*;

#[remote]
struct Sensor {
    #[accessor(this)]
    value: u64,
}

fn main() {}
