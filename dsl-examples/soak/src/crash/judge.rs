//! What is left when processes have been killed, and whether it is right.

use std::collections::BTreeMap;
use std::path::Path;

use farfield::{Cluster, ComputeThread, Error, Remote, Result};
use farfield_examples::{HarrisList, LazyList, MsQueue, TreiberStack, harris_list, lazy_list, ms_queue};

use super::log::{self, Call};
use super::sequence::Order;
use super::{order, register, sequence};
use crate::stage::{HALF, Operation, Stage, Structures, Which};

/// What the judge has found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Operations that returned, and those that their process was killed in.
    pub returned: usize,
    /// See above.
    pub interrupted: usize,
    /// Reads that found a record half-written, because its writer was killed.
    pub half_written: usize,
    /// What is wrong with the structures or the history; empty if nothing is.
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
    Cluster::connect(url)?
        .run(1, async |ct| Structures::attach(ct).await?.stage.stop().store(ct, 1).await)?;
    Ok(())
}

/// The bytes of the blocks of so many objects. Up to 512 bytes there is a size for each multiple of 8, from 16 on.
fn bytes_of<T: Remote>(objects: usize) -> u64 {
    (T::SIZE.max(16) * objects) as u64
}

/// The calls on each key of each structure.
type Histories = BTreeMap<(Which, u64), Vec<Call>>;

/// Looks at everything, once all processes have ended.
///
/// # Errors
/// Those of the cluster, and of the logs.
pub fn judge(url: &str, logs: &Path) -> Result<Verdict> {
    let mut histories = Histories::new();
    for entry in std::fs::read_dir(logs).map_err(Error::other)? {
        for (which, key, call) in log::read(&entry.map_err(Error::other)?.path()).map_err(Error::other)? {
            histories.entry((which, key)).or_default().push(call);
        }
    }
    let calls = || histories.values().flatten();
    let returned = calls().filter(|call| call.returned.is_some()).count();
    let is_half = |call: &&Call| call.returned.is_some_and(|(_, answer)| answer == HALF);
    let (interrupted, half_written) = (calls().count() - returned, calls().filter(is_half).count());
    let verdict = Verdict { returned, interrupted, half_written, ..Verdict::default() };
    let found = Cluster::connect(url)?.run(1, async |ct| {
        let (mut verdict, mut histories) = (verdict.clone(), histories.clone());
        let all = Structures::attach(ct).await?;
        all.lazy.recover(ct).await?;
        look_at_all(&all, &mut histories, ct).await?;
        // These find a node that is locked, marked or in a wrong place.
        let lists = [("lazy list", all.lazy.iter(ct).await), ("Harris list", all.harris.iter(ct).await)];
        // The stage; of each list itself and its sentinels; the stack; the queue and its dummy.
        verdict.reachable_bytes = bytes_of::<Stage>(1)
            + bytes_of::<LazyList<u64>>(1)
            + bytes_of::<lazy_list::Node<u64>>(2)
            + bytes_of::<HarrisList<u64>>(1)
            + bytes_of::<harris_list::Node<u64>>(2)
            + bytes_of::<TreiberStack<u64>>(1)
            + bytes_of::<MsQueue<u64>>(1)
            + bytes_of::<ms_queue::Node<u64>>(1);
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
            if let Err(why) = explain(*which, calls) {
                verdict.faults.push(format!("{which:?} key {key}: {why}"));
            }
        }
        Ok(verdict)
    })?;
    found.into_iter().next().ok_or_else(|| Error::other("the thread gave nothing"))
}

/// Looks up every key, reads every record, and takes all values out: what is there in the end is a part of the history.
async fn look_at_all(all: &Structures, histories: &mut Histories, ct: &ComputeThread) -> Result<()> {
    for which in Which::ALL {
        let has_values = matches!(which, Which::Stack | Which::Queue);
        let operation = if has_values { Operation::Remove } else { Operation::Get };
        for key in 0..which.keys() {
            loop {
                let invoked = all.stage.events().fetch_add(ct, 1).await?;
                let answer = all.perform(which, operation, key, 0, ct).await?;
                let returned = Some((all.stage.events().fetch_add(ct, 1).await?, answer));
                let calls = histories.entry((which, key)).or_default();
                calls.push(Call { operation, invoked, returned });
                if !has_values || answer == 0 {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Whether calls on a key can be explained.
fn explain(which: Which, calls: &[Call]) -> std::result::Result<(), String> {
    match which {
        Which::Lazy | Which::Harris => {
            order::explain(calls).map_err(|event| format!("nothing explains event {event}"))
        }
        Which::Stack => sequence::explain(calls, Order::Last),
        Which::Queue => sequence::explain(calls, Order::First),
        Which::Records => register::explain(calls),
    }
}
