//! What is left when processes have been killed, and whether it is right.

use std::collections::BTreeMap;
use std::path::Path;

use farfield::{Cluster, Error, Remote, Result};
use farfield_examples::{HarrisList, LazyList, harris_list, lazy_list};

use super::log::{self, Call, Operation, Which};
use super::work::perform;
use super::{KEYS, Stage, attach, order};

/// What the judge has found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Operations that returned, and those that their process was killed in.
    pub returned: usize,
    /// See above.
    pub interrupted: usize,
    /// What is wrong with the sets or the history; empty if nothing is.
    pub faults: Vec<String>,
    /// The bytes of all objects that are not freed, and of those that the roots lead to.
    pub live_bytes: u64,
    /// See above.
    pub reachable_bytes: u64,
}

/// Tells the processes to stop.
///
/// # Errors
/// Those of the cluster.
pub fn stop(url: &str) -> Result<()> {
    Cluster::connect(url)?.run(1, async |ct| {
        let (stage, ..) = attach(ct).await?;
        stage.stop().store(ct, 1).await
    })?;
    Ok(())
}

/// The bytes of the blocks of so many objects. Up to 512 bytes there is a size for each multiple of 8, from 16 on.
fn bytes_of<T: Remote>(objects: usize) -> u64 {
    (T::SIZE.max(16) * objects) as u64
}

/// Looks at everything, once all processes have ended.
///
/// # Errors
/// Those of the cluster, and of the logs.
pub fn judge(url: &str, logs: &Path) -> Result<Verdict> {
    let mut histories: BTreeMap<(Which, u64), Vec<Call>> = BTreeMap::new();
    for entry in std::fs::read_dir(logs).map_err(Error::other)? {
        for (which, key, call) in log::read(&entry.map_err(Error::other)?.path()).map_err(Error::other)? {
            histories.entry((which, key)).or_default().push(call);
        }
    }
    let calls = || histories.values().flatten();
    let returned = calls().filter(|call| call.returned.is_some()).count();
    let verdict = Verdict { returned, interrupted: calls().count() - returned, ..Verdict::default() };
    let found = Cluster::connect(url)?.run(1, async |ct| {
        let (mut verdict, mut histories) = (verdict.clone(), histories.clone());
        let (stage, lazy, harris) = attach(ct).await?;
        lazy.recover(ct).await?;
        for which in [Which::Lazy, Which::Harris] {
            for key in 0..KEYS {
                let invoked = stage.events().fetch_add(ct, 1).await?;
                let result = perform(&lazy, &harris, which, Operation::Get, key, ct).await?;
                let returned = Some((stage.events().fetch_add(ct, 1).await?, result));
                histories.entry((which, key)).or_default().push(Call {
                    operation: Operation::Get,
                    invoked,
                    returned,
                });
            }
        }
        // These find a node that is locked, marked or in a wrong place.
        let lists = [("lazy list", lazy.iter(ct).await), ("Harris list", harris.iter(ct).await)];
        // The stage, and of each list itself and its sentinels.
        verdict.reachable_bytes = bytes_of::<Stage>(1)
            + bytes_of::<LazyList<u64>>(1)
            + bytes_of::<lazy_list::Node<u64>>(2)
            + bytes_of::<HarrisList<u64>>(1)
            + bytes_of::<harris_list::Node<u64>>(2);
        for (index, (name, keys)) in lists.into_iter().enumerate() {
            match keys {
                Ok(keys) if index == 0 => {
                    verdict.reachable_bytes += bytes_of::<lazy_list::Node<u64>>(keys.len());
                }
                Ok(keys) => verdict.reachable_bytes += bytes_of::<harris_list::Node<u64>>(keys.len()),
                Err(error) => verdict.faults.push(format!("the {name} is broken: {error}")),
            }
        }
        while ct.reclamation().await?.retired_objects > 0 {
            ct.try_reclaim().await;
        }
        verdict.live_bytes = ct.heap_use().await?.iter().map(|usage| usage.live_bytes).sum();
        for ((which, key), calls) in &histories {
            if let Err(event) = order::explain(calls) {
                verdict.faults.push(format!("{which:?} key {key}: nothing explains event {event}"));
            }
        }
        Ok(verdict)
    })?;
    found.into_iter().next().ok_or_else(|| Error::other("the thread gave nothing"))
}
