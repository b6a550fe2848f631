use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn into_count(self) -> u64 {
        self.0
    }
}

fn main() {}
