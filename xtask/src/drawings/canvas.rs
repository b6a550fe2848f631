//! A drawing as SVG text, in the colours of the page that includes it.
//!
//! On a page of the book, the custom properties of mdBook's theme define the colours. A drawing that is opened alone defines them itself,
//! light or dark as the system requests. Labels have the width of a monospaced font, so the canvas can reject labels that do not fit.

use std::fmt::Write;

/// The height of letters, and the width of a letter in the widest usual monospaced font.
const LETTER: f64 = 12.0;
const LETTER_WIDTH: f64 = LETTER * 0.61;

const STYLE: &str = r#"<style>
svg.drawing:root { background: var(--bg); --bg: #ffffff; --fg: #1f2328; --links: #20609f; --quote-bg: #e9f1f8; --warning-border: #d97700; }
@media (prefers-color-scheme: dark) {
svg.drawing:root { --bg: #161923; --fg: #d0d4e0; --links: #5ab0e8; --quote-bg: #262f45; --warning-border: #ff8e00; }
}
svg.drawing { max-width: 100%; height: auto; }
svg.drawing text { font: 12px ui-monospace, "Source Code Pro", "DejaVu Sans Mono", monospace; fill: var(--fg); }
svg.drawing .strong { font-weight: bold; }
svg.drawing .line { stroke: var(--fg); stroke-width: 1.2; fill: none; }
svg.drawing .faint { stroke: var(--fg); stroke-width: 1; stroke-opacity: 0.45; fill: none; stroke-dasharray: 3 4; }
svg.drawing .plain { stroke: var(--fg); stroke-width: 1.2; fill: var(--bg); }
svg.drawing .filled { stroke: var(--links); stroke-width: 1.6; fill: var(--quote-bg); }
svg.drawing .empty { stroke: var(--fg); stroke-width: 1; stroke-opacity: 0.45; fill: none; stroke-dasharray: 3 4; }
svg.drawing .marked { stroke: var(--warning-border); stroke-width: 2.4; fill: var(--bg); }
svg.drawing .accent { stroke: var(--links); stroke-width: 1.6; fill: none; }
svg.drawing .head { stroke: none; fill: var(--fg); }
svg.drawing .accent-head { stroke: none; fill: var(--links); }
</style>
"#;

/// The style of a shape or a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// An ordinary line or box.
    Plain,
    /// A highlighted box.
    Filled,
    /// A dashed box or line.
    Faint,
    /// A box with a warning.
    Marked,
    /// A highlighted line.
    Accent,
}

/// The part of a label at its position.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing that is being made.
pub(super) struct Canvas {
    name: &'static str,
    width: f64,
    height: f64,
    body: String,
    faults: Vec<String>,
}

impl Canvas {
    pub(super) fn new(name: &'static str, width: f64, height: f64) -> Self {
        Self { name, width, height, body: String::new(), faults: Vec::new() }
    }

    /// A label with its baseline at `y`.
    pub(super) fn label(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        self.write_label(x, y, anchor, text, "");
    }

    /// A heading.
    pub(super) fn heading(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        self.write_label(x, y, anchor, text, " class=\"strong\"");
    }

    fn write_label(&mut self, x: f64, y: f64, anchor: Anchor, text: &str, class: &str) {
        let width = width_of(text);
        let (start, anchor) = match anchor {
            Anchor::Start => (x, "start"),
            Anchor::Middle => (x - width / 2.0, "middle"),
            Anchor::End => (x - width, "end"),
        };
        if start < 0.0 || start + width > self.width || y < LETTER || y > self.height {
            self.faults.push(format!("{}: the label `{text}` is not within the drawing", self.name));
        }
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(self.body, r#"<text x="{x}" y="{y}" text-anchor="{anchor}"{class}>{text}</text>"#);
    }

    /// A box with a centred label, which must fit.
    pub(super) fn labelled(&mut self, [x, y, width, height]: [f64; 4], look: Look, text: &str) {
        if width_of(text) > width - 4.0 || LETTER > height {
            self.faults.push(format!("{}: the label `{text}` is wider than its box", self.name));
        }
        self.rectangle([x, y, width, height], look);
        self.label(x + width / 2.0, y + height / 2.0 + LETTER * 0.35, Anchor::Middle, text);
    }

    pub(super) fn rectangle(&mut self, [x, y, width, height]: [f64; 4], look: Look) {
        let class = match look {
            Look::Plain => "plain",
            Look::Filled | Look::Accent => "filled",
            Look::Faint => "empty",
            Look::Marked => "marked",
        };
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="3"/>"#
        );
    }

    pub(super) fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], look: Look) {
        let class = line_class(look);
        let _ = writeln!(self.body, r#"<path class="{class}" d="M{x1} {y1} L{x2} {y2}"/>"#);
    }

    /// A line with an arrow head.
    pub(super) fn arrow(&mut self, from: [f64; 2], to: [f64; 2], look: Look) {
        self.line(from, to, look);
        self.head(to, [to[0] - from[0], to[1] - from[1]], look);
    }

    /// An arrow that passes below the boxes between its ends.
    pub(super) fn arc(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], depth: f64, look: Look) {
        let class = line_class(look);
        let low = y1.max(y2) + depth;
        let _ =
            writeln!(self.body, r#"<path class="{class}" d="M{x1} {y1} C{x1} {low} {x2} {low} {x2} {y2}"/>"#);
        self.head([x2, y2], [0.0, -1.0], look);
    }

    fn head(&mut self, [x, y]: [f64; 2], [dx, dy]: [f64; 2], look: Look) {
        let length = dx.hypot(dy);
        let (dx, dy) = (dx / length * 7.0, dy / length * 7.0);
        let class = if look == Look::Accent { "accent-head" } else { "head" };
        let corner = |side: f64| [x - dx - side * dy * 0.5, y - dy + side * dx * 0.5];
        let ([ax, ay], [bx, by]) = (corner(1.0), corner(-1.0));
        let _ = writeln!(
            self.body,
            r#"<path class="{class}" d="M{x:.1} {y:.1} L{ax:.1} {ay:.1} L{bx:.1} {by:.1} Z"/>"#
        );
    }

    /// The SVG, with a title and a description for screen readers.
    pub(super) fn finish(self, title: &str, description: &str) -> Result<String, String> {
        if let Some(fault) = self.faults.first() {
            return Err(fault.clone());
        }
        let Self { name, width, height, body, .. } = self;
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"drawing\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"{name}-title {name}-description\">\n\
             <title id=\"{name}-title\">{title}</title>\n\
             <desc id=\"{name}-description\">{description}</desc>\n{STYLE}{body}</svg>\n"
        ))
    }
}

/// A number of rows or columns, as a factor.
pub(super) fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The width of a label.
fn width_of(text: &str) -> f64 {
    count(text.chars().count()) * LETTER_WIDTH
}

fn line_class(look: Look) -> &'static str {
    match look {
        Look::Accent => "accent",
        Look::Faint => "faint",
        _ => "line",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_does_not_fit_is_an_error() {
        let drawn = |x: f64, text: &str, width: f64| {
            let mut canvas = Canvas::new("test", 100.0, 50.0);
            canvas.label(x, 20.0, Anchor::Start, text);
            canvas.labelled([10.0, 10.0, width, 20.0], Look::Plain, "box");
            canvas.finish("A title", "A description")
        };
        let svg = drawn(10.0, "a < b", 40.0).unwrap();
        assert!(svg.contains(">a &lt; b</text>") && !svg.contains("\n\n"), "{svg}");
        assert_eq!(
            drawn(80.0, "long", 40.0),
            Err("test: the label `long` is not within the drawing".to_owned())
        );
        assert_eq!(drawn(10.0, "a", 20.0), Err("test: the label `box` is wider than its box".to_owned()));
    }
}
