use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    fn add<N: Into<u64>>(&mut self, n: N) {
        self.0 += n.into();
    }
}

fn main() {}
