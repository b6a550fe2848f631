//! Connections: in which order the chains of a thread to a memory node are announced and executed.

use std::iter::successors;

use super::events::Event;
use super::world::{Flight, NONE, Thread, World};
use crate::config::Picos;

/// A thread's connection to a memory node: chains on it are executed in the order in which they were posted.
///
/// Those that have not been executed are a list: each flight has the [next](Flight::next). A lane so needs no memory of its
/// own, which with ten thousand threads would be out of the processor's cache whenever it is needed.
pub(super) struct Lane {
    pub(super) node: u16,
    pub(super) front: u32,
    pub(super) back: u32,
    /// When its doorbell was last rung, and when what it announced departs.
    pub(super) rung: Option<(Picos, Picos)>,
}

impl Lane {
    pub(super) fn new(node: u16) -> Self {
        Self { node, front: NONE, back: NONE, rung: None }
    }
}

impl Thread {
    /// Its connection to `node`.
    #[inline]
    pub(super) fn lane(&mut self, node: u16) -> &mut Lane {
        let first = self.first_lane.get_or_insert_with(|| Lane::new(node));
        if first.node == node {
            return first;
        }
        let position = self.other_lanes.iter().position(|lane| lane.node == node).unwrap_or_else(|| {
            self.other_lanes.push(Lane::new(node));
            self.other_lanes.len() - 1
        });
        &mut self.other_lanes[position]
    }

    pub(super) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.first_lane.iter().chain(&self.other_lanes)
    }
}

impl World {
    /// Announces a chain that is ready at `posted_at` to the compute node's NIC; gives when it departs and whether a doorbell was rung for
    /// it. What one thread posts to one memory node in one poll shares a doorbell.
    pub(super) fn ring(&mut self, thread: u32, compute: usize, node: u16, posted_at: Picos) -> (Picos, bool) {
        let mut lane = self.threads.get_mut(thread as usize).map(|thread| thread.lane(node));
        if let Some(Lane { rung: Some((at, departs_at)), .. }) = lane
            && *at == self.now
        {
            return (posted_at.max(*departs_at), false);
        }
        let nic = &mut self.computes[compute].nic_free_at;
        let departs_at = posted_at.max(*nic);
        *nic = departs_at + self.config.doorbell;
        if let Some(lane) = &mut lane {
            lane.rung = Some((self.now, departs_at));
        }
        (departs_at, true)
    }

    /// Whether chains of a thread have not been executed.
    pub(super) fn is_underway(&self, thread: u32) -> bool {
        let thread = self.threads.get(thread as usize);
        thread.is_some_and(|thread| thread.lanes().any(|lane| lane.front != NONE))
    }

    /// Chains of a thread that have not been executed: for each of its connections, in order.
    pub(super) fn underway(&self, thread: u32) -> Vec<Vec<u32>> {
        let after = |flight: u32| (flight != NONE).then_some(flight);
        let chains = |lane: &Lane| {
            successors(after(lane.front), |flight| after(self.flights[*flight as usize].next)).collect()
        };
        self.threads[thread as usize].lanes().map(chains).collect()
    }

    /// Whether it is a chain's turn on its connection; if not, it is woken when it is.
    pub(super) fn is_its_turn(&mut self, index: u32) -> bool {
        let Flight { thread, node, .. } = self.flights[index as usize];
        let Some(thread) = self.threads.get_mut(thread as usize) else { return true };
        let turn = thread.lane(node).front == index;
        self.flights[index as usize].early = !turn;
        turn
    }

    /// The chain whose turn it is on a chain's connection.
    pub(super) fn front_of_lane(&mut self, index: u32) -> Option<u32> {
        let Flight { thread, node, .. } = self.flights[index as usize];
        let front = self.threads.get_mut(thread as usize)?.lane(node).front;
        (front != NONE).then_some(front)
    }

    /// Whether the next chain on its connection waits for a chain to be executed.
    pub(super) fn is_followed(&self, index: u32) -> bool {
        // A flight that is begun is the first of its connection.
        let next = self.flights[index as usize].next;
        next != NONE && self.flights[next as usize].early
    }

    /// A chain has been executed, or never will be: the next one of its connection has its turn, if it is there.
    pub(super) fn end_turn(&mut self, index: u32) {
        let Flight { thread, node, .. } = self.flights[index as usize];
        let Some(thread) = self.threads.get_mut(thread as usize) else { return };
        let lane = thread.lane(node);
        if lane.front == index {
            lane.front = self.flights[index as usize].next;
        }
        let next = lane.front;
        if next != NONE && std::mem::take(&mut self.flights[next as usize].early) {
            self.agenda.push(self.now, Event::Arrive(next));
        }
    }
}
