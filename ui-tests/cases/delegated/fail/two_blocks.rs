use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn get(&self) -> u64 {
        self.0
    }
}

#[delegated(client = Setter)]
impl Counter {
    fn set(&mut self, n: u64) {
        self.0 = n;
    }
}

fn main() {}
