//! Timelines: a history as a diagram, with a column for each client; time runs downwards.
//!
//! An operation is a bracket from its invocation to its return, so overlapping operations stand side by side.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use farfield::sim::Client;

use crate::history::{Call, calls};
use crate::model::{AT_THE_END, EventOf, Model};

/// Draws a history: one line for each event.
///
/// ```
/// # use std::time::Duration;
/// # use farfield::sim::{Client, Event, Happened::{Invoked, Returned}};
/// # struct Flag;
/// # impl farfield_testing::Model for Flag {
/// #     type Operation = &'static str;
/// #     type Returned = bool;
/// #     type State = bool;
/// #     fn step(state: &mut bool, _: &&'static str) -> bool { std::mem::replace(state, true) }
/// # }
/// let event = |us, thread, happened| {
///     Event { client: Client { thread, task: 0 }, at: Duration::from_micros(us), happened }
/// };
/// let events = [
///     event(1, 0, Invoked("set")), event(2, 1, Invoked("set")), event(4, 0, Returned(false)), event(5, 1, Returned(true)),
/// ];
/// assert_eq!(farfield_testing::timeline::<Flag>(&events), "
///                   thread 0   thread 1
///        1.000 us   ┌ \"set\"
///        2.000 us   │          ┌ \"set\"
///        4.000 us   └ false    │
///        5.000 us              └ true
/// ".trim_start_matches('\n'));
/// ```
pub fn timeline<M: Model>(events: &[EventOf<M>]) -> String {
    let times: Vec<Duration> = events.iter().map(|event| event.at).collect();
    draw(&calls::<M>(events), &times, None)
}

/// Draws calls. An arrow marks the return of the call `marked`.
pub(crate) fn draw<M: Model>(calls: &[Call<M>], times: &[Duration], marked: Option<usize>) -> String {
    let clients: BTreeSet<Client> = calls.iter().map(|call| call.client).collect();
    let columns: Vec<Client> = clients.into_iter().collect();
    let with_tasks = columns.iter().any(|client| client.task > 0);
    let column = |client| columns.binary_search(&client).unwrap_or_default();

    // For each event: position, column, text, and true if its bracket is open below it.
    let mut rows: Vec<(usize, usize, String, bool)> = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let shown = M::show(&call.operation);
        let at = column(call.client);
        match &call.returned {
            None => rows.push((call.invoked, at, format!("┌ {shown} (no return)"), true)),
            Some((position, returned)) => {
                let mark = if marked == Some(number) { "  <--" } else { "" };
                rows.push((call.invoked, at, format!("┌ {shown}"), true));
                rows.push((*position, at, format!("└ {}{mark}", M::show_returned(returned)), false));
            }
        }
    }
    rows.sort_by_key(|(position, ..)| *position);

    let mut widths: Vec<usize> =
        columns.iter().map(|client| name(*client, with_tasks).chars().count()).collect();
    for (_, at, shown, _) in &rows {
        widths[*at] = widths[*at].max(shown.chars().count());
    }
    let line = |first: &str, cells: &[String]| {
        let mut line = format!("{first:>15}");
        for (cell, width) in cells.iter().zip(&widths) {
            // Writing to a string does not fail.
            let _ = write!(line, "   {cell:<width$}");
        }
        format!("{}\n", line.trim_end())
    };
    let names: Vec<String> = columns.iter().map(|client| name(*client, with_tasks)).collect();
    let mut drawn = line("", &names);
    let mut open = vec![false; columns.len()];
    for (position, at, shown, opens) in rows {
        let bar = |open: &bool| if *open { "│".to_owned() } else { String::new() };
        let mut row: Vec<String> = open.iter().map(bar).collect();
        row[at] = shown;
        open[at] = opens;
        drawn += &line(&time(times[position]), &row);
    }
    drawn
}

/// The name of a client.
pub(crate) fn name(client: Client, with_tasks: bool) -> String {
    let Client { thread, task } = client;
    match (client, with_tasks) {
        (AT_THE_END, _) => "at the end".to_owned(),
        (_, true) => format!("thread {thread} task {task}"),
        (_, false) => format!("thread {thread}"),
    }
}

/// A virtual time, to the nanosecond.
pub(crate) fn time(at: Duration) -> String {
    let (us, ns) = (at.as_micros(), at.subsec_nanos() % 1000);
    format!("{us:>8}.{ns:03} us")
}
