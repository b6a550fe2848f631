//! Bugs of the priority queue.

use super::bug::{Planted, Structure};
use crate::Check;

pub(super) const BUGS: &[Planted] = &[
    Planted {
        name: "priority_queue_pops_the_second_if_the_first_is_gone",
        structure: Structure::PriorityQueue,
        edits: &[(
            "\
            if self.towers.kill(&place, first, None, g).await? {
                return Ok(Some((first.key, first.value)));
            }",
            "\
            if self.towers.kill(&place, first, None, g).await? {
                return Ok(Some((first.key, first.value)));
            }
            let place = self.towers.find(&Bound::Behind(first.key), true, g).await?;
            if let Some(next) = &place.found
                && self.towers.kill(&place, next, None, g).await?
            {
                return Ok(Some((next.key, next.value)));
            }",
        )],
        invariant: "a pop that was overtaken begins again at the head",
        why: "an item is popped although others are in front of it",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "priority_queue_pushes_in_front_of_equal_priorities",
        structure: Structure::PriorityQueue,
        edits: &[("Bound::Behind(priority)", "Bound::At(priority)")],
        invariant: "an item is pushed behind those with equal priorities",
        why: "the last of them is popped first",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
    Planted {
        name: "priority_queue_pops_the_dead",
        structure: Structure::PriorityQueue,
        edits: &[(
            "if self.towers.kill(&place, first, None, g).await? {",
            "\
            let _ = self.towers.kill(&place, first, None, g).await?;
            if place.found.is_some() {",
        )],
        invariant: "an item is popped by the client whose CAS marks it",
        why: "two clients return one item",
        caught_by: Check::Linearizability,
        needs_faults: false,
    },
];
