#[farfield::main]
async fn main() -> farfield::Result<()> {
    Ok(())
}
