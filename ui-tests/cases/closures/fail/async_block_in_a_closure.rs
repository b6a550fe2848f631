use farfield::prelude::*;

fn main() -> farfield::Result<()> {
    let cluster = Cluster::connect("local:")?;
    cluster.run(4, |ct| async move {
        ct.barrier("here").await
    })?;
    Ok(())
}
