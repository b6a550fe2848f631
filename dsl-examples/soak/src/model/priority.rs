//! Model of a priority queue.

use farfield_testing::{Fates, Model};

use Request::{Peek, Pop, Push};

/// A priority queue: the lowest priority first; among equal ones, the value that was pushed first.
#[derive(Debug)]
pub struct PriorityQueue;

/// Operations of a [`PriorityQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Adds a value with a priority.
    Push(u64, u64),
    /// Removes the first value, if there is one.
    Pop,
    /// Returns the first value.
    Peek,
}

impl Model for PriorityQueue {
    type Operation = Request;
    /// The priority and the value of the first; `None` for a push, and if there is none.
    type Returned = Option<(u64, u64)>;
    /// Priorities and values in their order.
    type State = Vec<(u64, u64)>;

    fn step(values: &mut Self::State, request: &Request) -> Self::Returned {
        match *request {
            Push(priority, value) => {
                let behind = values.partition_point(|(other, _)| *other <= priority);
                values.insert(behind, (priority, value));
                None
            }
            Pop if values.is_empty() => None,
            Pop => Some(values.remove(0)),
            Peek => values.first().copied(),
        }
    }

    fn puts(request: &Request) -> Option<u64> {
        match *request {
            Push(_, value) => Some(value),
            Pop | Peek => None,
        }
    }

    fn takes(request: &Request) -> bool {
        *request == Pop
    }

    fn taken(returned: &Self::Returned) -> Option<u64> {
        returned.map(|(_, value)| value)
    }

    fn is_hopeless(values: &Self::State, fates: &Fates) -> bool {
        let fate = |(_, value): &(u64, u64)| fates.of(*value);
        // A value that is popped before one in front of it.
        (1..values.len())
            .any(|behind| values[..behind].iter().any(|before| fate(&values[behind]).is_before(fate(before))))
    }

    fn show(request: &Request) -> String {
        match *request {
            Push(priority, value) => format!("push({priority}, {value})"),
            Pop => "pop_min()".to_owned(),
            Peek => "peek()".to_owned(),
        }
    }

    fn show_returned(returned: &Self::Returned) -> String {
        returned.map_or_else(|| "none".to_owned(), |(priority, value)| format!("{value} of {priority}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_priorities_are_popped_in_the_order_of_their_pushes() {
        let mut values = Vec::new();
        for push in [Push(2, 10), Push(1, 11), Push(2, 12), Push(1, 13)] {
            assert_eq!(PriorityQueue::step(&mut values, &push), None);
        }
        assert_eq!(PriorityQueue::step(&mut values, &Peek), Some((1, 11)));
        let popped: Vec<_> = (0..5).map(|_| PriorityQueue::step(&mut values, &Pop)).collect();
        assert_eq!(popped, [Some((1, 11)), Some((1, 13)), Some((2, 10)), Some((2, 12)), None]);
    }
}
