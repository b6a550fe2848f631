//! A process that works on two sets until it is told to stop, or killed.

use std::path::Path;

use farfield::{Cluster, Error, Result};
use farfield_examples::{HarrisList, LazyList};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::log::{Log, Operation, Which};
use super::{KEYS, attach};

/// How many operations there are between two looks whether it is time to stop.
const OPERATIONS_PER_LOOK: u32 = 16;

/// Works, and logs what it does. Half of the operations insert, half remove.
///
/// # Errors
/// Those of the sets, and of the log.
pub fn work(url: &str, log: &Path, seed: u64) -> Result<()> {
    let cluster = Cluster::connect(url)?;
    cluster.run(1, async |ct| {
        let mut log = Log::create(log).map_err(Error::other)?;
        let (stage, lazy, harris) = attach(ct).await?;
        let mut rng = SmallRng::seed_from_u64(seed);
        while stage.stop().load(ct).await? == 0 {
            for _ in 0..OPERATIONS_PER_LOOK {
                let which = if rng.random() { Which::Lazy } else { Which::Harris };
                let operation = if rng.random() { Operation::Insert } else { Operation::Remove };
                let key = rng.random_range(0..KEYS);
                let event = stage.events().fetch_add(ct, 1).await?;
                log.invoked(event, which, operation, key).map_err(Error::other)?;
                let result = perform(&lazy, &harris, which, operation, key, ct).await?;
                let event = stage.events().fetch_add(ct, 1).await?;
                log.returned(event, result).map_err(Error::other)?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Performs an operation.
pub(super) async fn perform(
    lazy: &LazyList<u64>,
    harris: &HarrisList<u64>,
    which: Which,
    operation: Operation,
    key: u64,
    ct: &farfield::ComputeThread,
) -> Result<bool> {
    match (which, operation) {
        (Which::Lazy, Operation::Get) => lazy.get(key, ct).await,
        (Which::Lazy, Operation::Insert) => lazy.insert(key, ct).await,
        (Which::Lazy, Operation::Remove) => lazy.remove(key, ct).await,
        (Which::Harris, Operation::Get) => harris.get(key, ct).await,
        (Which::Harris, Operation::Insert) => harris.insert(key, ct).await,
        (Which::Harris, Operation::Remove) => harris.remove(key, ct).await,
    }
}
