//! Operations over RDMA between marks, so that a profiler counts their instructions: the same verbs as `raw_verbs --counted` posts.
//!
//! `counted_verbs URL COUNT` awaits 8-byte READs, WRITEs, CASs and FAAs one by one, `COUNT` of each, and then as many of each by 16 tasks of one
//! thread. It measures nothing itself: callgrind counts between [`count_begins`] and [`count_ends`].

use std::hint::black_box;
use std::process::ExitCode;

use farfield::prelude::*;
use farfield::{Error, Result};

/// The number of concurrent tasks.
const TASKS: u32 = 16;
/// The operations of each kind before the count, which fill caches and buffers.
const WARM: u32 = 64;

/// The object of the operations.
#[remote]
struct Target {
    word: Atomic<u64>,
}

/// A count begins after this call.
#[inline(never)]
fn count_begins() {
    black_box("begins");
}

/// A count ends before this call.
#[inline(never)]
fn count_ends() {
    black_box("ends");
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, cluster, count] = arguments.as_slice() else {
        eprintln!("usage: counted_verbs URL COUNT");
        return ExitCode::from(2);
    };
    let count = count.parse().map_err(|_| Error::other("COUNT is not a number"));
    match count.and_then(|count| run(cluster, count)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(cluster: &str, count: u32) -> Result<()> {
    let cluster = Cluster::connect(cluster)?;
    cluster.run(1, async |ct| {
        let target = Target::new_in(ct.on_node(0), Target::init()).await?.write(ct).await?;
        let word = target.word();
        for tasks in [1, TASKS] {
            for verb in 0..4 {
                for (is_counted, rounds) in [(false, WARM), (true, count / tasks)] {
                    if is_counted {
                        count_begins();
                    }
                    if tasks == 1 {
                        operate(ct, word, verb, rounds).await?;
                    } else {
                        ct.tasks(tasks as usize, async |_| operate(ct, word, verb, rounds).await).await?;
                    }
                    if is_counted {
                        count_ends();
                    }
                }
            }
        }
        ct.delete(target).await
    })?;
    Ok(())
}

/// Executes one verb `rounds` times: READ, WRITE, CAS or FAA.
async fn operate(ct: &ComputeThread, word: Place<'_, Atomic<u64>>, verb: u32, rounds: u32) -> Result<()> {
    for round in 0..u64::from(rounds) {
        match verb {
            0 => drop(word.load(ct).await?),
            1 => word.store(ct, round).await?,
            2 => drop(word.compare_exchange(ct, round, round + 1).await?),
            _ => drop(word.fetch_add(ct, 1).await?),
        }
    }
    Ok(())
}
