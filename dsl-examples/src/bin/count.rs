//! The program of the README, on the cluster in its argument, or on `local:`.
//!
//! `fn main() -> farfield::Result<()>` prints an error as one line, and exits with code 1.

use farfield::prelude::*;

/// A counter that every thread of the cluster can add to.
#[remote]
pub struct Counter {
    value: Atomic<u64>,
}

fn main() -> farfield::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "local:".to_owned());
    let cluster = Cluster::connect(&url)?;
    cluster.run(4, async |ct| {
        let root = ct
            .root_or_init("hits", async || Counter::new_in(ct, Counter::init()).await?.write(ct).await)
            .await?;
        root.value().fetch_add(ct, 1).await?;
        ct.barrier("counted").await?;
        assert_eq!(root.value().load(ct).await?, 4);
        Ok(())
    })?;
    Ok(())
}
