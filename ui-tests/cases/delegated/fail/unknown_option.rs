use farfield::prelude::*;

struct Counter(u64);

#[delegated(name = Remote)]
impl Counter {
    fn get(&self) -> u64 {
        self.0
    }
}

fn main() {}
