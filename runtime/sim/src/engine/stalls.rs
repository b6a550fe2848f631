//! Stalls in virtual time: see [`stall`](farfield_fabric::stall).
//!
//! A wait longer than the limit *of virtual time* is reported, except a sleep of the program. This module checks chains in flight; other waits are in
//! the threads' tables, which are checked between two polls, without the world's lock. A check precedes the first event that is a quarter of the
//! limit later than the last check: otherwise the event could end a wait and hide it.
//!
//! Costs, if stalls are not reported: a comparison for each event.

use std::time::Duration;

use super::world::{Stage, World};
use crate::books::trace::field_name;
use crate::config::{self, Picos, duration, picos};
use farfield_fabric::error::Result;
use farfield_fabric::stall::{WatchedSimulation, watch_simulation};
use farfield_words::Address;

impl World {
    /// Enables reports of stalls.
    ///
    /// # Errors
    /// [`Error::System`](farfield_fabric::Error::System) if the system starts no more threads.
    pub fn report_stalls(&mut self, limit: Duration) -> Result<()> {
        let simulated = WatchedSimulation::new(limit);
        watch_simulation(&simulated)?;
        self.stalls = Some(simulated);
        self.look_for_stalls_at = 0;
        Ok(())
    }

    /// Returns a line for each unreported chain that has been in flight for `limit` or longer.
    fn stalled_flights(&mut self, now: Picos, limit: Picos) -> Vec<String> {
        let books = &self.books;
        let field = |at: Address| {
            let object = books.object(at);
            object.map_or_else(String::new, |(object_type, start)| {
                format!(" ({})", field_name(object_type, at.bits() - start.bits()))
            })
        };
        let mut lines = Vec::new();
        for flight in &mut self.flights {
            let waited = now.saturating_sub(flight.posted_at);
            let is_under_way = matches!(flight.stage, Stage::Scheduled | Stage::Forgotten);
            let op =
                flight.chain.ops().first().filter(|_| is_under_way && waited >= limit && !flight.is_reported);
            let Some(op) = op else { continue };
            flight.is_reported = true;
            lines.push(format!(
                "thread {}, task {}: has waited for {:.1?}: {} of {} words at {}{}, in flight to {}",
                flight.thread,
                flight.task,
                config::duration(waited),
                op.name(),
                op.words(),
                op.at(),
                field(op.at()),
                books.names().node(flight.node)
            ));
        }
        lines
    }

    /// Collects the chains that have stalled before the event at `at`, and requests a check of the threads' waits.
    #[cold]
    pub(super) fn look_for_stalls(&mut self, at: Picos) {
        let Some(stalls) = self.stalls.clone() else { return };
        let limit = picos(stalls.limit());
        self.look_for_stalls_at = at.saturating_add((limit / 4).max(1));
        let lines = self.stalled_flights(at, limit);
        self.stalled.get_or_insert_with(Vec::new).extend(lines);
        stalls.set_time(duration(at));
    }
}
