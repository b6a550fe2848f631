use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    unsafe fn add(&mut self, n: u64) {
        self.0 += n;
    }
}

fn main() {}
