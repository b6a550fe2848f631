//! A process that works on all structures until it is told to stop, or killed.

use std::path::Path;

use farfield::{Cluster, ComputeThread, Error, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::log::{Log, value_of};
use crate::stage::{HALF, Operation, Structures, Which};

/// How many operations there are between two looks whether it is time to stop.
const OPERATIONS_PER_LOOK: u32 = 16;

/// Works, and logs what it does. Half of the operations put something in; the others take something out, or read a record.
///
/// # Errors
/// Those of the structures, and of the log.
pub fn work(url: &str, log: &Path, seed: u64) -> Result<()> {
    let cluster = Cluster::connect(url)?;
    cluster.run(1, async |ct| {
        let mut log = Log::create(log).map_err(Error::other)?;
        let all = Structures::attach(ct).await?;
        let mut rng = SmallRng::seed_from_u64(seed);
        while all.stage.stop().load(ct).await? == 0 {
            for _ in 0..OPERATIONS_PER_LOOK {
                let which = Which::ALL[rng.random_range(0..Which::ALL.len())];
                let other = if which == Which::Records { Operation::Get } else { Operation::Remove };
                let operation = if rng.random() { Operation::Insert } else { other };
                let key = rng.random_range(0..which.keys());
                let answer = perform(&all, &mut log, which, operation, key, ct).await?;
                if which == Which::Records && answer == HALF {
                    // Whoever finds a record like this writes it anew.
                    perform(&all, &mut log, which, Operation::Insert, key, ct).await?;
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Performs an operation and logs it.
async fn perform(
    all: &Structures,
    log: &mut Log,
    which: Which,
    operation: Operation,
    key: u64,
    ct: &ComputeThread,
) -> Result<u64> {
    let event = all.stage.events().fetch_add(ct, 1).await?;
    log.invoked(event, which, operation, key).map_err(Error::other)?;
    let answer = all.perform(which, operation, key, value_of(event), ct).await?;
    let event = all.stage.events().fetch_add(ct, 1).await?;
    log.returned(event, answer).map_err(Error::other)?;
    Ok(answer)
}
