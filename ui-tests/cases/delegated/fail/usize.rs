use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn add(&mut self, n: Vec<usize>) {
        self.0 += n.len() as u64;
    }
}

fn main() {}
