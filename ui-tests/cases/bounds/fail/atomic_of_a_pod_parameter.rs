use farfield::prelude::*;

#[remote]
struct Counter<T: farfield::Pod> {
    value: Atomic<T>,
}

fn main() {}
