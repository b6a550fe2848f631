//! Whether the writes and reads of a record can have happened one after the other.
//!
//! All values differ, so it is known which write a read saw. A value's *zone* goes from the first return of an operation with that value to the
//! last invocation of one: if the one is before the other, the record has the value all that time. The history of a register is linearizable
//! if and only if no read returns before its write is invoked, no two such zones overlap, and no value of which all operations
//! overlap has to fit into the zone of another (Gibbons and Korach, "Testing shared memories", SIAM J. Comput. 1997).
//!
//! A write that its process was killed in counts if its value was read. It may leave the record half-written, which readers are told; a
//! record that no such write was ever begun on is never half-written, and no read sees parts of two writes.

use std::collections::BTreeMap;

use super::log::{Call, value_of};
use crate::stage::{HALF, Operation, TORN};

/// What is known of a value: the first return and the last invocation of its operations, and when its write was invoked.
struct Zone {
    first_return: u64,
    last_invocation: u64,
    written: u64,
    is_seen: bool,
}

/// Whether calls on one record, 0 at first, can be explained.
///
/// # Errors
/// What can not be.
pub fn explain(calls: &[Call]) -> Result<(), String> {
    // Before all events.
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
                return Err(format!("event {event} finds it half-written, which no process has left it"));
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
        return Err(format!("it has {} and {} at one time", name(both[0].2), name(both[1].2)));
    }
    for (from, to, value) in brief {
        let before = held.partition_point(|zone| zone.0 < from);
        if before > 0 && held[before - 1].1 > to {
            return Err(format!("{} is written while it has {}", name(value), name(held[before - 1].2)));
        }
    }
    Ok(())
}

fn name(value: u64) -> String {
    if value == 0 { "its first value".to_owned() } else { format!("the value of event {}", value_of(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(invoked: u64, returned: u64) -> Call {
        Call { operation: Operation::Insert, invoked, returned: Some((returned, 1)) }
    }

    /// Reads the value of a write that began with this event.
    fn read(invoked: u64, returned: u64, write: u64) -> Call {
        answer(invoked, returned, value_of(write))
    }

    fn answer(invoked: u64, returned: u64, answer: u64) -> Call {
        Call { operation: Operation::Get, invoked, returned: Some((returned, answer)) }
    }

    fn killed(invoked: u64) -> Call {
        Call { operation: Operation::Insert, invoked, returned: None }
    }

    #[test]
    fn a_read_returns_what_was_written_last() {
        assert_eq!(
            explain(&[answer(0, 1, 0), write(2, 3), read(4, 5, 2), write(6, 7), read(8, 9, 6)]),
            Ok(())
        );
        let lost = [write(2, 3), write(6, 7), read(8, 9, 2)];
        assert!(explain(&lost).unwrap_err().contains("event 6 is written while it has the value of event 2"));
        assert!(
            explain(&[write(2, 3), answer(4, 5, 0)])
                .unwrap_err()
                .contains("event 2 is written while it has its first value")
        );
        assert!(explain(&[read(0, 1, 2), write(2, 3)]).unwrap_err().contains("before it is written"));
        assert!(explain(&[read(0, 1, 98)]).unwrap_err().contains("before it is written"));
    }

    #[test]
    fn what_overlaps_has_some_order() {
        assert_eq!(explain(&[write(1, 6), write(2, 5), read(7, 8, 1)]), Ok(()));
        assert_eq!(explain(&[write(1, 6), write(2, 5), read(7, 8, 2)]), Ok(()));
        assert_eq!(explain(&[write(1, 6), answer(2, 3, 0), read(4, 5, 1)]), Ok(()));
        // One reader sees the new value and a later one the old.
        let back = [write(0, 1), write(2, 9), read(3, 4, 2), read(5, 6, 0)];
        assert!(explain(&back).unwrap_err().contains("event 2 is written while it has the value of event 0"));
        let to_and_fro = [&back[..], &[read(7, 8, 2)]].concat();
        assert!(
            explain(&to_and_fro)
                .unwrap_err()
                .contains("the value of event 0 and the value of event 2 at one time")
        );
    }

    #[test]
    fn a_killed_write_may_have_happened_and_may_leave_half_of_it() {
        assert_eq!(explain(&[killed(1), answer(2, 3, 0), read(4, 5, 1), read(6, 7, 1)]), Ok(()));
        assert!(
            explain(&[killed(1), read(2, 3, 1), answer(4, 5, 0)])
                .unwrap_err()
                .contains("while it has its first value")
        );
        assert_eq!(explain(&[killed(1), answer(2, 3, HALF), write(4, 5), read(6, 7, 4)]), Ok(()));
        assert!(explain(&[write(1, 2), answer(3, 4, HALF)]).unwrap_err().contains("half-written"));
        assert!(explain(&[killed(1), answer(2, 3, TORN)]).unwrap_err().contains("parts of two values"));
    }
}
