use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn add(&mut self, n: impl Into<u64>) {
        self.0 += n.into();
    }
}

fn main() {}
