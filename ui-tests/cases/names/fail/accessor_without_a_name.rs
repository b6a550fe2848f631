use farfield::prelude::*;

#[remote]
struct Sensor {
    #[accessor]
    read: u64,
}

fn main() {}
