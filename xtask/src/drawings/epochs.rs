//! Guards and epochs over time: when a retired object is freed.
//!
//! Each line of the text is the next event. The drawing applies the rules of epochs, and rejects a text that breaks one: the epoch advances
//! from `e` only while each guard shows `e`; a tag is the epoch of the retiring thread's guard, plus one; memory with tag `t` is freed at
//! epoch `t + 2` or later.

use super::canvas::{Anchor, Canvas, Look, count};

const LEFT: f64 = 84.0;
const EVENT: f64 = 56.0;
const LANE: f64 = 54.0;
const TOP: f64 = 16.0;
const FIRST_EPOCH: usize = 1;
/// Number of epochs after its tag until memory is reused.
const GRACE: usize = 2;

/// A thread, and its guards: the first and last event, and the epoch that its slot shows.
struct Thread<'a> {
    name: &'a str,
    guards: Vec<(usize, Option<usize>, usize)>,
}

/// The events.
#[derive(Default)]
struct Timeline<'a> {
    threads: Vec<Thread<'a>>,
    /// The events at which the epoch advanced, and at which it could not.
    advances: Vec<usize>,
    refusals: Vec<(usize, &'a str)>,
    unlinked: Option<usize>,
    /// The event and the tag.
    retired: Option<(usize, usize)>,
    freed: Option<usize>,
    events: usize,
}

impl<'a> Timeline<'a> {
    fn of(text: &'a str) -> Result<Self, String> {
        let mut timeline = Self::default();
        for line in text.lines() {
            timeline.add(line).map_err(|why| format!("epochs.txt: `{line}`: {why}"))?;
            timeline.events += 1;
        }
        Ok(timeline)
    }

    fn epoch(&self) -> usize {
        FIRST_EPOCH + self.advances.len()
    }

    /// A thread whose guard shows an epoch other than the current one.
    fn behind(&self) -> Option<&'a str> {
        let epoch = self.epoch();
        let is_behind = |thread: &&Thread<'_>| {
            thread.guards.iter().any(|(_, until, shown)| until.is_none() && *shown != epoch)
        };
        self.threads.iter().find(is_behind).map(|thread| thread.name)
    }

    fn add(&mut self, line: &'a str) -> Result<(), &'static str> {
        let (now, epoch, behind) = (self.events, self.epoch(), self.behind());
        let (name, action) = line.split_once(' ').ok_or("not a thread and its action")?;
        match (name, action, behind) {
            ("epoch", "advances", None) => self.advances.push(now),
            ("epoch", "stays", Some(thread)) => self.refusals.push((now, thread)),
            ("epoch", "advances", _) => return Err("a guard shows an older epoch"),
            ("epoch", "stays", _) => return Err("no guard shows an older epoch"),
            _ => {
                if !self.threads.iter().any(|thread| thread.name == name) {
                    self.threads.push(Thread { name, guards: Vec::new() });
                }
                let thread = self.threads.iter_mut().find(|thread| thread.name == name).expect("it is there");
                let guard = thread.guards.last_mut().filter(|(_, until, _)| until.is_none());
                match (action, guard) {
                    ("pins", None) => thread.guards.push((now, None, epoch)),
                    ("unpins", Some((_, until, _))) => *until = Some(now),
                    ("unlinks", Some(_)) => self.unlinked = Some(now),
                    ("retires", Some((_, _, shown))) if self.unlinked.is_some() => {
                        self.retired = Some((now, *shown + 1));
                    }
                    ("frees", _) if self.retired.is_some_and(|(_, tag)| epoch >= tag + GRACE) => {
                        self.freed = Some(now);
                    }
                    ("frees", _) => return Err("the grace period is not over"),
                    _ => return Err("not possible with, or without, a guard"),
                }
            }
        }
        Ok(())
    }
}

/// The position of an event.
fn x_of(event: usize) -> f64 {
    LEFT + count(event) * EVENT + EVENT / 2.0
}

pub(super) fn draw(text: &str) -> Result<String, String> {
    let timeline = Timeline::of(text)?;
    let missing = "epochs.txt: an object is unlinked, retired and freed";
    let (Some(unlinked), Some((retired, tag)), Some(freed)) =
        (timeline.unlinked, timeline.retired, timeline.freed)
    else {
        return Err(missing.to_owned());
    };
    let end = LEFT + count(timeline.events) * EVENT;
    let lanes = count(timeline.threads.len()) + 2.0;
    let height = TOP + lanes * LANE + 44.0;
    let mut canvas = Canvas::new("epochs", end + 4.0, height);
    let middle = |lane: usize| TOP + count(lane) * LANE + LANE / 2.0;
    let bar = |from: f64, to: f64, lane: usize| [from, middle(lane) - 14.0, to - from, 28.0];

    canvas.heading(LEFT - 10.0, middle(0) + 4.0, Anchor::End, "epoch");
    let starts: Vec<f64> =
        std::iter::once(LEFT).chain(timeline.advances.iter().map(|at| x_of(*at))).collect();
    for (number, from) in (0..).zip(&starts) {
        let to = starts.get(number + 1).copied().unwrap_or(end);
        canvas.labelled(bar(*from, to, 0), Look::Plain, &(FIRST_EPOCH + number).to_string());
        if number > 0 {
            canvas.line([*from, middle(0) + 14.0], [*from, height - 40.0], Look::Faint);
        }
    }
    for (lane, thread) in (1..).zip(&timeline.threads) {
        canvas.heading(LEFT - 10.0, middle(lane) + 4.0, Anchor::End, thread.name);
        canvas.line([LEFT, middle(lane)], [end, middle(lane)], Look::Faint);
        for (from, until, epoch) in &thread.guards {
            let to = until.map_or(end, x_of);
            canvas.labelled(bar(x_of(*from), to, lane), Look::Filled, &format!("guard: epoch {epoch}"));
        }
        for (at, _) in timeline.refusals.iter().filter(|(_, behind)| *behind == thread.name) {
            canvas.line([x_of(*at), middle(0) + 14.0], [x_of(*at), middle(lane) - 14.0], Look::Accent);
        }
    }
    let lane = timeline.threads.len() + 1;
    canvas.heading(LEFT - 10.0, middle(lane) + 4.0, Anchor::End, "object");
    canvas.labelled(bar(LEFT, x_of(unlinked), lane), Look::Plain, "linked");
    canvas.rectangle(bar(x_of(unlinked), x_of(retired), lane), Look::Marked);
    let state = format!("retired with tag {tag}: freed from epoch {} on", tag + GRACE);
    canvas.labelled(bar(x_of(retired), x_of(freed), lane), Look::Marked, &state);
    canvas.labelled(bar(x_of(freed), end, lane), Look::Faint, "");
    let events = [(unlinked, "unlink"), (retired, "retire"), (freed, "free")];
    let advances = timeline.advances.iter().map(|at| (*at, "advance"));
    let refusals = timeline.refusals.iter().map(|(at, _)| (*at, "no advance"));
    for (at, event) in events.into_iter().chain(advances).chain(refusals) {
        // Neighbours are on two lines.
        let y = height - 24.0 + count(at % 2) * 16.0;
        canvas.label(x_of(at), y, Anchor::Middle, event);
    }
    let events = text.lines().collect::<Vec<_>>().join(", ");
    canvas.finish("Guards and epochs over time", &format!("In order: {events}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "reader pins\nremover pins\nremover unlinks\nremover retires\nepoch advances\nremover unpins\n\
                        epoch stays\nreader unpins\nepoch advances\nepoch advances\nremover frees\n";

    #[test]
    fn an_object_is_freed_after_its_grace_period() {
        let timeline = Timeline::of(TEXT).unwrap();
        assert_eq!((timeline.retired, timeline.freed, timeline.epoch()), (Some((3, 2)), Some(10), 4));
        assert!(draw(TEXT).unwrap().contains("retired with tag 2: freed from epoch 4 on"));
    }

    #[test]
    fn the_grace_period_is_the_runtimes() {
        let declared = "const GRACE_EPOCHS: u64 = ";
        let sources = crate::workspace::files(&crate::workspace::root().join("runtime"), "rs");
        let texts: Vec<String> = sources.iter().map(|path| crate::workspace::read(path).unwrap()).collect();
        let mut found = texts.iter().filter_map(|text| text.split_once(declared)?.1.split(';').next());
        assert_eq!((found.next(), found.next()), (Some(GRACE.to_string().as_str()), None));
    }

    #[test]
    fn a_text_that_breaks_a_rule_of_epochs_is_rejected() {
        for (sound, broken, why) in [
            ("epoch stays\n", "epoch advances\n", "a guard shows an older epoch"),
            (
                "epoch advances\nremover unpins",
                "epoch stays\nremover unpins",
                "no guard shows an older epoch",
            ),
            ("epoch advances\nremover frees", "remover frees", "the grace period is not over"),
            ("remover pins\n", "", "not possible"),
            ("reader unpins\n", "reader pins\n", "not possible"),
            ("remover unlinks\n", "", "not possible"),
            ("remover frees", "remover rests", "not possible"),
            ("remover frees\n", "", "an object is unlinked, retired and freed"),
            ("reader pins", "reader", "not a thread"),
        ] {
            let error = draw(&TEXT.replacen(sound, broken, 1)).unwrap_err();
            assert!(error.starts_with("epochs.txt: ") && error.contains(why), "{broken}: {error}");
        }
    }
}
