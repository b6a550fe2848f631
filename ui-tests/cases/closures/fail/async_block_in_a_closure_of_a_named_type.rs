use farfield::prelude::*;

fn main() -> farfield::Result<()> {
    let cluster = Cluster::connect("local:")?;
    cluster.run(4, |ct: &ComputeThread| async move {
        ct.barrier("here").await
    })?;
    Ok(())
}
