//! `farfield evict`, `collect`, `checkpoint` and `restore`.

use std::path::PathBuf;

use clap::Args;
use farfield::error::Printable;
use farfield::{Cluster, Result};

use crate::inspect::on_one_thread;

/// Options of `farfield evict`.
#[derive(Args)]
pub(crate) struct EvictOptions {
    /// URL of the cluster, such as shm:NAME
    cluster: String,
    /// Number of the process, as `farfield status` shows it
    process: u32,
}

/// Options of `farfield collect`.
#[derive(Args)]
pub(crate) struct CollectOptions {
    /// URL of the cluster, such as shm:NAME
    #[arg(long)]
    cluster: String,
}

/// Options of `farfield checkpoint` and `farfield restore`.
#[derive(Args)]
pub(crate) struct FileOptions {
    /// URL of the cluster, such as shm:NAME
    cluster: String,
    /// File of the checkpoint
    file: PathBuf,
}

pub(crate) fn evict(options: &EvictOptions) -> Result<()> {
    let cluster = Cluster::connect(&options.cluster)?;
    on_one_thread(&cluster, async |ct| ct.evict(options.process).await)?;
    print_line!("evicted process {}", options.process);
    Ok(())
}

pub(crate) fn collect(options: &CollectOptions) -> Result<()> {
    let bytes = Cluster::collect(&options.cluster)?;
    print_line!("{bytes} bytes reclaimed");
    Ok(())
}

pub(crate) fn checkpoint(options: &FileOptions) -> Result<()> {
    let bytes = Cluster::connect(&options.cluster)?.checkpoint(&options.file)?;
    print_line!("wrote {bytes} bytes to {}", Printable(options.file.display()));
    Ok(())
}

pub(crate) fn restore(options: &FileOptions) -> Result<()> {
    Cluster::connect(&options.cluster)?.restore(&options.file)?;
    print_line!("restored {}", Printable(options.file.display()));
    Ok(())
}
