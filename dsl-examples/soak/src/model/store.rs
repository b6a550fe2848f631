//! Model of a key-value store. Each key is a part of its own.
//!
//! `get_many` reads each key by itself, and a rebuild changes no value.

use farfield_testing::{Components, Model};

use super::map::Keys;

/// A key-value store.
#[derive(Debug)]
pub struct KeyValueStore;

/// Operations of a [`KeyValueStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Returns the value of a key.
    Read(u64),
    /// Sets the value of a key, present or absent.
    Write(u64, u64),
    /// Sets the value of a key; returns `true` if it was present.
    Update(u64, u64),
    /// Deletes a key; returns `true` if it was present.
    Delete(u64),
    /// Returns the values of consecutive keys. Not atomic.
    GetMany(Keys),
    /// Rebuilds all pages of which less than so many percent are live.
    Rebuild(u64),
}

/// Results of a [`KeyValueStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The operation returns nothing.
    Done,
    /// The answer to a question.
    Flag(bool),
    /// A value, if the key was present.
    Value(Option<u64>),
    /// The values of several keys.
    Values(Vec<Option<u64>>),
    /// The store has no room for the value. The key has its old one.
    Refused,
}

impl Model for KeyValueStore {
    type Operation = Request;
    type Returned = Answer;
    /// The value of the part's only key.
    type State = Option<u64>;

    fn step(value: &mut Option<u64>, request: &Request) -> Answer {
        match *request {
            Request::Read(_) => Answer::Value(*value),
            Request::Write(_, new) => {
                *value = Some(new);
                Answer::Done
            }
            Request::Update(_, new) => {
                let is_present = value.is_some();
                *value = value.and(Some(new));
                Answer::Flag(is_present)
            }
            Request::Delete(_) => Answer::Flag(value.take().is_some()),
            Request::GetMany(_) | Request::Rebuild(_) => unreachable!("{request:?} has components"),
        }
    }

    fn accepts(value: &mut Option<u64>, request: &Request, answer: &Answer) -> bool {
        let may_be_refused = matches!(request, Request::Write(..) | Request::Update(..));
        may_be_refused && *answer == Answer::Refused || Self::step(value, request) == *answer
    }

    fn part(request: &Request) -> u64 {
        request.keys().first
    }

    fn components(request: &Request, answer: Option<&Answer>, _parts: &[u64]) -> Option<Components<Self>> {
        match (request, answer) {
            (Request::GetMany(keys), Some(Answer::Values(values))) => {
                let reads = keys.all().zip(values);
                Some(reads.map(|(key, value)| (Request::Read(key), Some(Answer::Value(*value)))).collect())
            }
            (Request::GetMany(_) | Request::Rebuild(_), _) => Some(vec![]),
            _ => None,
        }
    }

    fn show(request: &Request) -> String {
        match *request {
            Request::Read(key) => format!("read({key})"),
            Request::Write(key, value) => format!("write({key}, {value})"),
            Request::Update(key, value) => format!("update({key}, {value})"),
            Request::Delete(key) => format!("delete({key})"),
            Request::GetMany(Keys { first, count }) => format!("get_many({first}..{})", first + count),
            Request::Rebuild(percent) => format!("rebuild({percent})"),
        }
    }

    fn show_returned(answer: &Answer) -> String {
        match answer {
            Answer::Done => "done".to_owned(),
            Answer::Flag(flag) => flag.to_string(),
            Answer::Value(None) => "absent".to_owned(),
            Answer::Value(Some(value)) => value.to_string(),
            Answer::Values(values) => format!("{values:?}"),
            Answer::Refused => "no room".to_owned(),
        }
    }
}

impl Request {
    /// The keys of the operation; none of a rebuild.
    pub fn keys(self) -> Keys {
        match self {
            Self::Read(key) | Self::Write(key, _) | Self::Update(key, _) | Self::Delete(key) => {
                Keys { first: key, count: 1 }
            }
            Self::GetMany(keys) => keys,
            Self::Rebuild(_) => Keys { first: 0, count: 0 },
        }
    }
}
