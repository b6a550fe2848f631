//! The way of a batch of requests as a timeline, between a client and its trustee.
//!
//! The text has a line for each step, in the order of time: `client`, `there`, `trustee` or `back`, and what happens or travels.

use super::canvas::{Anchor, Canvas, Look};

const TOP: f64 = 60.0;
/// The height of a step.
const STEP: f64 = 30.0;
const WIDTH: f64 = 760.0;
/// The positions of both threads.
const CLIENT: f64 = 240.0;
const TRUSTEE: f64 = 520.0;

pub(super) fn draw(text: &str) -> Result<String, String> {
    let steps: Option<Vec<(&str, &str)>> = text.lines().map(|line| line.split_once(' ')).collect();
    let steps = steps.filter(|steps| !steps.is_empty());
    let steps = steps.ok_or("request.txt: not lines of a place and a step")?;
    let rows = (0_u32..).zip(&steps).map(|(row, step)| (TOP + 20.0 + f64::from(row) * STEP, step));
    let end = TOP + 20.0 + rows.clone().count().try_into().map_or(0.0, |count: u32| f64::from(count)) * STEP;
    let mut canvas = Canvas::new("request", WIDTH, end + 10.0);
    for (x, name) in [(CLIENT, "client"), (TRUSTEE, "trustee")] {
        canvas.heading(x, TOP - 20.0, Anchor::Middle, name);
        canvas.line([x, TOP - 10.0], [x, end], Look::Faint);
    }
    for (y, (place, step)) in rows {
        match *place {
            "client" => canvas.label(CLIENT - 12.0, y, Anchor::End, step),
            "trustee" => canvas.label(TRUSTEE + 12.0, y, Anchor::Start, step),
            "there" | "back" => {
                let (from, to) = if *place == "there" { (CLIENT, TRUSTEE) } else { (TRUSTEE, CLIENT) };
                canvas.label(f64::midpoint(CLIENT, TRUSTEE), y - 8.0, Anchor::Middle, step);
                canvas.arrow([from, y - 4.0], [to, y + 6.0], Look::Accent);
            }
            other => return Err(format!("request.txt: {other} is no place")),
        }
    }
    let description = "A timeline of a batch of three requests, between a client and its trustee. The client writes the batch into a slot in the trustee's \
         memory; the trustee calls the functions, and writes the answers into a slot that the client reads.";
    canvas.finish("The way of a batch of requests", description)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_a_place() {
        let svg = draw("client requests\nthere batch\ntrustee calls\nback answers\n").unwrap();
        assert!(
            ["requests", "batch", "calls", "answers"]
                .iter()
                .all(|step| svg.contains(&format!(">{step}</text>")))
        );
        for wrong in ["", "client\n", "nowhere a step\n"] {
            assert!(draw(wrong).unwrap_err().contains("request.txt"), "{wrong}");
        }
    }
}
