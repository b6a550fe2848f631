//! Checks the operations on a stack, a queue or a priority queue, some of which were interrupted by kills.
//!
//! All values differ, and finally all are removed. So each value has a *lifetime*: it was inserted between two events, and removed between
//! two others. The checks are necessary conditions for linearizability (Henzinger, Sezgin and Vafeiadis, "Aspect-oriented linearizability
//! proofs", CONCUR 2013; for queues they are also sufficient):
//!
//! - a value that is removed was inserted before, and is removed once;
//! - a value whose insertion has returned is removed, except one for each interrupted removal;
//! - in a queue, a value is not removed before one that was inserted earlier; in a stack, not while another is on top of it; in a priority queue, not while there
//!   is one of a lower priority, which is its key, nor before one of the same priority that was inserted earlier;
//! - no operation finds the structure empty while it contains values throughout the operation.
//!
//! "Earlier", "on top" and "throughout" mean: for all moments at which overlapping operations may have taken effect.

use std::collections::BTreeMap;

use super::log::{Call, value_of};
use crate::structures::Operation;

/// The order of removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First in, first out: a queue.
    First,
    /// Last in, first out: a stack.
    Last,
    /// The lowest priority first, and among equal ones the first in: a priority queue.
    Lowest,
}

/// Events of an operation's invocation and return; without a return it may take effect at any time.
type Span = (u64, u64);
const NEVER: u64 = u64::MAX;

/// The lifetime of a value: its insertion and removal.
struct Life {
    priority: u64,
    put: Span,
    taken: Span,
}

fn span(call: &Call) -> Span {
    (call.invoked, call.returned.map_or(NEVER, |(event, _)| event))
}

/// Checks the calls on one structure, which is empty at first and at the end.
///
/// # Errors
/// A description of the contradiction.
pub fn explain(calls: &[Call], order: Order) -> Result<(), String> {
    let of = |operation| calls.iter().filter(move |call| call.operation == operation);
    // There was no room for a value whose insertion has returned 0.
    let puts = of(Operation::Insert).filter(|call| call.returned.is_none_or(|(_, answer)| answer != 0));
    let mut puts: BTreeMap<u64, (u64, Span)> =
        puts.map(|call| (call.value(), (call.key, span(call)))).collect();
    let (mut lives, mut empty, mut interrupted) = (Vec::new(), Vec::new(), 0);
    for call in of(Operation::Remove) {
        match call.returned {
            None => interrupted += 1,
            Some((_, 0)) => empty.push(span(call)),
            Some((event, value)) => {
                let put = puts.remove(&value).filter(|(_, put)| put.0 < event);
                let (priority, put) = put.ok_or_else(|| {
                    format!(
                        "event {event} removes the value of event {}, which was removed before or never inserted",
                        value_of(value)
                    )
                })?;
                lives.push(Life { priority, put, taken: span(call) });
            }
        }
    }
    let lost: Vec<u64> =
        puts.iter().filter(|(_, (_, put))| put.1 != NEVER).map(|(value, _)| *value).collect();
    if lost.len() > interrupted {
        let (count, first) = (lost.len(), value_of(lost[lost.len() - 1]));
        return Err(format!(
            "{count} values are lost, the first that of event {first}; only {interrupted} removals were interrupted"
        ));
    }
    let out_of_order = match order {
        Order::First => overtaken(&mut lives),
        Order::Last => covered(&mut lives),
        Order::Lowest => preferred(&mut lives),
    };
    if let Some(event) = out_of_order {
        return Err(format!("event {event} removes a value out of order"));
    }
    found_empty(&lives, &empty).map_or(Ok(()), |event| {
        Err(format!("event {event} finds the structure empty, but it contains values"))
    })
}

/// Queue: the event that removes a value although another was inserted before it and is removed after it.
fn overtaken(lives: &mut [Life]) -> Option<u64> {
    lives.sort_unstable_by_key(|life| life.put.1);
    first_late(lives, lives, |life| life.put.0)
}

/// Returns the event that removes one of some values although one of `others`, which are in order of insertion, was inserted before an event of it, and is removed after it.
fn first_late(lives: &[Life], others: &[Life], before: impl Fn(&Life) -> u64) -> Option<u64> {
    // For each prefix: the latest invocation of a removal.
    let latest: Vec<u64> = others
        .iter()
        .scan(0, |latest, life| {
            *latest = life.taken.0.max(*latest);
            Some(*latest)
        })
        .collect();
    let is_late = |life: &&Life| {
        let earlier = others.partition_point(|other| other.put.1 < before(life));
        earlier > 0 && latest[earlier - 1] > life.taken.1
    };
    lives.iter().find(is_late).map(|life| life.taken.1)
}

/// Priority queue: the event that removes a value although one of a lower priority is there all the time, or one of the same priority was inserted before it.
fn preferred(lives: &mut [Life]) -> Option<u64> {
    lives.sort_unstable_by_key(|life| (life.priority, life.put.1));
    let equal: Vec<&[Life]> = lives.chunk_by(|life, next| life.priority == next.priority).collect();
    equal.iter().enumerate().find_map(|(index, lives)| {
        let lower = equal[..index].iter().find_map(|lower| first_late(lives, lower, |life| life.taken.0));
        lower.or_else(|| first_late(lives, lives, |life| life.put.0))
    })
}

/// Stack: the event that removes a value although another was pushed on it before and is removed after it.
fn covered(lives: &mut [Life]) -> Option<u64> {
    lives.sort_unstable_by_key(|life| life.put.0);
    let mut by_return: Vec<usize> = (0..lives.len()).collect();
    by_return.sort_unstable_by_key(|index| lives[*index].put.1);
    let mut by_taking: Vec<usize> = (0..lives.len()).collect();
    by_taking.sort_unstable_by_key(|index| lives[*index].taken.0);
    // For each place to the last: the latest invocation of a removal, among the values certainly in the stack.
    let mut latest = Latest::new(lives.len());
    let mut inside = by_return.into_iter().peekable();
    for index in by_taking {
        let life = &lives[index];
        while let Some(other) = inside.next_if(|other| lives[*other].put.1 < life.taken.0) {
            latest.add(other, lives[other].taken.0);
        }
        let above = lives.partition_point(|other| other.put.0 <= life.put.1);
        if latest.from(above) > life.taken.1 {
            return Some(life.taken.1);
        }
    }
    None
}

/// Suffix maxima (a Fenwick tree).
struct Latest(Vec<u64>);

impl Latest {
    fn new(places: usize) -> Self {
        Self(vec![0; places + 1])
    }

    fn add(&mut self, place: usize, value: u64) {
        let mut node = self.0.len() - 1 - place;
        while node < self.0.len() {
            self.0[node] = self.0[node].max(value);
            node += node & node.wrapping_neg();
        }
    }

    fn from(&self, place: usize) -> u64 {
        let (mut node, mut most) = (self.0.len() - 1 - place.min(self.0.len() - 1), 0);
        while node > 0 {
            most = most.max(self.0[node]);
            node &= node - 1;
        }
        most
    }
}

/// The event that finds the structure empty although it contains some value at every moment of the operation.
fn found_empty(lives: &[Life], empty: &[Span]) -> Option<u64> {
    let mut inside: Vec<Span> =
        lives.iter().map(|life| (life.put.1, life.taken.0)).filter(|(from, to)| from < to).collect();
    inside.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for (from, to) in inside {
        match merged.last_mut() {
            Some(last) if from < last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    let is_wrong = |span: &&Span| {
        let before = merged.partition_point(|inside| inside.0 < span.0);
        before > 0 && merged[before - 1].1 > span.1
    };
    empty.iter().find(is_wrong).map(|span| span.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(invoked: u64, returned: u64) -> Call {
        Call { operation: Operation::Insert, key: 0, invoked, returned: Some((returned, 1)) }
    }

    /// Removes the value whose insertion was invoked by this event.
    fn take(invoked: u64, returned: u64, put: u64) -> Call {
        Call { operation: Operation::Remove, key: 0, invoked, returned: Some((returned, value_of(put))) }
    }

    fn take_nothing(invoked: u64, returned: u64) -> Call {
        Call { operation: Operation::Remove, key: 0, invoked, returned: Some((returned, 0)) }
    }

    fn killed(operation: Operation, invoked: u64) -> Call {
        Call { operation, key: 0, invoked, returned: None }
    }

    fn fault(calls: &[Call], order: Order) -> String {
        explain(calls, order).unwrap_err()
    }

    #[test]
    fn values_are_removed_in_order() {
        let (a, b) = (put(1, 2), put(3, 4));
        let (first_a, then_b) = (take(5, 6, 1), take(7, 8, 3));
        let (first_b, then_a) = (take(5, 6, 3), take(7, 8, 1));
        assert_eq!(explain(&[a, b, first_a, then_b], Order::First), Ok(()));
        assert_eq!(explain(&[a, b, first_b, then_a], Order::Last), Ok(()));
        assert!(fault(&[a, b, first_b, then_a], Order::First).contains("out of order"));
        assert!(fault(&[a, b, first_a, then_b], Order::Last).contains("out of order"));
    }

    #[test]
    fn overlapping_operations_may_take_any_order() {
        for order in [Order::First, Order::Last] {
            let puts = [put(1, 4), put(2, 3)];
            assert_eq!(
                explain(&[&puts[..], &[take(5, 6, 1), take(7, 8, 2)]].concat(), order),
                Ok(()),
                "{order:?}"
            );
            assert_eq!(
                explain(&[&puts[..], &[take(5, 6, 2), take(7, 8, 1)]].concat(), order),
                Ok(()),
                "{order:?}"
            );
            let takes = [put(1, 2), put(3, 4), take(5, 8, 1), take(6, 7, 3)];
            assert_eq!(explain(&takes, order), Ok(()), "{order:?}");
        }
    }

    #[test]
    fn lower_priorities_come_first() {
        let put = |key, invoked, returned| Call { key, ..put(invoked, returned) };
        let (high, low, more) = (put(2, 1, 2), put(1, 3, 4), put(1, 5, 6));
        let puts = [high, low, more];
        let taken = |takes: &[Call]| explain(&[&puts[..], takes].concat(), Order::Lowest);
        assert_eq!(taken(&[take(7, 8, 3), take(9, 10, 5), take(11, 12, 1)]), Ok(()));
        let low_last = taken(&[take(7, 8, 1), take(9, 10, 3), take(11, 12, 5)]);
        assert!(low_last.unwrap_err().contains("event 8 removes a value out of order"));
        let late_first = taken(&[take(7, 8, 5), take(9, 10, 3), take(11, 12, 1)]);
        assert!(late_first.unwrap_err().contains("event 8 removes a value out of order"));
        // The lower one may have been inserted, or removed, meanwhile.
        assert_eq!(explain(&[high, put(1, 4, 5), take(3, 6, 1), take(7, 8, 4)], Order::Lowest), Ok(()));
        let all_the_time = taken(&[take(7, 9, 1), take(8, 10, 3), take(11, 12, 5)]);
        assert!(all_the_time.unwrap_err().contains("event 9 removes a value out of order"));
        assert_eq!(taken(&[take(7, 13, 1), take(8, 9, 3), take(10, 11, 5)]), Ok(()));
    }

    #[test]
    fn a_value_without_room_is_not_inserted() {
        let full = Call { returned: Some((4, 0)), ..put(3, 4) };
        assert_eq!(explain(&[put(1, 2), full, take(5, 6, 1)], Order::First), Ok(()));
        assert!(fault(&[full, take(5, 6, 3)], Order::First).contains("never inserted"));
    }

    #[test]
    fn a_value_is_removed_once_and_only_if_it_was_inserted() {
        for order in [Order::First, Order::Last] {
            assert!(fault(&[put(1, 2), take(3, 4, 1), take(5, 6, 1)], order).contains("removed before"));
            assert!(fault(&[take(3, 4, 1)], order).contains("never inserted"));
            assert!(fault(&[take(1, 2, 3), put(3, 4)], order).contains("never inserted"));
        }
    }

    #[test]
    fn a_value_is_lost_only_with_an_interrupted_removal() {
        for order in [Order::First, Order::Last] {
            let lost = [put(1, 2), put(3, 4), take(5, 6, 3)];
            assert!(fault(&lost, order).contains("1 values are lost, the first that of event 1"));
            assert_eq!(explain(&[&lost[..], &[killed(Operation::Remove, 7)]].concat(), order), Ok(()));
            assert_eq!(explain(&[killed(Operation::Insert, 1)], order), Ok(()));
            assert_eq!(explain(&[killed(Operation::Insert, 1), take(3, 4, 1)], order), Ok(()));
        }
    }

    #[test]
    fn no_operation_finds_a_nonempty_structure_empty() {
        for order in [Order::First, Order::Last] {
            let one = [put(1, 2), take_nothing(3, 4), take(5, 6, 1)];
            assert!(fault(&one, order).contains("event 4 finds the structure empty"));
            assert_eq!(explain(&[put(1, 3), take_nothing(2, 4), take(5, 6, 1)], order), Ok(()));
        }
        // At each moment it contains one of two values.
        let handed_over = [put(1, 2), take_nothing(3, 12), put(4, 5), take(6, 7, 1), take(13, 14, 4)];
        assert!(fault(&handed_over, Order::First).contains("event 12 finds the structure empty"));
        let gap = [put(1, 2), take_nothing(3, 12), take(4, 5, 1), put(6, 7), take(13, 14, 6)];
        assert_eq!(explain(&gap, Order::First), Ok(()));
    }
}
