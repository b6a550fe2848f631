use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Drop for Counter {
    fn drop(&mut self) {}
}

fn main() {}
