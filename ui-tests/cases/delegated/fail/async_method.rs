use farfield::prelude::*;

struct Counter(u64);

#[delegated]
impl Counter {
    async fn add(&mut self, n: u64) -> u64 {
        self.0 += n;
        self.0
    }
}

async fn its_use_is_no_error(counter: &CounterClient, ct: &ComputeThread) -> Result<u64> {
    counter.add(ct, 5).await
}

fn main() {}
