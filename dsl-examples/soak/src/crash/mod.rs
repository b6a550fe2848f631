//! Real processes that are killed: what each does, what it leaves behind, and whether that is right.
//!
//! | module | what it does |
//! |---|---|
//! | [`log`] | what a process did, in a file that survives it |
//! | [`work`] | a process that works on two sets until it is told to stop, or killed |
//! | [`judge`] | looks at what is left: the sets, the memory, and all logs |
//! | [`order`] | whether the operations on a key can have happened one after the other |
//!
//! Whoever starts and kills the processes is `cargo xtask crash-test`.

pub mod judge;
pub mod log;
pub mod order;
pub mod work;

use farfield::prelude::*;
use farfield_examples::{HarrisList, LazyList};

/// How many keys there are in each set.
pub const KEYS: u64 = 256;

/// What all processes share besides the sets.
#[remote]
pub struct Stage {
    /// The number of the next event. It grows with time, whichever process asks: so it is the clock of the history.
    pub events: Atomic<u64>,
    /// Not 0 once the processes are to end.
    pub stop: Atomic<u64>,
}

/// The roots' names.
pub(crate) const STAGE: &str = "crash stage";
pub(crate) const LAZY_LIST: &str = "crash lazy list";
pub(crate) const HARRIS_LIST: &str = "crash harris list";

/// Handles to all three, which are made if they are not there.
pub(crate) async fn attach(ct: &ComputeThread) -> Result<(RemotePtr<Stage>, LazyList<u64>, HarrisList<u64>)> {
    let stage = async || Stage::new_in(ct, Stage::init()).await?.write(ct).await;
    let stage = ct.root_or_init(STAGE, stage).await?;
    let lazy = ct.root_or_init(LAZY_LIST, async || LazyList::<u64>::create(ct).await).await?;
    let harris = ct.root_or_init(HARRIS_LIST, async || HarrisList::<u64>::create(ct).await).await?;
    Ok((stage, LazyList::attach(lazy, ct).await?, HarrisList::attach(harris, ct).await?))
}
