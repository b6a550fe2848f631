//! What a queue has returned, compared with what was pushed into it.
//!
//! Each task that pushes or pops keeps its items in the order of its operations. Of each queue it is checked that
//! 1. each item that was pushed was popped, once, and no other;
//! 2. of the items that one task has pushed, those that one task has popped were popped in the order in which they were pushed. A priority queue promises that of
//!    items whose priorities do not decrease. Those of one producer ascend, at each queue; those of several, which a mover has popped as they came, do not. So of a priority
//!    queue this is checked for the items of each producer.
//!
//! Both follow from what a linearizable queue promises, with any number of clients. Two movers of one stage may overtake each other, so no order is promised of what passes
//! several queues. It is of what passes one mover in each stage, and is checked then, since it follows from (2) of each queue.

use std::collections::HashMap;

/// A task's items, in the order of its operations.
pub(crate) type Items = Vec<u64>;

/// Items whose order a queue keeps: of the task that has pushed them, and of their producer if that matters.
type Lane = (usize, Option<u64>);

/// Returns the first fault of a queue. `producer` tells the producer of an item if the queue keeps the order of each producer's items only.
pub(crate) fn fault(
    pushed: &[Items],
    popped: &[Items],
    producer: impl Fn(u64) -> Option<u64>,
) -> Option<String> {
    // Of each item: the task that has pushed it, its place among that task's items, and whether it was popped.
    let mut places = HashMap::new();
    for (task, items) in pushed.iter().enumerate() {
        for (place, item) in items.iter().enumerate() {
            if places.insert(*item, (task, place, false)).is_some() {
                return Some(format!("item {item} was pushed twice"));
            }
        }
    }
    for items in popped {
        let mut last: HashMap<Lane, (usize, u64)> = HashMap::new();
        for item in items {
            let Some((task, place, is_popped)) = places.get_mut(item) else {
                return Some(format!("item {item} was popped, and not pushed"));
            };
            if std::mem::replace(is_popped, true) {
                return Some(format!("item {item} was popped twice"));
            }
            match last.insert((*task, producer(*item)), (*place, *item)) {
                Some((before, overtaken_by)) if before > *place => {
                    return Some(format!(
                        "item {item} was popped behind item {overtaken_by}, which was pushed behind it"
                    ));
                }
                _ => {}
            }
        }
    }
    let lost = places.iter().filter(|(_, (.., is_popped))| !is_popped).map(|(item, _)| item);
    lost.min().map(|item| format!("item {item} was pushed, and never popped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tasks have pushed; so have two popped.
    const PUSHED: [&[u64]; 2] = [&[0, 1, 2, 3], &[10, 11, 12]];

    fn fault_of(popped: &[&[u64]], producer: impl Fn(u64) -> Option<u64>) -> String {
        let items = |tasks: &[&[u64]]| -> Vec<Items> { tasks.iter().map(|items| items.to_vec()).collect() };
        fault(&items(&PUSHED), &items(popped), producer).unwrap_or_default()
    }

    fn in_order(popped: &[&[u64]]) -> String {
        fault_of(popped, |_| None)
    }

    #[test]
    fn items_of_different_tasks_may_be_popped_in_any_order() {
        assert_eq!(in_order(&[&[0, 10, 3, 12], &[1, 2, 11]]), "");
        assert_eq!(in_order(&[&[10, 11, 12, 0, 1, 2, 3]]), "");
    }

    #[test]
    fn a_lost_item_is_found() {
        assert_eq!(in_order(&[&[0, 1, 3], &[10, 11, 12]]), "item 2 was pushed, and never popped");
        assert_eq!(in_order(&[]), "item 0 was pushed, and never popped");
    }

    #[test]
    fn a_doubled_item_is_found() {
        assert_eq!(in_order(&[&[0, 1, 2, 2, 3], &[10, 11, 12]]), "item 2 was popped twice");
        assert_eq!(in_order(&[&[0, 1, 2, 3, 11], &[10, 11, 12]]), "item 11 was popped twice", "by two tasks");
    }

    #[test]
    fn an_overtaken_item_is_found() {
        let expected = "item 1 was popped behind item 2, which was pushed behind it";
        assert_eq!(in_order(&[&[0, 10, 2, 11, 1, 3], &[12]]), expected);
        assert_eq!(
            in_order(&[&[0, 2, 3], &[1, 10, 11, 12]]),
            "",
            "by another task, which may have been slow"
        );
    }

    #[test]
    fn an_item_that_nobody_pushed_is_found() {
        assert_eq!(in_order(&[&[0, 1, 2, 3, 4], &[10, 11, 12]]), "item 4 was popped, and not pushed");
    }

    #[test]
    fn of_a_priority_queue_the_order_is_that_of_each_producer() {
        // The first task is a mover of items of two producers, even and odd ones.
        let producer = |item| Some(item % 2);
        assert_eq!(fault_of(&[&[1, 0, 3, 2], &[10, 11, 12]], producer), "");
        let expected = "item 0 was popped behind item 2, which was pushed behind it";
        assert_eq!(fault_of(&[&[1, 2, 3, 0], &[10, 11, 12]], producer), expected);
    }

    #[test]
    fn an_item_that_was_pushed_twice_is_found() {
        let twice = [vec![1, 2], vec![2]];
        assert_eq!(fault(&twice, &twice, |_| None).unwrap(), "item 2 was pushed twice");
    }
}
