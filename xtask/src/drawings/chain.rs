//! An insertion as a timeline, one operation at a time and in chains.
//!
//! The text is the trace of a simulated run, which a test of `farfield-examples` writes (`book_drawings.rs`).

use super::canvas::{Anchor, Canvas, Look, count};

const TOP: f64 = 70.0;
/// The height of a round trip.
const TRIP: f64 = 64.0;
/// A panel's width, and the positions of the thread, the NIC and the memory node in it.
const PANEL: f64 = 380.0;
const THREAD: f64 = 40.0;
const NIC: f64 = 110.0;
const NODE: f64 = 215.0;

/// The operations of each round trip.
type Trips<'a> = Vec<Vec<&'a str>>;

fn parse(text: &str) -> Option<[Trips<'_>; 2]> {
    let (naive, chains) = text.trim().split_once("\n\n")?;
    Some([trips(naive.strip_prefix("naive\n")?)?, trips(chains.strip_prefix("chains\n")?)?])
}

fn trips(text: &str) -> Option<Trips<'_>> {
    let mut trips: Trips<'_> = Vec::new();
    for line in text.lines() {
        let (trip, operation) = line.split_once(' ')?;
        let trip: usize = trip.parse().ok()?;
        if trip == trips.len() + 1 {
            trips.push(Vec::new());
        } else if trip != trips.len() {
            return None;
        }
        trips.last_mut()?.push(operation);
    }
    Some(trips)
}

pub(super) fn draw(text: &str) -> Result<String, String> {
    let [naive, chains] =
        parse(text).ok_or("chain.txt: not `naive` and `chains` with numbered operations")?;
    let most = count(naive.len().max(chains.len()));
    let height = TOP + most * TRIP + 50.0;
    let mut canvas = Canvas::new("chain", 2.0 * PANEL, height);
    for (left, name, trips) in [(0.0, "one operation at a time", &naive), (PANEL, "chains", &chains)] {
        canvas.heading(left + THREAD - 25.0, 20.0, Anchor::Start, name);
        for (x, name) in [(THREAD, "thread"), (NIC, "NIC"), (NODE, "memory node")] {
            canvas.label(left + x, 46.0, Anchor::Middle, name);
            canvas.line([left + x, 54.0], [left + x, TOP + count(trips.len()) * TRIP + 10.0], Look::Faint);
        }
        for (number, operations) in (0u32..).zip(trips) {
            trip(&mut canvas, left, TOP + f64::from(number) * TRIP, operations);
        }
        let end = TOP + count(trips.len()) * TRIP + 32.0;
        canvas.heading(left + THREAD - 25.0, end, Anchor::Start, &format!("{} round trips", trips.len()));
    }
    let description = format!(
        "Two timelines of one insertion, between a thread, its NIC and a memory node. On the left each of {} operations is a round \
         trip of its own. On the right chains carry several operations: {} round trips.",
        naive.len(),
        chains.len()
    );
    canvas.finish("An insertion, one operation at a time and in chains", &description)
}

/// Draws one round trip from `top` on: a doorbell, the operations in order, and one completion.
fn trip(canvas: &mut Canvas, left: f64, top: f64, operations: &[&str]) {
    let spacing = 12.0;
    let first = top + 10.0;
    let last = first + spacing * count(operations.len() - 1);
    canvas.arrow([left + THREAD, top], [left + NIC, top + 4.0], Look::Accent);
    for (number, operation) in (0u32..).zip(operations) {
        let y = first + spacing * f64::from(number);
        canvas.arrow([left + NIC, y - 5.0], [left + NODE, y], Look::Plain);
        canvas.label(left + NODE + 8.0, y + 4.0, Anchor::Start, operation);
    }
    canvas.arrow([left + NODE, last + 3.0], [left + NIC, top + TRIP - 6.0], Look::Plain);
    canvas.arrow([left + NIC, top + TRIP - 6.0], [left + THREAD, top + TRIP - 2.0], Look::Accent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_one_round_trip_of_several_operations() {
        let svg = draw("naive\n1 READ a\n2 READ b\n\nchains\n1 READ a\n1 READ b\n").unwrap();
        assert!(svg.contains("2 round trips") && svg.contains("1 round trips"));
        assert_eq!(svg.matches(">READ b</text>").count(), 2);
        for wrong in ["naive\n1 READ a\n", "naive\n2 READ a\n\nchains\n1 READ a\n", "naive\nREAD\n\nchains\n"]
        {
            assert!(draw(wrong).unwrap_err().contains("chain.txt"), "{wrong}");
        }
    }
}
