//! A struct's layout in far memory, and in its handle.
//!
//! The text is computed by the macro, and a test of `farfield-examples` writes it (`book_reference.rs`).

use super::canvas::{Anchor, Canvas, Look, count};

const ROW: f64 = 26.0;
/// The left edge of far memory, and the width of a byte.
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const BYTE: f64 = 42.0;
const HANDLE: f64 = 520.0;
const HANDLE_WIDTH: f64 = 220.0;

/// The kind of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A copy is in the handle.
    Frozen,
    Place,
    /// Its length is in the handle; its elements have this number of bytes.
    Tail(usize),
}

struct Field<'a> {
    name: &'a str,
    offset: usize,
    size: usize,
    kind: Kind,
}

/// A struct's name, its size, its fields, and the handle's own fields.
struct Layout<'a> {
    name: &'a str,
    size: usize,
    fields: Vec<Field<'a>>,
    locals: Vec<&'a str>,
}

fn parse(text: &str) -> Option<Layout<'_>> {
    let mut layout = Layout { name: "", size: 0, fields: Vec::new(), locals: Vec::new() };
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["struct", name, size] => (layout.name, layout.size) = (name, size.parse().ok()?),
            ["local", name] => layout.locals.push(name),
            ["field", name, offset, size, ref kind @ ..] => {
                let kind = match *kind {
                    ["frozen"] => Kind::Frozen,
                    ["place"] => Kind::Place,
                    ["tail", stride] => Kind::Tail(stride.parse().ok()?),
                    _ => return None,
                };
                layout.fields.push(Field {
                    name,
                    offset: offset.parse().ok()?,
                    size: size.parse().ok()?,
                    kind,
                });
            }
            _ => return None,
        }
    }
    Some(layout)
}

pub(super) fn draw(text: &str) -> Result<String, String> {
    let layout = parse(text).ok_or("layout.txt: a line is neither `struct`, `field` nor `local`")?;
    let rows = count(layout.size.div_ceil(8));
    let height = TOP + (rows + 1.0) * ROW + 70.0;
    let mut canvas = Canvas::new("layout", 760.0, height);
    let title = format!("{}: {} bytes of far memory", layout.name, layout.size);
    canvas.heading(LEFT, 24.0, Anchor::Start, &title);
    canvas.label(LEFT - 10.0, TOP - 8.0, Anchor::End, "offset");
    canvas.heading(HANDLE, 24.0, Anchor::Start, "its handle, in a thread");
    for row in 0..layout.size.div_ceil(8) {
        canvas.label(LEFT - 10.0, TOP + count(row) * ROW + 18.0, Anchor::End, &(row * 8).to_string());
    }
    let mut end = 0;
    for field in &layout.fields {
        segments(&mut canvas, end, field.offset, Look::Faint, "padding");
        let look = if field.kind == Kind::Place { Look::Plain } else { Look::Filled };
        segments(&mut canvas, field.offset, field.offset + field.size, look, field.name);
        end = field.offset + field.size;
        if let Kind::Tail(stride) = field.kind {
            let text = format!("elements of {}, {stride} bytes each", field.name);
            canvas.labelled([LEFT, TOP + rows * ROW, 8.0 * BYTE, ROW], Look::Plain, &text);
        }
    }
    segments(&mut canvas, end, layout.size, Look::Faint, "padding");

    let mut y = TOP;
    let mut row = |canvas: &mut Canvas, look, text: &str| {
        canvas.labelled([HANDLE, y, HANDLE_WIDTH, ROW], look, text);
        y += ROW;
        [HANDLE, y - ROW / 2.0]
    };
    let address = row(&mut canvas, Look::Plain, "address");
    canvas.arrow(address, [LEFT + 8.0 * BYTE + 2.0, TOP + ROW * 0.25], Look::Plain);
    for field in layout.fields.iter().filter(|field| field.kind != Kind::Place) {
        let text = match field.kind {
            Kind::Tail(_) => format!("length of {}", field.name),
            _ => format!("copy of {}", field.name),
        };
        row(&mut canvas, Look::Filled, &text);
    }
    for local in &layout.locals {
        row(&mut canvas, Look::Plain, &format!("{local}, local"));
    }

    let y = height - 40.0;
    for (x, look, text) in [
        (LEFT, Look::Filled, "frozen: also in the handle"),
        (LEFT + 240.0, Look::Plain, "reached by a round trip"),
        (LEFT + 460.0, Look::Faint, "not used"),
    ] {
        canvas.rectangle([x, y - 11.0, 22.0, 14.0], look);
        canvas.label(x + 30.0, y, Anchor::Start, text);
    }
    let names = |kind: fn(Kind) -> bool| {
        let names = layout.fields.iter().filter(|field| kind(field.kind)).map(|field| field.name);
        names.collect::<Vec<_>>().join(", ")
    };
    let description = format!(
        "The words of far memory from offset 0 to {}. The handle has the address, copies of the frozen fields {}, and the \
         local fields {}. The fields {} are reached by round trips.",
        layout.size,
        names(|kind| kind == Kind::Frozen),
        layout.locals.join(", "),
        names(|kind| kind == Kind::Place)
    );
    canvas.finish(&format!("The layout of {} in far memory and in its handle", layout.name), &description)
}

/// Draws the bytes from `start` to `end`, row by row; consecutive full rows are one box.
fn segments(canvas: &mut Canvas, start: usize, end: usize, look: Look, text: &str) {
    let mut at = start;
    while at < end {
        let rows = if at.is_multiple_of(8) { ((end - at) / 8).max(1) } else { 1 };
        let until = end.min((at / 8 + rows) * 8);
        let bytes = if rows > 1 { 8 } else { until - at };
        let [x, y] = [LEFT + count(at % 8) * BYTE, TOP + count(at / 8) * ROW];
        canvas.labelled([x, y, count(bytes) * BYTE, count(rows) * ROW], look, text);
        at = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_and_the_padding_between_is_drawn() {
        let text = "struct Job 24\nfield id 0 8 frozen\nfield state 12 4 place\nfield rest 16 8 tail 2\nlocal seen\n";
        let svg = draw(text).unwrap();
        for label in ["id", "padding", "state", "rest", "copy of id", "length of rest", "seen, local"] {
            assert!(svg.contains(&format!(">{label}</text>")), "{label}");
        }
        assert!(!svg.contains("copy of state"), "a field that changes is not in the handle");
        assert!(draw("struct Job\n").unwrap_err().contains("layout.txt"));
        assert!(draw("struct Job 8\nfield id 0 8 frosen\n").is_err());
    }
}
