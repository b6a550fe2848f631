//! Connections: the order in which a thread's chains to a memory node are announced and executed.

use std::iter::successors;

use super::events::Event;
use super::world::{Flight, NONE, Thread, World};
use crate::config::Picos;

/// A thread's connection to a memory node: chains on it are executed in the order in which they were posted.
///
/// Chains that have not been executed form a list: each flight has the [next](Flight::next). So a connection needs no memory of its own, which with
/// ten thousand threads would never be in the processor's cache.
pub(super) struct Connection {
    pub(super) node: u16,
    pub(super) front: u32,
    pub(super) back: u32,
    /// The time of the last doorbell, and the departure of the chains that it announced.
    pub(super) rung: Option<(Picos, Picos)>,
}

impl Connection {
    pub(super) fn new(node: u16) -> Self {
        Self { node, front: NONE, back: NONE, rung: None }
    }
}

impl Thread {
    /// Returns the thread's connection to `node`.
    #[inline]
    pub(super) fn connection(&mut self, node: u16) -> &mut Connection {
        let first = self.first_connection.get_or_insert_with(|| Connection::new(node));
        if first.node == node {
            return first;
        }
        let position =
            self.other_connections.iter().position(|connection| connection.node == node).unwrap_or_else(
                || {
                    self.other_connections.push(Connection::new(node));
                    self.other_connections.len() - 1
                },
            );
        &mut self.other_connections[position]
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.first_connection.iter().chain(&self.other_connections)
    }
}

impl World {
    /// Announces a chain that is ready at `posted_at` to the compute node's NIC. Returns its departure and whether it took a doorbell. Chains
    /// that one thread posts to one memory node in one poll share a doorbell.
    pub(super) fn ring(&mut self, thread: u32, compute: usize, node: u16, posted_at: Picos) -> (Picos, bool) {
        let mut connection = self.threads.get_mut(thread as usize).map(|thread| thread.connection(node));
        if let Some(Connection { rung: Some((at, departs_at)), .. }) = connection
            && *at == self.now
        {
            return (posted_at.max(*departs_at), false);
        }
        let nic = &mut self.compute_nodes[compute].nic_free_at;
        let departs_at = posted_at.max(*nic);
        *nic = departs_at + self.config.doorbell;
        if let Some(connection) = &mut connection {
            connection.rung = Some((self.now, departs_at));
        }
        self.doorbell_delays_arrivals(compute);
        (departs_at, true)
    }

    /// Returns whether a thread has chains that have not been executed.
    pub(super) fn is_underway(&self, thread: u32) -> bool {
        let thread = self.threads.get(thread as usize);
        thread.is_some_and(|thread| thread.connections().any(|connection| connection.front != NONE))
    }

    /// Returns the chains of a thread that have not been executed: for each connection, in order.
    pub(super) fn underway(&self, thread: u32) -> Vec<Vec<u32>> {
        let after = |flight: u32| (flight != NONE).then_some(flight);
        let chains = |connection: &Connection| {
            successors(after(connection.front), |flight| after(self.flights[*flight as usize].next)).collect()
        };
        self.threads[thread as usize].connections().map(chains).collect()
    }

    /// Returns whether it is a chain's turn on its connection. If not, the chain arrives again when it is.
    pub(super) fn is_its_turn(&mut self, index: u32) -> bool {
        let Flight { thread, node, .. } = self.flights[index as usize];
        let Some(thread) = self.threads.get_mut(thread as usize) else { return true };
        let turn = thread.connection(node).front == index;
        self.flights[index as usize].awaits_turn = !turn;
        turn
    }

    /// Returns the first chain of a chain's connection.
    pub(super) fn front_of_connection(&mut self, index: u32) -> Option<u32> {
        let Flight { thread, node, .. } = self.flights[index as usize];
        let front = self.threads.get_mut(thread as usize)?.connection(node).front;
        (front != NONE).then_some(front)
    }

    /// Returns whether the next chain on the connection waits for this one to be executed.
    pub(super) fn is_followed(&self, index: u32) -> bool {
        // A flight that has begun is the first of its connection.
        let next = self.flights[index as usize].next;
        next != NONE && self.flights[next as usize].awaits_turn
    }

    /// Ends the turn of a chain that was executed or has failed; the next chain of the connection arrives again if it waits.
    pub(super) fn end_turn(&mut self, index: u32) {
        let Flight { thread, node, .. } = self.flights[index as usize];
        let Some(thread) = self.threads.get_mut(thread as usize) else { return };
        let connection = thread.connection(node);
        if connection.front == index {
            connection.front = self.flights[index as usize].next;
        }
        let next = connection.front;
        if next != NONE && std::mem::take(&mut self.flights[next as usize].awaits_turn) {
            self.events.push(self.now, Event::Arrive(next));
        }
    }
}
