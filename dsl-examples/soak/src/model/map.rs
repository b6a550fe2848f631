//! Model of a map from keys to values. Each key is a part of its own.
//!
//! Batches and iterations are not atomic: the model explains each of their components by itself. So an iteration must return every key that
//! is present throughout it exactly once, with a value that it had meanwhile, and no key that is absent throughout it.

use farfield_testing::{Components, Model};

use MapOperation::{
    CompareAndUpdate, Drain, Exchange, Fill, Get, GetMany, Insert, Iterate, Modify, Remove, Take, Update,
    Upsert, Visit,
};

/// A map from keys to values.
#[derive(Debug)]
pub struct Map;

/// Operations of a [`Map`].
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
    /// What an iteration returns for a key.
    Visit(u64),
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
            Exchange(..) | GetMany(_) | Fill(..) | Drain(_) | Iterate => {
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
            (GetMany(_) | Iterate, None) => vec![],
            (GetMany(keys), _) => {
                (0..).zip(keys.all()).map(|(index, key)| (Get(key), value(index))).collect()
            }
            (Drain(keys), _) => (0..).zip(keys.all()).map(|(index, key)| (Take(key), value(index))).collect(),
            (Fill(keys, from), _) => {
                let inserts = keys.all().zip(from..).map(|(key, value)| Insert(key, value));
                (0..).zip(inserts).map(|(index, insert)| (insert, flag(index))).collect()
            }
            (Iterate, Some(MapReply::Pairs(pairs))) => visits(pairs, parts),
            (Iterate, _) => vec![],
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
            Visit(key) => format!("iterate(): {key}"),
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
            | Self::Visit(key) => Keys { first: key, count: 1 },
            Self::GetMany(keys) | Self::Fill(keys, _) | Self::Drain(keys) => keys,
            Self::Iterate => Keys { first: 0, count: 0 },
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
            | Self::Visit(key) => *key = new.first,
            Self::GetMany(keys) | Self::Fill(keys, _) | Self::Drain(keys) => *keys = new,
            Self::Iterate => {}
        }
        self
    }
}
