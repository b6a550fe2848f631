use farfield::prelude::*;

struct Local(u64);

struct Counter(u64);

#[delegated]
impl Counter {
    fn add(&mut self, local: Local) {
        self.0 += local.0;
    }
}

fn main() {}
