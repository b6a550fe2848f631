use farfield::prelude::*;

struct Counter(u64);

impl Counter {
    fn plus(&self, n: u64) -> u64 {
        self.0 + n
    }
}

async fn plus(ct: &ComputeThread, counter: &Trust<Counter>) -> Result<u64> {
    counter.apply(ct, 5, Counter::plus).await
}

fn main() {}
