use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn get(&self) -> Option<&u64> {
        Some(&self.0)
    }
}

fn main() {}
