use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn new() -> Self {
        Self(0)
    }
}

fn main() {}
