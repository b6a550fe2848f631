use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn add(&mut self, text: &str) {
        self.0 += text.len() as u64;
    }
}

fn main() {}
