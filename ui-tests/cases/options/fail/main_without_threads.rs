use farfield::prelude::*;

#[farfield::main(threads = 0)]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    ct.barrier("done").await
}
