//! Checks the structures, the memory and the logs after processes were killed.

use std::collections::BTreeMap;
use std::path::Path;

use farfield::{Cluster, ComputeThread, Error, Remote, Result};
use farfield_examples::{HarrisList, LazyList, MsQueue, TreiberStack, harris_list, lazy_list, ms_queue};

use super::log::{self, Call};
use super::sequence::Order;
use super::set::Has;
use super::tally::{self, Tallies};
use super::{register, sequence, set};
use crate::structures::{Control, HALF, Operation, RANGE, Structures, Target};

/// The judge's findings.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Operations that returned.
    pub returned: usize,
    /// Operations during which their process was killed.
    pub interrupted: usize,
    /// Reads of records that were left half-written by killed writers.
    pub half_written: usize,
    /// Faults of the structures or the history.
    pub faults: Vec<String>,
    /// Bytes of all objects that are not freed.
    pub live_bytes: u64,
    /// Bytes of all objects that are reachable from the roots.
    pub reachable_bytes: u64,
}

/// Sets the flag that stops the processes.
///
/// # Errors
/// Those of the cluster.
pub fn stop(url: &str) -> Result<()> {
    Cluster::connect(url)?
        .run(1, async |ct| Structures::attach(ct).await?.control.stop().store(ct, 1).await)?;
    Ok(())
}

/// The block bytes of a number of objects. Up to 512 bytes, the size classes are the multiples of 8 from 16 on.
fn bytes_of<T: Remote>(objects: usize) -> u64 {
    (T::SIZE.max(16) * objects) as u64
}

/// The calls on each structure: those on each key of it, if keys are independent.
type Histories = BTreeMap<(Target, u64), Vec<Call>>;

/// Returns the number of the history to which the calls on a key belong.
fn history(target: Target, key: u64) -> (Target, u64) {
    match target {
        Target::Priority => (target, 0),
        Target::Ranges => (target, key / RANGE),
        _ => (target, key),
    }
}

/// Checks the structures, the memory and the logs when all processes have ended.
///
/// # Errors
/// Those of the cluster, and of the logs.
pub fn judge(url: &str, logs: &Path) -> Result<Verdict> {
    let mut histories = Histories::new();
    for entry in std::fs::read_dir(logs).map_err(Error::other)? {
        for (target, call) in log::read(&entry.map_err(Error::other)?.path()).map_err(Error::other)? {
            histories.entry(history(target, call.key)).or_default().push(call);
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
        all.map.recover(ct).await?;
        all.interlocked.recover(ct).await?;
        all.ordered.recover(ct).await?;
        all.skip.recover(ct).await?;
        all.inline.recover(ct).await?;
        all.priority.recover(ct).await?;
        observe_all(&all, &mut histories, ct).await?;
        // The iterators detect nodes that are locked, marked or misplaced.
        let lists = [("lazy list", all.lazy.iter(ct).await), ("Harris list", all.harris.iter(ct).await)];
        // The control words; each list and its sentinels; the stack; the queue and its dummy.
        verdict.reachable_bytes = bytes_of::<Control>(1)
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
        // No lock is held, and each key is in its place.
        let checks = [
            ("map", all.map.check(ct).await),
            ("Interlocked Hash Table", all.interlocked.check(ct).await),
            ("ordered map", all.ordered.check(ct).await),
            ("skip list", all.skip.check(ct).await),
            ("inline map", all.inline.check(ct).await),
            ("ring", all.ring.check(ct).await),
            ("priority queue", all.priority.check(ct).await),
        ];
        for (name, checked) in checks {
            if let Err(error) = checked {
                verdict.faults.push(format!("the {name} is broken: {error}"));
            }
        }
        let tallies = Tallies::shared(ct).await?;
        tally::clear(tallies, ct).await?;
        verdict.reachable_bytes += bytes_of::<Tallies>(1) + ct.desk_bytes().await?;
        // So that none of their objects is reachable. An object that this does not free is leaked.
        all.map.destroy(ct).await?;
        all.interlocked.destroy(ct).await?;
        all.ordered.destroy(ct).await?;
        all.skip.destroy(ct).await?;
        all.inline.destroy(ct).await?;
        all.counts.destroy(ct).await?;
        all.ranges.destroy(ct).await?;
        all.ring.destroy(ct).await?;
        all.priority.destroy(ct).await?;
        while ct.reclamation().await?.retired_objects > 0 {
            ct.try_reclaim().await;
        }
        verdict.live_bytes = ct.heap_use().await?.iter().map(|usage| usage.live_bytes).sum();
        for ((target, key), calls) in &histories {
            if let Err(why) = explain(*target, calls) {
                verdict.faults.push(format!("{target:?} {key}: {why}"));
            }
        }
        Ok(verdict)
    })?;
    found.into_iter().next().ok_or_else(|| Error::other("the thread returned no verdict"))
}

/// Looks up every key, reads every record, counts once more, and removes all values: the final contents are part of the history.
async fn observe_all(all: &Structures, histories: &mut Histories, ct: &ComputeThread) -> Result<()> {
    for &target in Target::STRUCTURES {
        let operation = match target {
            Target::Counts => Operation::Insert,
            _ if target.is_queue() => Operation::Remove,
            _ => Operation::Get,
        };
        for key in 0..target.keys() {
            loop {
                let invoked = all.event(ct).await?;
                let answer = all.perform(target, operation, key, 0, ct).await?;
                let returned = Some((all.event(ct).await?, answer));
                let calls = histories.entry(history(target, key)).or_default();
                calls.push(Call { operation, key, invoked, returned });
                if !target.is_queue() || answer == 0 {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Checks the calls of a history.
fn explain(target: Target, calls: &[Call]) -> std::result::Result<(), String> {
    let unexplained = |event: u64| format!("no order of the operations explains event {event}");
    match target {
        Target::Lazy | Target::Harris => set::explain(calls, Has::NoValue).map_err(unexplained),
        Target::Map | Target::Interlocked | Target::Ordered | Target::Skip | Target::Inline => {
            set::explain(calls, Has::Value).map_err(unexplained)
        }
        Target::Stack => sequence::explain(calls, Order::Last),
        Target::Queue | Target::Ring => sequence::explain(calls, Order::First),
        Target::Priority => sequence::explain(calls, Order::Lowest),
        Target::Records => register::explain(calls),
        // Each element is a register, which is written with its range.
        Target::Ranges => (0..RANGE).try_for_each(|element| {
            let is_of = |call: &&Call| call.operation == Operation::Insert || call.key % RANGE == element;
            let calls: Vec<Call> = calls.iter().filter(is_of).copied().collect();
            register::explain(&calls).map_err(|why| format!("element {element}: {why}"))
        }),
        Target::Counts | Target::Tallies => tally::explain(calls),
    }
}
