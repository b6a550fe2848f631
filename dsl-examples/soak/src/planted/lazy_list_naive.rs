//! Bugs of the naive lazy list: most are in what it does between two round trips.

use super::{Bug, Check, Planted, Structure};

pub(super) const BUGS: &[Planted] = &[Planted {
    name: "lazy_list_naive_unlinks_without_mark",
    structure: Structure::LazyListNaive,
    bug: Bug::Edit { search: "curr.next().store(g, next.with_deleted()).await?;", replacement: "" },
    invariant: "a node that leaves the list is marked first",
    why: "a thread that waits for the removed node's lock inserts behind it, and the key is lost",
    caught_by: Check::Linearizability,
    needs_faults: false,
}];
