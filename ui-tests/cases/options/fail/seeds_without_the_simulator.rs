use farfield::prelude::*;

#[farfield::test(seeds = 0..10)]
async fn seeded(_: &ComputeThread) {}

fn main() {}
