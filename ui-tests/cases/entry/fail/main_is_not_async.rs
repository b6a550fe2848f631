use farfield::prelude::*;

#[farfield::main]
fn main(ct: &ComputeThread) -> farfield::Result<()> {
    Ok(())
}
