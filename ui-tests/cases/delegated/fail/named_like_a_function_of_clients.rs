use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn open(&mut self) {
        self.0 = 0;
    }
}

fn main() {}
