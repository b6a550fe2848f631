use farfield::prelude::*;

#[remote]
struct Node {
    key: u64,
    #[cfg(test)]
    probes: Atomic<u64>,
}

fn main() {}
