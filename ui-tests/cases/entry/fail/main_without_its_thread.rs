use farfield::prelude::*;

#[farfield::main]
async fn main() -> farfield::Result<()> {
    Ok(())
}
