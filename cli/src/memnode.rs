//! `farfield memnode`: hosts segments.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use farfield::memory_node::{MemoryNode, MemoryNodeOptions};
use farfield::{Error, Result};

use crate::metrics;

/// Options of `farfield memnode`.
#[derive(Args)]
#[command(group(ArgGroup::new("where").required(true).multiple(true)))]
pub(crate) struct Options {
    /// Cluster to host in memory that processes of this machine share; with --listen tcp://… also for others
    #[arg(long, value_name = "shm:NAME", group = "where")]
    cluster: Option<String>,
    /// Network and address to listen at: tcp://ADDR:PORT or rdma://ADDR:PORT (port 0: any); the address selects the RDMA
    /// device. tcp://ADDR:PORT?encrypt=no serves clients with encrypt=no, too
    #[arg(long, value_name = "URL", group = "where")]
    listen: Vec<String>,
    /// Number of memory nodes that the segments are divided among; only with --cluster
    #[arg(long, default_value_t = 1, value_name = "N")]
    nodes: u16,
    /// Number of segments of each memory node
    #[arg(long, default_value_t = 1, value_name = "N")]
    segments: u16,
    /// Size of each segment, such as 64MiB or 1GiB
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = farfield::parse_size)]
    segment_size: u64,
    /// File with the cluster's secret, readable by its owner only
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Address to serve metrics at over HTTP: /metrics for Prometheus, /metrics.json
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// Reclaim memory of dead processes while others live; programs must then hold the unlinked objects that they keep
    /// without a guard
    #[arg(long)]
    sweep: bool,
    /// Longest time between two heartbeats of a process, in milliseconds; over a network a process is evicted after that
    #[arg(long, default_value_t = 2000, value_name = "MS")]
    lease: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(url) = options.cluster.as_ref().filter(|url| !url.starts_with("shm:")) {
        return Err(Error::other(format!("--cluster {url}: a memory node hosts `shm:NAME`")));
    }
    let ways: Vec<&String> = options.cluster.iter().chain(&options.listen).collect();
    let [first, ..] = *ways else {
        return Err(Error::other("give --cluster shm:NAME, --listen URL, or both"));
    };
    let mut node = MemoryNodeOptions::new(first);
    node.listen = ways.into_iter().cloned().collect();
    (node.nodes, node.segments, node.segment_bytes) = (options.nodes, options.segments, options.segment_size);
    node.secret_file.clone_from(&options.secret_file);
    node.lease = Duration::from_millis(options.lease);
    node.sweep = options.sweep;
    let node = MemoryNode::listen(&node)?;
    let stopper = node.stopper()?;
    ctrlc::set_handler(move || stopper.stop()).map_err(Error::other)?;
    let metrics = options.metrics.map(|address| metrics::serve(address, node.observer())).transpose()?;
    print_line!("{}", description(options, &node));
    if let Some(address) = metrics {
        print_line!("metrics on http://{address}/metrics");
    }
    node.serve()?;
    print_line!("stopped");
    Ok(())
}

/// Describes what it serves, and to whom.
fn description(options: &Options, node: &MemoryNode) -> String {
    let Options { nodes, segments, segment_size, .. } = options;
    let divided = if *nodes == 1 { String::new() } else { format!("{nodes} times ") };
    let device = node.device().map(|device| format!(", device {device}")).unwrap_or_default();
    let is_plain = options.listen.iter().any(|url| url.ends_with("?encrypt=no"));
    format!(
        "memory node on {}: {divided}{segments} segments of {segment_size} bytes{device}{}{}",
        node.urls().join(" and "),
        if is_plain { ", also without encryption" } else { "" },
        if options.secret_file.is_some() {
            ""
        } else {
            ", for all processes that reach it: no --secret-file"
        }
    )
}
