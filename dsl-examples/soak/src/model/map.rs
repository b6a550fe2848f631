//! Model of a map from keys to values. Each key is a part of its own.
//!
//! Batches and iterations are not atomic: the model explains each of their components by itself. So an iteration must return every key that
//! is present throughout it exactly once, with a value that it had meanwhile, and no key that is absent throughout it.
//!
//! A scan of an ordered map is an iteration of the keys in its range. A key outside of the range, or out of order, is a component that nothing explains. The first key and the last are scans that
//! end at their first pair: no key on the other side of it may have been present throughout.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use farfield_testing::{Components, Model};

use MapOperation::{
    CompareAndUpdate, Drain, Exchange, Fill, First, Get, GetMany, Insert, Iterate, Last, Misplaced, Modify,
    Range, RangeBack, Remove, Take, Update, Upsert, Visit,
};

/// A map from keys to values.
#[derive(Debug)]
pub struct Map;

/// An ordered map from keys to values: a [`Map`] with scans.
#[derive(Debug)]
pub struct OrderedMap;

/// Operations of a [`Map`], and of an [`OrderedMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapOperation {
    /// Returns the value of a key.
    Get(u64),
    /// Inserts a key with a value; returns `true` if it was absent.
    Insert(u64, u64),
    /// Sets the value of a key, present or absent.
    Upsert(u64, u64),
    /// Sets the value of a key; returns `true` if it was present.
    Update(u64, u64),
    /// Sets the value of a key from the first value to the second; returns `true` if it had the first.
    CompareAndUpdate(u64, u64, u64),
    /// Removes a key; returns `true` if it was present.
    Remove(u64),
    /// Removes a key; returns its value.
    Take(u64),
    /// Sets the value of a key to the result of [`modified`]; returns the value before.
    Modify(u64, u64),
    /// Reads the value of a key, and then sets it from that to another. Not atomic.
    Exchange(u64, u64),
    /// Returns the values of consecutive keys. Not atomic.
    GetMany(Keys),
    /// Inserts consecutive keys with consecutive values, from this one on. Not atomic.
    Fill(Keys, u64),
    /// Removes consecutive keys, and returns their values. Not atomic.
    Drain(Keys),
    /// Returns all keys with their values. Not atomic.
    Iterate,
    /// Returns the first key with its value. Not atomic.
    First,
    /// Returns the last key with its value. Not atomic.
    Last,
    /// Returns the keys of a range, both ends included, with their values, in ascending order. Not atomic.
    Range(u64, u64),
    /// The same, in descending order. Not atomic.
    RangeBack(u64, u64),
    /// What an iteration returns for a key.
    Visit(u64),
    /// A key that a scan returns outside of its range, or out of order.
    Misplaced(u64),
}

/// Consecutive keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The first.
    pub first: u64,
    /// Their number.
    pub count: u64,
}

impl Keys {
    /// The keys, in order.
    pub fn all(self) -> std::ops::Range<u64> {
        self.first..self.first + self.count
    }
}

/// Results of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapReply {
    /// The operation returns nothing.
    Done,
    /// An answer to a question.
    Flag(bool),
    /// A value, if the key was present.
    Value(Option<u64>),
    /// The value that an exchange read, and whether it has set another.
    Exchanged(Option<u64>, bool),
    /// The answers of a batch, in the order of its keys.
    Flags(Vec<bool>),
    /// The values of a batch, in the order of its keys.
    Values(Vec<Option<u64>>),
    /// The keys and values of an iteration.
    Pairs(Vec<(u64, u64)>),
}

/// The value that a [`Modify`] by a number gives to a key: `None` removes it.
pub fn modified(value: Option<u64>, by: u64) -> Option<u64> {
    let sum = value.unwrap_or(0).wrapping_add(by);
    (value.is_none() || !sum.is_multiple_of(3)).then_some(sum)
}

impl Model for Map {
    type Operation = MapOperation;
    type Returned = MapReply;
    /// The value of the part's only key.
    type State = Option<u64>;

    fn step(value: &mut Option<u64>, operation: &MapOperation) -> MapReply {
        match *operation {
            Get(_) | Visit(_) => MapReply::Value(*value),
            Insert(_, new) => {
                let is_absent = value.is_none();
                value.get_or_insert(new);
                MapReply::Flag(is_absent)
            }
            Upsert(_, new) => {
                *value = Some(new);
                MapReply::Done
            }
            Update(_, new) => {
                let is_present = value.is_some();
                *value = value.and(Some(new));
                MapReply::Flag(is_present)
            }
            CompareAndUpdate(_, expected, new) => {
                let is_expected = *value == Some(expected);
                *value = if is_expected { Some(new) } else { *value };
                MapReply::Flag(is_expected)
            }
            Remove(_) => MapReply::Flag(value.take().is_some()),
            Take(_) => MapReply::Value(value.take()),
            Modify(_, by) => {
                let before = *value;
                *value = modified(before, by);
                MapReply::Value(before)
            }
            // No scan may return it.
            Misplaced(_) => MapReply::Flag(false),
            Exchange(..) | GetMany(_) | Fill(..) | Drain(_) | Iterate | First | Last | Range(..)
            | RangeBack(..) => {
                unreachable!("{operation:?} has components")
            }
        }
    }

    fn part(operation: &MapOperation) -> u64 {
        operation.keys().first
    }

    fn components(
        operation: &MapOperation,
        returned: Option<&MapReply>,
        parts: &[u64],
    ) -> Option<Components<Self>> {
        let flags = match returned {
            Some(MapReply::Flags(flags)) => &flags[..],
            _ => &[],
        };
        let values = match returned {
            Some(MapReply::Values(values)) => &values[..],
            _ => &[],
        };
        let flag = |index: usize| flags.get(index).copied().map(MapReply::Flag);
        let value = |index: usize| values.get(index).copied().map(MapReply::Value);
        Some(match (*operation, returned) {
            (Exchange(key, new), Some(MapReply::Exchanged(seen, done))) => {
                let exchange = seen.map(|seen| CompareAndUpdate(key, seen, new));
                [(Get(key), Some(MapReply::Value(*seen)))]
                    .into_iter()
                    .chain(exchange.map(|exchange| (exchange, Some(MapReply::Flag(*done)))))
                    .collect()
            }
            // If it takes effect, then on the value that is present.
            (Exchange(key, new), _) => vec![(Update(key, new), None)],
            (GetMany(_) | Iterate | First | Last | Range(..) | RangeBack(..), None) => vec![],
            (GetMany(keys), _) => {
                (0..).zip(keys.all()).map(|(index, key)| (Get(key), value(index))).collect()
            }
            (Drain(keys), _) => (0..).zip(keys.all()).map(|(index, key)| (Take(key), value(index))).collect(),
            (Fill(keys, from), _) => {
                let inserts = keys.all().zip(from..).map(|(key, value)| Insert(key, value));
                (0..).zip(inserts).map(|(index, insert)| (insert, flag(index))).collect()
            }
            (Iterate, Some(MapReply::Pairs(pairs))) => visits(pairs, parts),
            (First, Some(MapReply::Pairs(pairs))) => {
                let last = pairs.first().map_or(u64::MAX, |(key, _)| *key);
                scanned(pairs, parts, 0..=last, Ordering::Less)
            }
            (Last, Some(MapReply::Pairs(pairs))) => {
                let first = pairs.first().map_or(0, |(key, _)| *key);
                scanned(pairs, parts, first..=u64::MAX, Ordering::Less)
            }
            (Range(from, to), Some(MapReply::Pairs(pairs))) => {
                scanned(pairs, parts, from..=to, Ordering::Less)
            }
            (RangeBack(from, to), Some(MapReply::Pairs(pairs))) => {
                scanned(pairs, parts, from..=to, Ordering::Greater)
            }
            (Iterate | First | Last | Range(..) | RangeBack(..), _) => vec![],
            _ => return None,
        })
    }

    fn show(operation: &MapOperation) -> String {
        let batch = |Keys { first, count }| format!("{first}..{}", first + count);
        match *operation {
            Get(key) => format!("get({key})"),
            Insert(key, value) => format!("insert({key}, {value})"),
            Upsert(key, value) => format!("upsert({key}, {value})"),
            Update(key, value) => format!("update({key}, {value})"),
            CompareAndUpdate(key, old, new) => format!("compare_and_update({key}, {old}, {new})"),
            Remove(key) => format!("remove({key})"),
            Take(key) => format!("take({key})"),
            Modify(key, by) => format!("modify({key}, +{by})"),
            Exchange(key, value) => format!("exchange({key}, {value})"),
            GetMany(keys) => format!("get_many({})", batch(keys)),
            Fill(keys, value) => format!("fill({}, {value}..)", batch(keys)),
            Drain(keys) => format!("drain({})", batch(keys)),
            Iterate => "iterate()".to_owned(),
            First => "first()".to_owned(),
            Last => "last()".to_owned(),
            Range(from, to) => format!("range({from}..={to})"),
            RangeBack(from, to) => format!("range_back({from}..={to})"),
            Visit(key) => format!("iterate(): {key}"),
            Misplaced(key) => format!("range(): {key} is out of place"),
        }
    }

    fn show_returned(returned: &MapReply) -> String {
        match returned {
            MapReply::Done => "done".to_owned(),
            MapReply::Flag(flag) => flag.to_string(),
            MapReply::Value(None) => "absent".to_owned(),
            MapReply::Value(Some(value)) => value.to_string(),
            other => format!("{other:?}"),
        }
    }
}

/// The components of an iteration. It returns a key twice only if the key was absent in between.
fn visits(pairs: &[(u64, u64)], parts: &[u64]) -> Components<Map> {
    let mut seen: Vec<u64> = pairs.iter().map(|(key, _)| *key).collect();
    seen.sort_unstable();
    let again = seen.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]);
    let missed = parts.iter().copied().filter(|part| seen.binary_search(part).is_err());
    let absent = missed.chain(again).map(|key| (key, None));
    let all = absent.chain(pairs.iter().map(|(key, value)| (*key, Some(*value))));
    all.map(|(key, value)| (MapOperation::Visit(key), Some(MapReply::Value(value)))).collect()
}

/// The components of a scan of a range, whose keys have an order.
fn scanned(
    pairs: &[(u64, u64)],
    parts: &[u64],
    range: RangeInclusive<u64>,
    order: Ordering,
) -> Components<Map> {
    let disorder = pairs.windows(2).filter(|two| two[0].0.cmp(&two[1].0) != order).map(|two| two[1].0);
    let outside = pairs.iter().map(|(key, _)| *key).filter(|key| !range.contains(key));
    let misplaced = disorder.chain(outside).map(|key| (Misplaced(key), Some(MapReply::Flag(true))));
    let parts: Vec<u64> = parts.iter().copied().filter(|part| range.contains(part)).collect();
    visits(pairs, &parts).into_iter().chain(misplaced).collect()
}

/// The operations are those of a [`Map`].
impl Model for OrderedMap {
    type Operation = MapOperation;
    type Returned = MapReply;
    type State = Option<u64>;

    fn step(value: &mut Option<u64>, operation: &MapOperation) -> MapReply {
        Map::step(value, operation)
    }
    fn part(operation: &MapOperation) -> u64 {
        Map::part(operation)
    }
    fn components(
        operation: &MapOperation,
        returned: Option<&MapReply>,
        parts: &[u64],
    ) -> Option<Components<Self>> {
        Map::components(operation, returned, parts)
    }
    fn show(operation: &MapOperation) -> String {
        Map::show(operation)
    }
    fn show_returned(returned: &MapReply) -> String {
        Map::show_returned(returned)
    }
}

impl MapOperation {
    /// The keys of the operation; none of an iteration.
    pub fn keys(self) -> Keys {
        match self {
            Self::Get(key)
            | Self::Insert(key, _)
            | Self::Upsert(key, _)
            | Self::Update(key, _)
            | Self::CompareAndUpdate(key, ..)
            | Self::Remove(key)
            | Self::Take(key)
            | Self::Modify(key, _)
            | Self::Exchange(key, _)
            | Self::Visit(key)
            | Self::Misplaced(key) => Keys { first: key, count: 1 },
            Self::GetMany(keys) | Self::Fill(keys, _) | Self::Drain(keys) => keys,
            Self::Iterate | Self::First | Self::Last | Self::Range(..) | Self::RangeBack(..) => {
                Keys { first: 0, count: 0 }
            }
        }
    }

    /// The same operation on other keys.
    #[must_use]
    pub fn with_keys(mut self, new: Keys) -> Self {
        match &mut self {
            Self::Get(key)
            | Self::Insert(key, _)
            | Self::Upsert(key, _)
            | Self::Update(key, _)
            | Self::CompareAndUpdate(key, ..)
            | Self::Remove(key)
            | Self::Take(key)
            | Self::Modify(key, _)
            | Self::Exchange(key, _)
            | Self::Visit(key)
            | Self::Misplaced(key) => *key = new.first,
            Self::GetMany(keys) | Self::Fill(keys, _) | Self::Drain(keys) => *keys = new,
            Self::Iterate | Self::First | Self::Last | Self::Range(..) | Self::RangeBack(..) => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The components of a scan over the parts 1, 2 and 3.
    fn of(operation: MapOperation, pairs: &[(u64, u64)]) -> Components<Map> {
        Map::components(&operation, Some(&MapReply::Pairs(pairs.to_vec())), &[1, 2, 3]).unwrap()
    }

    fn visit(key: u64, value: Option<u64>) -> (MapOperation, Option<MapReply>) {
        (Visit(key), Some(MapReply::Value(value)))
    }

    #[test]
    fn a_scan_answers_for_each_key_of_its_range() {
        assert_eq!(of(Range(2, 9), &[(3, 7)]), [visit(2, None), visit(3, Some(7))]);
        assert_eq!(of(RangeBack(1, 2), &[(2, 7), (1, 8)]), [visit(2, Some(7)), visit(1, Some(8))]);
        assert_eq!(of(First, &[(2, 7)]), [visit(1, None), visit(2, Some(7))]);
        assert_eq!(of(Last, &[(2, 7)]), [visit(3, None), visit(2, Some(7))]);
        assert_eq!(of(First, &[]), [1, 2, 3].map(|key| visit(key, None)));
    }

    #[test]
    fn a_key_out_of_order_or_out_of_range_is_explained_by_nothing() {
        for (operation, pairs) in [
            (Range(1, 3), [(2, 0), (1, 0)]),
            (RangeBack(1, 3), [(1, 0), (2, 0)]),
            (Range(1, 2), [(2, 0), (3, 0)]),
            (Range(1, 3), [(2, 0), (2, 0)]),
        ] {
            let components = of(operation, &pairs);
            let (misplaced, returned) = components.last().unwrap();
            assert!(matches!(misplaced, Misplaced(_)), "{operation:?}: {components:?}");
            assert_ne!(Some(Map::step(&mut Some(0), misplaced)), *returned);
        }
    }
}
