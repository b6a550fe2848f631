//! Histories as calls: each invocation with its return.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

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
