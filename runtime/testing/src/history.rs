//! Histories as calls: each invocation with its return.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use farfield::sim::{Client, Happened};

use crate::model::{EventOf, Model};

/// An operation, and the positions of its events in the history.
pub(crate) struct Call<M: Model> {
    pub(crate) client: Client,
    pub(crate) operation: M::Operation,
    pub(crate) invoked: usize,
    pub(crate) returned: Option<(usize, M::Returned)>,
}

impl<M: Model> Clone for Call<M> {
    fn clone(&self) -> Self {
        Self { operation: self.operation.clone(), returned: self.returned.clone(), ..*self }
    }
}

/// Pairs each invocation with its return, if it has one.
pub(crate) fn calls<M: Model>(events: &[EventOf<M>]) -> Vec<Call<M>> {
    let mut calls: Vec<Call<M>> = Vec::new();
    let mut open: HashMap<Client, usize> = HashMap::new();
    for (position, event) in events.iter().enumerate() {
        let client = event.client;
        match &event.happened {
            // A client may continue after an operation with unknown outcome; that operation stays pending.
            Happened::Invoked(operation) => {
                open.insert(client, calls.len());
                calls.push(Call { client, operation: operation.clone(), invoked: position, returned: None });
            }
            Happened::Returned(returned) => {
                if let Entry::Occupied(call) = open.entry(client) {
                    calls[call.remove()].returned = Some((position, returned.clone()));
                }
            }
        }
    }
    calls
}

/// The calls on each part. A call that is not atomic is replaced by its components ([`Model::components`]), which have its times.
pub(crate) fn by_part<M: Model>(calls: &[Call<M>]) -> BTreeMap<u64, Vec<Call<M>>> {
    let mut parts = divided(calls, &[]);
    let whole = calls.iter().any(|call| M::components(&call.operation, None, &[]).is_some());
    if whole {
        parts = divided(calls, &parts.into_keys().collect::<Vec<_>>());
    }
    parts
}

fn divided<M: Model>(calls: &[Call<M>], parts: &[u64]) -> BTreeMap<u64, Vec<Call<M>>> {
    let mut divided: BTreeMap<u64, Vec<Call<M>>> = BTreeMap::new();
    let mut add = |call: Call<M>| divided.entry(M::part(&call.operation)).or_default().push(call);
    for call in calls {
        let returned = call.returned.as_ref().map(|(_, returned)| returned);
        match M::components(&call.operation, returned, parts) {
            None => add(call.clone()),
            Some(components) => components.into_iter().for_each(|(operation, returned)| {
                let returned = call.returned.as_ref().map(|(position, _)| *position).zip(returned);
                add(Call { operation, returned, ..*call });
            }),
        }
    }
    divided
}
