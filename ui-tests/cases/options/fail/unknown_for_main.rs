use farfield::prelude::*;

#[farfield::main(nodes = 2)]
async fn main(ct: &ComputeThread) -> farfield::Result<()> {
    ct.barrier("done").await
}
