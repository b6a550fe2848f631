use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn add(&mut self, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) {
        self.0 += a + b + c + d + e + f + g;
    }
}

fn main() {}
