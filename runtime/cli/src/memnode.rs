//! `farfield memnode`: hosts segments.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use farfield::rdma::{MemoryNode, MemoryNodeOptions};
use farfield::{Error, Result};

/// What to host, where, and for whom.
#[derive(Args)]
pub(crate) struct Options {
    /// Where to listen: an address of the RDMA device to use, and a port (0: any)
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// How many segments
    #[arg(long, default_value_t = 1, value_name = "N")]
    segments: usize,
    /// The size of each, such as 64MiB or 1GiB
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = farfield::parse_size)]
    segment_size: u64,
    /// The file with the cluster's secret, readable by its owner only
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut node = MemoryNodeOptions::new(options.listen, options.segments, options.segment_size);
    node.secret_file.clone_from(&options.secret_file);
    let node = MemoryNode::listen(&node)?;
    let stopper = node.stopper()?;
    ctrlc::set_handler(move || stopper.stop()).map_err(Error::other)?;
    let address = SocketAddr::new(options.listen.ip(), node.port());
    let secret = if options.secret_file.is_some() { "" } else { ", for anybody: no --secret-file" };
    println!(
        "memory node on rdma://{address}: {} segments of {} bytes, device {}{secret}",
        options.segments,
        options.segment_size,
        node.device()
    );
    node.serve()?;
    println!("stopped");
    Ok(())
}
