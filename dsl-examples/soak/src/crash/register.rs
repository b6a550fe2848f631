//! Decides whether the writes and reads of a record are linearizable.
//!
//! All values differ, so each read determines the write that it saw. A value's *zone* is the interval between the first return and the last
//! invocation of its operations. If the first return comes first, the record has the value during the whole zone. The history is
//! linearizable if and only if no read returns before its write is invoked, no two such zones overlap, and no value whose operations all
//! overlap must fit into the zone of another (Gibbons and Korach, "Testing shared memories", SIAM J. Comput. 1997).
//!
//! A write whose process was killed counts if its value was read. It may leave the record half-written, which reads report. Without such a
//! write a record is never half-written. No read returns parts of two writes.

use std::collections::BTreeMap;

use super::log::{Call, value_of};
use crate::structures::{HALF, Operation, TORN};

/// A value's first return, last invocation, and the invocation of its write.
struct Zone {
    first_return: u64,
    last_invocation: u64,
    written: u64,
    is_seen: bool,
}

/// Checks the calls on one record, which is 0 at first.
///
/// # Errors
/// A description of the contradiction.
pub fn explain(calls: &[Call]) -> Result<(), String> {
    // The initial value precedes all events.
    let at_first = Zone { first_return: 0, last_invocation: 0, written: 0, is_seen: true };
    let mut zones: BTreeMap<u64, Zone> = [(0, at_first)].into();
    for call in calls.iter().filter(|call| call.operation == Operation::Insert) {
        let first_return = call.returned.map_or(u64::MAX, |(event, _)| event + 1);
        let (written, is_seen) = (call.invoked + 1, call.returned.is_some());
        zones.insert(call.value(), Zone { first_return, last_invocation: written, written, is_seen });
    }
    let interrupted =
        calls.iter().filter(|call| call.operation == Operation::Insert && call.returned.is_none());
    let first_interrupted = interrupted.map(|call| call.invoked).min();
    for call in calls.iter().filter(|call| call.operation == Operation::Get) {
        match call.returned {
            Some((event, TORN)) => return Err(format!("event {event} returns parts of two values")),
            Some((event, HALF)) if first_interrupted.is_none_or(|first| first > event) => {
                return Err(format!(
                    "event {event} reads a half-written record, but no writer was interrupted"
                ));
            }
            None | Some((_, HALF)) => {}
            Some((event, value)) => {
                let zone = zones.get_mut(&value).filter(|zone| zone.written <= event);
                let zone =
                    zone.ok_or_else(|| format!("event {event} reads {} before it is written", name(value)))?;
                zone.first_return = zone.first_return.min(event + 1);
                zone.last_invocation = zone.last_invocation.max(call.invoked + 1);
                zone.is_seen = true;
            }
        }
    }
    let (mut held, mut brief) = (Vec::new(), Vec::new());
    for (value, zone) in zones.iter().filter(|(_, zone)| zone.is_seen) {
        let (first, last) = (zone.first_return, zone.last_invocation);
        if first < last { held.push((first, last, *value)) } else { brief.push((last, first, *value)) }
    }
    held.sort_unstable();
    if let Some(both) = held.windows(2).find(|both| both[1].0 < both[0].1) {
        return Err(format!("the record has {} and {} at the same time", name(both[0].2), name(both[1].2)));
    }
    for (from, to, value) in brief {
        let before = held.partition_point(|zone| zone.0 < from);
        if before > 0 && held[before - 1].1 > to {
            return Err(format!(
                "{} is written while the record has {}",
                name(value),
                name(held[before - 1].2)
            ));
        }
    }
    Ok(())
}

fn name(value: u64) -> String {
    if value == 0 {
        "the initial value".to_owned()
    } else {
        format!("the value of event {}", value_of(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(invoked: u64, returned: u64) -> Call {
        Call { operation: Operation::Insert, key: 0, invoked, returned: Some((returned, 1)) }
    }

    /// Reads the value whose write was invoked by this event.
    fn read(invoked: u64, returned: u64, write: u64) -> Call {
        answer(invoked, returned, value_of(write))
    }

    fn answer(invoked: u64, returned: u64, answer: u64) -> Call {
        Call { operation: Operation::Get, key: 0, invoked, returned: Some((returned, answer)) }
    }

    fn killed(invoked: u64) -> Call {
        Call { operation: Operation::Insert, key: 0, invoked, returned: None }
    }

    #[test]
    fn a_read_returns_the_last_write() {
        assert_eq!(
            explain(&[answer(0, 1, 0), write(2, 3), read(4, 5, 2), write(6, 7), read(8, 9, 6)]),
            Ok(())
        );
        let lost = [write(2, 3), write(6, 7), read(8, 9, 2)];
        assert!(
            explain(&lost)
                .unwrap_err()
                .contains("event 6 is written while the record has the value of event 2")
        );
        assert!(
            explain(&[write(2, 3), answer(4, 5, 0)])
                .unwrap_err()
                .contains("event 2 is written while the record has the initial value")
        );
        assert!(explain(&[read(0, 1, 2), write(2, 3)]).unwrap_err().contains("before it is written"));
        assert!(explain(&[read(0, 1, 98)]).unwrap_err().contains("before it is written"));
    }

    #[test]
    fn overlapping_operations_may_take_any_order() {
        assert_eq!(explain(&[write(1, 6), write(2, 5), read(7, 8, 1)]), Ok(()));
        assert_eq!(explain(&[write(1, 6), write(2, 5), read(7, 8, 2)]), Ok(()));
        assert_eq!(explain(&[write(1, 6), answer(2, 3, 0), read(4, 5, 1)]), Ok(()));
        // One reader sees the new value, and a later one the old value.
        let back = [write(0, 1), write(2, 9), read(3, 4, 2), read(5, 6, 0)];
        assert!(
            explain(&back)
                .unwrap_err()
                .contains("event 2 is written while the record has the value of event 0")
        );
        let to_and_fro = [&back[..], &[read(7, 8, 2)]].concat();
        assert!(
            explain(&to_and_fro)
                .unwrap_err()
                .contains("the value of event 0 and the value of event 2 at the same time")
        );
    }

    #[test]
    fn an_interrupted_write_may_take_effect_or_leave_a_record_half_written() {
        assert_eq!(explain(&[killed(1), answer(2, 3, 0), read(4, 5, 1), read(6, 7, 1)]), Ok(()));
        assert!(
            explain(&[killed(1), read(2, 3, 1), answer(4, 5, 0)])
                .unwrap_err()
                .contains("while the record has the initial value")
        );
        assert_eq!(explain(&[killed(1), answer(2, 3, HALF), write(4, 5), read(6, 7, 4)]), Ok(()));
        assert!(explain(&[write(1, 2), answer(3, 4, HALF)]).unwrap_err().contains("half-written"));
        assert!(explain(&[killed(1), answer(2, 3, TORN)]).unwrap_err().contains("parts of two values"));
    }
}
