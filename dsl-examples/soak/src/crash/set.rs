//! Decides whether the operations on one key of a set or a map are linearizable.
//!
//! The keys are independent, so the history is linearizable if that of each key is (Herlihy and Wing, TOPLAS 1990). The state of a key
//! is its value, and few operations on it are pending at a time. So one pass over the events maintains all *possibilities*: a state, and the
//! set of pending operations that have taken effect (Lowe, "Testing for linearizability", 2017, calls this just-in-time linearization).
//! When an operation returns, the possibilities remain in which it has taken effect with its result. If none remains, no order explains the
//! history.
//!
//! An operation whose process was killed has no return. It may have taken effect at any later moment, or never: it stays pending.

use std::collections::HashSet;

use super::log::Call;
use crate::structures::Operation;

/// A state, and which of the pending operations have taken effect, one bit each. The state is the key's value, or 0 if it is absent.
type Possibility = (u64, u64);

/// What a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// Nothing: a key of a set. Its value is 1.
    NoValue,
    /// The value of the call that inserted or changed it.
    Value,
}

/// Checks the calls on one key, which is absent at first.
///
/// # Errors
/// The first event that no order explains; or the event at which 64 operations on the key are pending, the limit.
pub fn explain(calls: &[Call], has: Has) -> Result<(), u64> {
    // Lookups without a result constrain nothing.
    let matters = |call: &&Call| call.returned.is_some() || call.operation != Operation::Get;
    let calls: Vec<&Call> = calls.iter().filter(matters).collect();
    let mut events: Vec<(u64, usize)> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        events.push((call.invoked, index));
        events.extend(call.returned.map(|(event, _)| (event, index)));
    }
    events.sort_unstable();
    let mut open: Vec<Option<usize>> = Vec::new();
    let mut possible: HashSet<Possibility> = [(0, 0)].into();
    for (event, index) in events {
        if event == calls[index].invoked {
            let place = open.iter().position(Option::is_none).unwrap_or(open.len());
            if place >= u64::BITS as usize {
                return Err(event);
            }
            open.resize(open.len().max(place + 1), None);
            open[place] = Some(index);
            continue;
        }
        let Some(place) = open.iter().position(|open| *open == Some(index)) else { return Err(event) };
        let bit = 1 << place;
        let mut after = HashSet::new();
        let mut seen = possible.clone();
        let mut pending: Vec<Possibility> = possible.drain().collect();
        while let Some((value, done)) = pending.pop() {
            if done & bit != 0 {
                after.insert((value, done & !bit));
                continue;
            }
            for (place, call) in
                open.iter().enumerate().filter_map(|(place, index)| Some((place, calls[(*index)?])))
            {
                if done & 1 << place == 0
                    && let Some(value) = effect(call, has, value)
                    && seen.insert((value, done | 1 << place))
                {
                    pending.push((value, done | 1 << place));
                }
            }
        }
        if after.is_empty() {
            return Err(event);
        }
        open[place] = None;
        possible = after;
    }
    Ok(())
}

/// The state after a call on a key of a state; none if its result contradicts that.
fn effect(call: &Call, has: Has, value: u64) -> Option<u64> {
    let new = if has == Has::Value { call.value() } else { 1 };
    let (result, after) = match call.operation {
        Operation::Get => (value, value),
        Operation::Insert if value == 0 => (1, new),
        Operation::Insert => (0, value),
        Operation::Remove => (value, 0),
        Operation::Upsert => (1, new),
    };
    call.returned.is_none_or(|(_, returned)| returned == result).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::log::value_of;
    use Has::{NoValue, Value};
    use Operation::{Get, Insert, Remove, Upsert};

    fn call(operation: Operation, invoked: u64, returned: u64, result: bool) -> Call {
        Call { operation, key: 0, invoked, returned: Some((returned, u64::from(result))) }
    }

    fn killed(operation: Operation, invoked: u64) -> Call {
        Call { operation, key: 0, invoked, returned: None }
    }

    fn explain(calls: &[Call]) -> Result<(), u64> {
        super::explain(calls, NoValue)
    }

    #[test]
    fn a_value_is_that_of_the_last_change() {
        let valued = |operation, invoked, returned, result| Call {
            key: 0,
            operation,
            invoked,
            returned: Some((returned, result)),
        };
        let mut calls =
            vec![valued(Insert, 1, 2, 1), valued(Upsert, 3, 4, 1), valued(Get, 5, 6, value_of(3))];
        calls.extend([killed(Upsert, 7), valued(Insert, 8, 9, 0), valued(Remove, 10, 11, value_of(7))]);
        assert_eq!(super::explain(&calls, Value), Ok(()));
        calls.push(valued(Get, 12, 13, value_of(3)));
        assert_eq!(super::explain(&calls, Value), Err(13));
    }

    #[test]
    fn sequential_operations_must_agree() {
        assert_eq!(
            explain(&[call(Insert, 1, 2, true), call(Get, 3, 4, true), call(Remove, 5, 6, true)]),
            Ok(())
        );
        assert_eq!(explain(&[call(Insert, 1, 2, true), call(Insert, 3, 4, true)]), Err(4));
        assert_eq!(explain(&[call(Get, 1, 2, true)]), Err(2));
    }

    #[test]
    fn overlapping_operations_may_take_any_order() {
        let overlapping = [call(Insert, 1, 6, true), call(Remove, 2, 5, true), call(Get, 3, 4, false)];
        assert_eq!(explain(&overlapping), Ok(()));
        assert_eq!(explain(&[call(Insert, 1, 6, true), call(Insert, 2, 5, true)]), Err(6));
    }

    #[test]
    fn an_interrupted_operation_takes_effect_at_any_moment_but_once() {
        assert_eq!(explain(&[killed(Insert, 1), call(Get, 2, 3, false), call(Get, 4, 5, true)]), Ok(()));
        assert_eq!(explain(&[killed(Insert, 1), call(Get, 2, 3, true), call(Get, 4, 5, false)]), Err(5));
        assert_eq!(explain(&[call(Get, 1, 2, true), killed(Insert, 3)]), Err(2));
        let twice = [killed(Insert, 1), call(Remove, 2, 3, true), call(Remove, 4, 5, true)];
        assert_eq!(explain(&twice), Err(5));
        assert_eq!(explain(&[&twice[..], &[killed(Insert, 1)]].concat()), Ok(()));
    }
}
