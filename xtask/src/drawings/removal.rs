//! The lazy list during a removal: the nodes that are locked, marked and linked after each step.
//!
//! The text is the trace of a simulated run, which a test of `farfield-examples` writes (`book_drawings.rs`). The drawing applies its
//! operations to the list, so each picture shows the list of that run.

use super::canvas::{Anchor, Canvas, Look, count};

const PANEL: f64 = 96.0;
/// The left edge of the nodes, the distance between two, and a node's size.
const LEFT: f64 = 282.0;
const DISTANCE: f64 = 122.0;
const WIDTH: f64 = 78.0;
const HEIGHT: f64 = 32.0;

/// A node of the list: its name, the node that it links to, and its flags.
#[derive(Clone)]
struct Node<'a> {
    name: &'a str,
    next: Option<usize>,
    is_locked: bool,
    is_deleted: bool,
    is_retired: bool,
}

/// The list after a step, and the step's description.
struct Step<'a> {
    operations: Vec<&'a str>,
    what: &'static str,
    nodes: Vec<Node<'a>>,
}

/// The steps of a removal: the operations that change the list.
fn steps(text: &str) -> Option<Vec<Step<'_>>> {
    let mut lines = text.lines();
    let names = lines.next()?.strip_prefix("list ")?.split(' ');
    let mut nodes: Vec<Node<'_>> = (1..)
        .zip(names)
        .map(|(next, name)| Node {
            name,
            next: Some(next),
            is_locked: false,
            is_deleted: false,
            is_retired: false,
        })
        .collect();
    nodes.last_mut()?.next = None;
    let names: Vec<&str> = nodes.iter().map(|node| node.name).collect();
    let of = |name: &str| names.iter().position(|known| *known == name);
    let mut steps = vec![Step { operations: vec![], what: "before", nodes: nodes.clone() }];
    for line in lines {
        let operation = line.split_once(' ')?.1;
        let words: Vec<&str> = operation.split([' ', '.']).collect();
        let what = match words[..] {
            ["READ", ..] => continue,
            ["CAS", name, "lock"] => {
                nodes[of(name)?].is_locked = true;
                "both nodes are locked"
            }
            ["WRITE", name, "lock"] => {
                nodes[of(name)?].is_locked = false;
                "the locks are released"
            }
            ["WRITE", name, "next", ":=", to, "deleted"] => {
                let (node, to) = (of(name)?, of(to)?);
                (nodes[node].next, nodes[node].is_deleted) = (Some(to), true);
                "marked: not in the set"
            }
            ["WRITE", name, "next", ":=", to] => {
                let (node, to) = (of(name)?, of(to)?);
                nodes[node].next = Some(to);
                "unlinked; readers may be in it"
            }
            ["retire", "node", name] => {
                nodes[of(name)?].is_retired = true;
                "freed when no guard can see it"
            }
            _ => return None,
        };
        // Consecutive operations of one kind are one picture.
        match steps.last_mut() {
            Some(step) if step.what == what => {
                step.operations.push(operation);
                step.nodes.clone_from(&nodes);
            }
            _ => steps.push(Step { operations: vec![operation], what, nodes: nodes.clone() }),
        }
    }
    Some(steps)
}

pub(super) fn draw(text: &str) -> Result<String, String> {
    let steps = steps(text).ok_or("removal.txt: an operation that this drawing does not know")?;
    let mut canvas = Canvas::new("removal", 760.0, count(steps.len()) * PANEL + 6.0);
    for (number, step) in (0u32..).zip(&steps) {
        let top = f64::from(number) * PANEL;
        if number > 0 {
            canvas.line([0.0, top], [760.0, top], Look::Faint);
        }
        canvas.heading(8.0, top + 28.0, Anchor::Start, step.what);
        for (line, operation) in (0u32..).zip(&step.operations) {
            canvas.label(8.0, top + 48.0 + f64::from(line) * 16.0, Anchor::Start, operation);
        }
        list(&mut canvas, top + 30.0, &step.nodes);
    }
    let described: Vec<String> =
        steps.iter().map(|step| format!("{}: {}", step.what, step.operations.join(", "))).collect();
    canvas.finish("A lazy list while a node is removed", &format!("{}.", described.join(". ")))
}

fn list(canvas: &mut Canvas, top: f64, nodes: &[Node<'_>]) {
    for (place, node) in nodes.iter().enumerate() {
        let x = LEFT + count(place) * DISTANCE;
        let look = match node {
            Node { is_retired: true, .. } => Look::Faint,
            Node { is_deleted: true, .. } => Look::Marked,
            _ => Look::Plain,
        };
        canvas.labelled([x, top, WIDTH, HEIGHT], look, node.name);
        let mut state = vec![];
        if node.is_locked {
            state.push("locked");
        }
        if node.is_retired {
            state.push("retired");
        } else if node.is_deleted {
            state.push("deleted");
        }
        if !state.is_empty() {
            canvas.label(x + WIDTH / 2.0, top - 7.0, Anchor::Middle, &state.join(", "));
        }
        let Some(next) = node.next else { continue };
        let look = if node.is_deleted { Look::Faint } else { Look::Plain };
        if next == place + 1 {
            canvas.arrow([x + WIDTH, top + HEIGHT / 2.0], [x + DISTANCE - 1.0, top + HEIGHT / 2.0], look);
        } else {
            let to = LEFT + count(next) * DISTANCE;
            let low = top + HEIGHT;
            canvas.arc([x + WIDTH * 0.7, low], [to + WIDTH * 0.3, low + 1.0], 26.0, Look::Accent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "list head 1 2 4\n1 READ node 1\n4 CAS 1.lock\n4 CAS 2.lock\n5 WRITE 2.next := 4 deleted\n\
                        5 WRITE 1.next := 4\n5 WRITE 2.lock\n5 WRITE 1.lock\n6 retire node 2\n";

    #[test]
    fn each_step_shows_the_list_after_it() {
        let steps = steps(TEXT).unwrap();
        assert_eq!(steps.len(), 6);
        let linked = |step: usize| {
            let nodes = &steps[step].nodes;
            let path = std::iter::successors(Some(0), |node: &usize| nodes[*node].next);
            path.map(|node| nodes[node].name).collect::<Vec<_>>()
        };
        assert_eq!(linked(2), ["head", "1", "2", "4"], "the marked node is still linked");
        assert!(steps[2].nodes[2].is_deleted && steps[1].nodes[1].is_locked);
        assert_eq!(linked(3), ["head", "1", "4"]);
        assert!(steps[5].nodes.iter().all(|node| !node.is_locked) && steps[5].nodes[2].is_retired);
        assert!(draw(TEXT).is_ok());
    }

    #[test]
    fn an_operation_that_is_not_known_is_an_error() {
        for wrong in ["", "list 1\n1 FAA 1\n", "list 1\n1 CAS 7.lock\n", "list 1\nREAD\n"] {
            assert!(draw(wrong).unwrap_err().contains("removal.txt"), "{wrong}");
        }
    }
}
