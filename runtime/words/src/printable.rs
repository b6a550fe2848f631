//! Untrusted text on one line of output.
//!
//! Names, URLs, paths and a peer's reasons may hold any character: a newline that forges a line of a log, an escape
//! sequence that recolours a terminal or moves its cursor, a mark that reverses the order in which the rest is shown. All messages of
//! [`Error`](crate::Error) are written through [`Printable`], so a message is one line for any values.

use std::fmt::{self, Write};

/// Shows text with its control characters, line separators and invisible formatting marks escaped as in Rust's literals: `\n`,
/// `\u{1b}`. All other characters stay as they are, quotes and backslashes too.
///
/// ```
/// use farfield_words::error::Printable;
///
/// assert_eq!(Printable("a \u{1b}[31mred\nname").to_string(), "a \\u{1b}[31mred\\nname");
/// assert_eq!(Printable("naïve `set`").to_string(), "naïve `set`");
/// ```
#[derive(Clone, Copy)]
pub struct Printable<T>(pub T);

impl<T: fmt::Display> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

impl<T: fmt::Display> fmt::Debug for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A formatter that escapes what passes through it.
struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unprintable(*c)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", c.escape_default())?;
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Returns whether a character has no picture, or changes the display of others: control characters, line and paragraph separators,
/// zero-width and bidirectional marks, tags.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("plain", "plain"),
            ("", ""),
            ("a\nb\r\tc\0", "a\\nb\\r\\tc\\u{0}"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("user\u{202e}txt.exe\u{2066}", "user\\u{202e}txt.exe\\u{2066}"),
            ("line\u{2028}line\u{200b}", "line\\u{2028}line\\u{200b}"),
            ("größe 数 \"quoted\" \\ 🦀", "größe 数 \"quoted\" \\ 🦀"),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_printed_as_one_line_of_printable_characters(text: String) {
            let shown = Printable(&text).to_string();
            assert!(!shown.chars().any(is_unprintable), "{shown:?}");
            assert!(shown.lines().count() <= 1);
        }
    }
}
