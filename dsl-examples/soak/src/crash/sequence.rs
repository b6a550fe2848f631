//! Whether the operations on a stack or a queue can have happened, if processes were killed over some of them.
//!
//! All values differ, and in the end everything is taken out, so each value has a *life*: it was put in between two events, and taken out between
//! two others. What is checked of lives is what every explanation needs (Henzinger, Sezgin and Vafeiadis, "Aspect-oriented linearizability
//! proofs", CONCUR 2013; for queues these conditions are also enough):
//!
//! - a value that is taken was put in before, and is taken once;
//! - a value whose putting in has returned is taken, unless a process was killed that was taking one: as many may be missing;
//! - of a queue, a value is not taken before one is that was put in earlier; of a stack, not while one is on top of it;
//! - nothing is found empty while values are in it all the time.
//!
//! "Earlier", "on top" and "all the time" are meant as certain: whatever the moments were at which overlapping operations took effect.

use std::collections::BTreeMap;

use super::log::{Call, value_of};
use crate::stage::Operation;

/// In which order values leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first in is the first out: a queue.
    First,
    /// The last in is the first out: a stack.
    Last,
}

/// When an operation began and when it returned; one that did not return may take effect at any time.
type Span = (u64, u64);
const NEVER: u64 = u64::MAX;

/// A value that was put in and taken out.
struct Life {
    put: Span,
    taken: Span,
}

fn span(call: &Call) -> Span {
    (call.invoked, call.returned.map_or(NEVER, |(event, _)| event))
}

/// Whether calls on one structure, empty at first and in the end, can be explained.
///
/// # Errors
/// What can not be.
pub fn explain(calls: &[Call], order: Order) -> Result<(), String> {
    let of = |operation| calls.iter().filter(move |call| call.operation == operation);
    let mut puts: BTreeMap<u64, Span> =
        of(Operation::Insert).map(|call| (call.value(), span(call))).collect();
    let (mut lives, mut empty, mut interrupted) = (Vec::new(), Vec::new(), 0);
    for call in of(Operation::Remove) {
        match call.returned {
            None => interrupted += 1,
            Some((_, 0)) => empty.push(span(call)),
            Some((event, value)) => {
                let put = puts.remove(&value).filter(|put| put.0 < event);
                let put = put.ok_or_else(|| {
                    format!(
                        "event {event} takes the value of event {}, which is not in it: taken twice, or never put in",
                        value_of(value)
                    )
                })?;
                lives.push(Life { put, taken: span(call) });
            }
        }
    }
    let lost: Vec<u64> = puts.iter().filter(|(_, put)| put.1 != NEVER).map(|(value, _)| *value).collect();
    if lost.len() > interrupted {
        let (count, first) = (lost.len(), value_of(lost[lost.len() - 1]));
        return Err(format!(
            "{count} values are lost, the first of them that of event {first}; only {interrupted} processes were killed that took one"
        ));
    }
    let out_of_order = match order {
        Order::First => overtaken(&mut lives),
        Order::Last => covered(&mut lives),
    };
    if let Some(event) = out_of_order {
        return Err(format!("the value that event {event} takes comes out of order"));
    }
    found_empty(&lives, &empty)
        .map_or(Ok(()), |event| Err(format!("event {event} finds it empty, which it is not")))
}

/// Of a queue: the event that takes a value although another was put in before it, and is taken after it.
fn overtaken(lives: &mut [Life]) -> Option<u64> {
    lives.sort_unstable_by_key(|life| life.put.1);
    // Of those that were put in by then, the latest that one is taken.
    let latest: Vec<u64> = lives
        .iter()
        .scan(0, |latest, life| {
            *latest = life.taken.0.max(*latest);
            Some(*latest)
        })
        .collect();
    let is_overtaking = |life: &&Life| {
        let earlier = lives.partition_point(|other| other.put.1 < life.put.0);
        earlier > 0 && latest[earlier - 1] > life.taken.1
    };
    lives.iter().find(is_overtaking).map(|life| life.taken.1)
}

/// Of a stack: the event that takes a value although another was put on top of it before, and is taken after it.
fn covered(lives: &mut [Life]) -> Option<u64> {
    lives.sort_unstable_by_key(|life| life.put.0);
    let mut by_return: Vec<usize> = (0..lives.len()).collect();
    by_return.sort_unstable_by_key(|index| lives[*index].put.1);
    let mut by_taking: Vec<usize> = (0..lives.len()).collect();
    by_taking.sort_unstable_by_key(|index| lives[*index].taken.0);
    // Of those that are in it by now, from each place to the last, the latest that one is taken.
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

/// The maximum of values from a place to the last (a Fenwick tree).
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

/// The event that finds nothing although some value is there at every moment of its operation.
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
        Call { operation: Operation::Insert, invoked, returned: Some((returned, 1)) }
    }

    /// Takes the value of a put that began with this event.
    fn take(invoked: u64, returned: u64, put: u64) -> Call {
        Call { operation: Operation::Remove, invoked, returned: Some((returned, value_of(put))) }
    }

    fn take_nothing(invoked: u64, returned: u64) -> Call {
        Call { operation: Operation::Remove, invoked, returned: Some((returned, 0)) }
    }

    fn killed(operation: Operation, invoked: u64) -> Call {
        Call { operation, invoked, returned: None }
    }

    fn fault(calls: &[Call], order: Order) -> String {
        explain(calls, order).unwrap_err()
    }

    #[test]
    fn values_leave_in_order() {
        let (a, b) = (put(1, 2), put(3, 4));
        let (first_a, then_b) = (take(5, 6, 1), take(7, 8, 3));
        let (first_b, then_a) = (take(5, 6, 3), take(7, 8, 1));
        assert_eq!(explain(&[a, b, first_a, then_b], Order::First), Ok(()));
        assert_eq!(explain(&[a, b, first_b, then_a], Order::Last), Ok(()));
        assert!(fault(&[a, b, first_b, then_a], Order::First).contains("out of order"));
        assert!(fault(&[a, b, first_a, then_b], Order::Last).contains("out of order"));
    }

    #[test]
    fn what_overlaps_may_have_any_order() {
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
    fn a_value_is_taken_once_and_only_if_it_was_put_in() {
        for order in [Order::First, Order::Last] {
            assert!(fault(&[put(1, 2), take(3, 4, 1), take(5, 6, 1)], order).contains("taken twice"));
            assert!(fault(&[take(3, 4, 1)], order).contains("never put in"));
            assert!(fault(&[take(1, 2, 3), put(3, 4)], order).contains("not in it"));
        }
    }

    #[test]
    fn a_value_is_lost_only_with_a_process_that_took_it() {
        for order in [Order::First, Order::Last] {
            let lost = [put(1, 2), put(3, 4), take(5, 6, 3)];
            assert!(fault(&lost, order).contains("1 values are lost, the first of them that of event 1"));
            assert_eq!(explain(&[&lost[..], &[killed(Operation::Remove, 7)]].concat(), order), Ok(()));
            assert_eq!(explain(&[killed(Operation::Insert, 1)], order), Ok(()));
            assert_eq!(explain(&[killed(Operation::Insert, 1), take(3, 4, 1)], order), Ok(()));
        }
    }

    #[test]
    fn nothing_is_found_empty_while_something_is_in_it() {
        for order in [Order::First, Order::Last] {
            let one = [put(1, 2), take_nothing(3, 4), take(5, 6, 1)];
            assert!(fault(&one, order).contains("event 4 finds it empty"));
            assert_eq!(explain(&[put(1, 3), take_nothing(2, 4), take(5, 6, 1)], order), Ok(()));
        }
        // One of two is there at each moment.
        let handed_over = [put(1, 2), take_nothing(3, 12), put(4, 5), take(6, 7, 1), take(13, 14, 4)];
        assert!(fault(&handed_over, Order::First).contains("event 12 finds it empty"));
        let gap = [put(1, 2), take_nothing(3, 12), take(4, 5, 1), put(6, 7), take(13, 14, 6)];
        assert_eq!(explain(&gap, Order::First), Ok(()));
    }
}
