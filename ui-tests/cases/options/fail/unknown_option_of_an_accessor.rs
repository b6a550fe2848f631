use farfield::prelude::*;

#[remote]
struct Sensor {
    #[accessor(name = "count")]
    read: u64,
}

fn main() {}
