//! `farfield memnode`: hosts segments.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
#[cfg(feature = "_verbs")]
use farfield::rdma;
use farfield::{Error, Result, shm, tcp};

use crate::metrics;

/// Options of `farfield memnode`.
#[derive(Args)]
#[command(group(ArgGroup::new("where").required(true)))]
pub(crate) struct Options {
    /// Cluster to host, in memory that processes of this machine share
    #[arg(long, value_name = "shm:NAME", group = "where")]
    cluster: Option<String>,
    /// Network and address to listen at: tcp://ADDR:PORT or rdma://ADDR:PORT (port 0: any); the address selects the RDMA
    /// device. tcp://ADDR:PORT?encrypt=no serves clients with encrypt=no, too
    #[arg(long, value_name = "URL", group = "where")]
    listen: Option<String>,
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
    match (&options.cluster, &options.listen) {
        (Some(url), _) => share(options, url),
        (None, Some(url)) => listen(options, url),
        (None, None) => Err(Error::other("give --cluster shm:NAME or --listen URL")),
    }
}

/// Listens at an address of a network.
fn listen(options: &Options, url: &str) -> Result<()> {
    let invalid = |reason: &str| Error::other(format!("--listen {url}: {reason}"));
    let (network, address) =
        url.split_once("://").ok_or_else(|| invalid("write tcp://ADDR:PORT or rdma://ADDR:PORT"))?;
    let (address, option) = address.split_once('?').unwrap_or((address, ""));
    let address =
        address.parse().map_err(|_| invalid("it is not an address and a port, as 10.0.0.7:7000"))?;
    match (network, option) {
        ("tcp", "" | "encrypt=yes") => serve_tcp(options, address, false),
        ("tcp", "encrypt=no") => serve_tcp(options, address, true),
        ("tcp", _) => Err(invalid("its only option is `encrypt`, `yes` or `no`")),
        ("rdma", "") => serve_rdma(options, address),
        ("rdma", _) => Err(invalid("it has no options")),
        _ => Err(invalid("a memory node listens on `tcp` or `rdma`")),
    }
}

/// Prints a line. A closed pipe is no error: the memory node continues.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Hosts a cluster in shared memory.
fn share(options: &Options, url: &str) -> Result<()> {
    let Some(name) = url.strip_prefix("shm:") else {
        return Err(Error::other(format!("--cluster {url}: a memory node hosts `shm:NAME`")));
    };
    let mut node = shm::MemoryNodeOptions::new(name);
    (node.nodes, node.segments, node.segment_bytes) = (options.nodes, options.segments, options.segment_size);
    node.secret_file.clone_from(&options.secret_file);
    node.lease = Duration::from_millis(options.lease);
    node.sweep = options.sweep;
    let node = shm::MemoryNode::listen(&node)?;
    let stopper = node.stopper()?;
    ctrlc::set_handler(move || stopper.stop()).map_err(Error::other)?;
    let metrics = options.metrics.map(|address| metrics::serve(address, node.observer())).transpose()?;
    print_line(&format!(
        "memory node of {url}: {} times {} segments of {} bytes{}",
        options.nodes,
        options.segments,
        options.segment_size,
        if options.secret_file.is_some() { "" } else { ", for all processes of this user: no --secret-file" }
    ));
    if let Some(address) = metrics {
        print_line(&format!("metrics on http://{address}/metrics"));
    }
    node.serve();
    print_line("stopped");
    Ok(())
}

/// Listens for TCP connections.
fn serve_tcp(options: &Options, address: SocketAddr, serves_plain: bool) -> Result<()> {
    let mut node = tcp::MemoryNodeOptions::new(address, usize::from(options.segments), options.segment_size);
    node.secret_file.clone_from(&options.secret_file);
    node.lease = Duration::from_millis(options.lease);
    node.sweep = options.sweep;
    node.serves_plain = serves_plain;
    let node = tcp::MemoryNode::listen(&node)?;
    let stopper = node.stopper()?;
    ctrlc::set_handler(move || stopper.stop()).map_err(Error::other)?;
    let metrics = options.metrics.map(|at| metrics::serve(at, node.observer())).transpose()?;
    print_line(&format!(
        "memory node on tcp://{}: {} segments of {} bytes{}{}",
        SocketAddr::new(address.ip(), node.port()),
        options.segments,
        options.segment_size,
        if serves_plain { ", also without encryption" } else { "" },
        if options.secret_file.is_some() {
            ""
        } else {
            ", for all clients of this machine: no --secret-file"
        }
    ));
    if let Some(address) = metrics {
        print_line(&format!("metrics on http://{address}/metrics"));
    }
    node.serve()?;
    print_line("stopped");
    Ok(())
}

/// Listens for RDMA connections.
#[cfg(feature = "_verbs")]
fn serve_rdma(options: &Options, address: SocketAddr) -> Result<()> {
    let mut node = rdma::MemoryNodeOptions::new(address, usize::from(options.segments), options.segment_size);
    node.secret_file.clone_from(&options.secret_file);
    node.lease = Duration::from_millis(options.lease);
    node.sweep = options.sweep;
    let node = rdma::MemoryNode::listen(&node)?;
    let stopper = node.stopper()?;
    ctrlc::set_handler(move || stopper.stop()).map_err(Error::other)?;
    let metrics = options.metrics.map(|at| metrics::serve(at, node.observer())).transpose()?;
    let address = SocketAddr::new(address.ip(), node.port());
    print_line(&format!(
        "memory node on rdma://{address}: {} segments of {} bytes, device {}{}",
        options.segments,
        options.segment_size,
        node.device(),
        if options.secret_file.is_some() { "" } else { ", for all clients: no --secret-file" }
    ));
    if let Some(address) = metrics {
        print_line(&format!("metrics on http://{address}/metrics"));
    }
    node.serve()?;
    print_line("stopped");
    Ok(())
}

#[cfg(not(feature = "_verbs"))]
fn serve_rdma(_: &Options, _: SocketAddr) -> Result<()> {
    Err(Error::other("this build has no RDMA: --listen rdma:// needs `--features verbs`"))
}
