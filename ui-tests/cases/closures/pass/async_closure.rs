use farfield::prelude::*;

fn main() -> farfield::Result<()> {
    let cluster = Cluster::connect("local:size=64KiB")?;
    let name = String::from("here");
    cluster.run(4, async |ct| {
        ct.barrier(&name).await?;
        ct.tasks(2, async |_| Ok(())).await?;
        Ok(())
    })?;
    Ok(())
}
