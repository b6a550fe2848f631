//! Inserts into a lazy list and removes from it for ten million operations, in a heap that holds twice its live set.
//!
//! Prints how much more of the heap is used at the end than after the first tenth, and how many bytes of objects there are at the
//! end that are not the list's: both are 0 if memory that is freed serves again.

use std::process::ExitCode;

use clap::Parser;
use farfield::prelude::*;
use farfield_examples::lazy_list::LazyList;

/// What ten million insertions and removals leave behind in a heap that holds twice the live set
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Operations, of all threads
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(10..))]
    num_ops: u64,
    /// Keys are below this; half of them are there at any time, about
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    keys: u64,
    /// Compute threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
}

/// Bytes of a node, and of the list's own object.
const NODE_BYTES: u64 = 24;
const LIST_BYTES: u64 = 16;
/// The control block and the table of chunks of so small a segment, and what its last chunk may lack.
const OVERHEAD_BYTES: u64 = 19_152 + 1024;

/// Bytes of a memory node's only segment that objects are in, and those that are used for objects at all.
async fn used(ct: &ComputeThread) -> Result<(u64, u64)> {
    let nodes = ct.heap_use().await?;
    Ok((nodes[0].live_bytes, nodes[0].live_bytes + nodes[0].cached_bytes))
}

async fn update(set: &LazyList<u64>, keys: u64, operations: u64, ct: &ComputeThread) -> Result<()> {
    for _ in 0..operations {
        let key = ct.random_range(0..keys);
        let inserts: bool = ct.random();
        if inserts {
            set.insert(key, ct).await?;
        } else {
            set.remove(key, ct).await?;
        }
    }
    Ok(())
}

fn run(args: &Args) -> Result<()> {
    let live = (args.keys / 2 + 2) * NODE_BYTES + LIST_BYTES;
    let cluster =
        Cluster::connect(&format!("local:size={}", (OVERHEAD_BYTES + 2 * live).next_multiple_of(8)))?;
    let each = args.num_ops / args.threads;
    let grown = cluster.run(args.threads as usize, async |ct| {
        let root = ct.root_or_init("list", async || LazyList::<u64>::create(ct).await).await?;
        let set = LazyList::attach(root, ct).await?;
        if ct.index() == 0 {
            for key in (0..args.keys).step_by(2) {
                set.insert(key, ct).await?;
            }
        }
        ct.barrier("filled").await?;
        update(&set, args.keys, each / 10, ct).await?;
        ct.barrier("a tenth").await?;
        let before = used(ct).await?.1;
        ct.barrier("looked").await?;
        update(&set, args.keys, each - each / 10, ct).await?;
        ct.barrier("done").await?;
        Ok(used(ct).await?.1.saturating_sub(before))
    })?;
    let left = cluster.run(1, async |ct| {
        let set = LazyList::attach(ct.lookup::<LazyList<u64>>("list").await?, ct).await?;
        let nodes = set.iter(ct).await?.len() as u64 + 2;
        Ok((used(ct).await?.0, nodes * NODE_BYTES + LIST_BYTES))
    })?;
    let (live_bytes, expected) = left[0];
    println!("long_run.growth_bytes {}", grown[0]);
    println!("long_run.leaked_bytes {}", live_bytes.cast_signed() - expected.cast_signed());
    let metrics = cluster.metrics();
    println!("{} allocated, {} freed, {live_bytes} bytes live", metrics.allocated, metrics.freed);
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
