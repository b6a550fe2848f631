//! A process that operates on all structures until it is stopped or killed.

use std::path::Path;

use farfield::{Cluster, ComputeThread, Error, RemotePtr, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::log::{Log, value_of};
use super::tally::{self, Tallies};
use crate::structures::{HALF, Operation, Structures, Target};

/// Number of operations between two checks of the stop flag.
const OPERATIONS_PER_CHECK: u32 = 16;

/// Performs [operations](Target::operations) at random, and logs them. The process is a trustee of a
/// counter, too, and requests those of others.
///
/// # Errors
/// Those of the structures, and of the log.
pub fn work(url: &str, log: &Path, seed: u64) -> Result<()> {
    let cluster = Cluster::connect(url)?;
    cluster.run(1, async |ct| {
        let mut log = Log::create(log).map_err(Error::other)?;
        let all = Structures::attach(ct).await?;
        let mut rng = SmallRng::seed_from_u64(seed);
        let tallies = Tallies::shared(ct).await?;
        let event = all.event(ct).await?;
        tally::entrust(tallies, event + 1, ct).await?;
        while all.control.stop().load(ct).await? == 0 {
            for _ in 0..OPERATIONS_PER_CHECK {
                let target = Target::ALL[rng.random_range(0..Target::ALL.len())];
                if target == Target::Tallies {
                    request(&all, tallies, &mut log, rng.random_range(0..target.keys()), ct).await?;
                    continue;
                }
                let operations = target.operations();
                let operation = operations[rng.random_range(0..operations.len())];
                let key = rng.random_range(0..target.keys());
                let answer = perform(&all, &mut log, target, operation, key, ct).await?;
                if target == Target::Records && answer == HALF {
                    // A half-written record is replaced.
                    perform(&all, &mut log, target, Operation::Insert, key, ct).await?;
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Requests a delegated counter, and logs that.
async fn request(
    all: &Structures,
    tallies: RemotePtr<Tallies>,
    log: &mut Log,
    slot: u64,
    ct: &ComputeThread,
) -> Result<()> {
    let event = all.event(ct).await?;
    log.invoked(event, Target::Tallies, Operation::Insert, slot).map_err(Error::other)?;
    let answer = tally::count(tallies, slot, ct).await?;
    let event = all.event(ct).await?;
    log.returned(event, answer).map_err(Error::other)
}

/// Performs an operation and logs it.
async fn perform(
    all: &Structures,
    log: &mut Log,
    target: Target,
    operation: Operation,
    key: u64,
    ct: &ComputeThread,
) -> Result<u64> {
    let event = all.event(ct).await?;
    log.invoked(event, target, operation, key).map_err(Error::other)?;
    let answer = all.perform(target, operation, key, value_of(event), ct).await?;
    let event = all.event(ct).await?;
    log.returned(event, answer).map_err(Error::other)?;
    Ok(answer)
}
