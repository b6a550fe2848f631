//! Ten million insertions into a lazy list and removals from it, in a heap of twice the live set.
//!
//! Prints the growth of the used heap from the first tenth of the run to its end, and the bytes of live objects at the end that do
//! not belong to the list. Both are 0 if freed memory is reused.

use std::process::ExitCode;

use clap::Parser;
use farfield::prelude::*;
use farfield_examples::lazy_list::LazyList;

/// Measures growth and leaks of the heap over ten million insertions and removals in a heap of twice the live set
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Operations of all threads together
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(10..))]
    num_ops: u64,
    /// The number of possible keys; about half of them are in the list at any time
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(2..=1 << 20))]
    keys: u64,
    /// Compute threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
}

/// Bytes of a node, and of the list's root object.
const NODE_BYTES: u64 = 24;
const LIST_BYTES: u64 = 16;
/// Bytes of the control block and the chunk table of so small a segment, and of an incomplete last chunk.
const OVERHEAD_BYTES: u64 = 19_152 + 1024;

/// Live bytes of the memory node's only segment, and live and cached bytes together.
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
