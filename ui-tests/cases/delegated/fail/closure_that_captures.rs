use farfield::prelude::*;

async fn add(ct: &ComputeThread, counter: &Trust<u64>, n: u64) -> Result<u64> {
    counter
        .apply(ct, (), |count, ()| {
            *count += n;
            *count
        })
        .await
}

fn main() {}
