use farfield::prelude::*;

#[remote]
struct Counter<T: Copy> {
    value: Atomic<T>,
}

fn main() {}
