//! The book's drawings: SVG generated from small texts.
//!
//! | drawing | source | written by |
//! |---|---|---|
//! | `layout.svg` | `book/drawings/layout.txt` | a test, from a struct's layout as `#[remote]` computes it |
//! | `chain.svg` | `chain.txt` | a test, from the trace of a simulated run |
//! | `removal.svg` | `removal.txt` | likewise |
//! | `request.svg` | `request.txt` | hand |
//! | `epochs.svg` | `epochs.txt` | hand; the drawing rejects texts that break a rule of epochs |
//!
//! The drawings are committed, and `cargo xtask tidy` compares them with newly generated ones.

mod canvas;
mod chain;
mod epochs;
mod layout;
mod removal;
mod request;

use std::path::Path;

use crate::workspace::{read, root, write};

/// Generates a drawing from its text.
type Draw = fn(&str) -> Result<String, String>;

const DRAWINGS: &[(&str, Draw)] = &[
    ("layout", layout::draw),
    ("chain", chain::draw),
    ("removal", removal::draw),
    ("epochs", epochs::draw),
    ("request", request::draw),
];

/// Generates all drawings.
pub(crate) fn run() -> Result<(), String> {
    drawn(&root())?.into_iter().try_for_each(|(path, svg)| write(&root().join(path), svg))
}

/// The drawings, each with its path in the workspace.
fn drawn(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut drawings = Vec::new();
    for (name, draw) in DRAWINGS {
        let text = read(&root.join(format!("book/drawings/{name}.txt")))?;
        drawings.push((format!("book/src/drawings/{name}.svg"), draw(&text)?));
    }
    Ok(drawings)
}

/// The committed drawings that differ from generated ones, or are on no page of the book.
pub(crate) fn breaches(root: &Path) -> Result<Vec<String>, String> {
    let mut pages = String::new();
    for page in crate::workspace::files(&root.join("book/src"), "md") {
        pages.push_str(&read(&page)?);
    }
    let mut breaches = Vec::new();
    for (path, svg) in drawn(root)? {
        if std::fs::read_to_string(root.join(&path)).unwrap_or_default() != svg {
            breaches.push(format!("{path}: out of date; `cargo xtask drawings` generates it"));
        }
        let include = path.strip_prefix("book/src/").expect("it is in the book");
        if !pages.contains(&format!("{{{{#include {include}}}}}")) {
            breaches.push(format!("{path}: on no page of the book"));
        }
    }
    Ok(breaches)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn the_committed_drawings_are_up_to_date() {
        assert_eq!(breaches(&root()), Ok(vec![]));
        assert_eq!(drawn(&root()), drawn(&root()), "the same text makes the same drawing");
    }

    #[test]
    fn an_outdated_drawing_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for part in ["book/drawings", "book/src/drawings"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let copy = |file: &str| {
            std::fs::copy(root().join(file), folder.join(file)).unwrap();
        };
        let mut page = String::new();
        for (name, _) in DRAWINGS {
            copy(&format!("book/drawings/{name}.txt"));
            copy(&format!("book/src/drawings/{name}.svg"));
            writeln!(page, "{{{{#include drawings/{name}.svg}}}}").unwrap();
        }
        std::fs::write(folder.join("book/src/page.md"), &page).unwrap();
        assert_eq!(breaches(folder), Ok(vec![]));

        let svg = "book/src/drawings/chain.svg";
        std::fs::write(folder.join(svg), read(&folder.join(svg)).unwrap().replace("NIC", "CPU")).unwrap();
        assert_eq!(
            breaches(folder).unwrap(),
            [format!("{svg}: out of date; `cargo xtask drawings` generates it")]
        );
        copy(svg);

        let text = "book/drawings/removal.txt";
        std::fs::write(
            folder.join(text),
            read(&folder.join(text)).unwrap().replace("retire node 2", "retire node 1"),
        )
        .unwrap();
        let found = breaches(folder).unwrap();
        assert_eq!(
            found,
            ["book/src/drawings/removal.svg: out of date; `cargo xtask drawings` generates it"]
        );
        copy(text);

        std::fs::write(folder.join("book/src/page.md"), page.replace("epochs.svg", "epoch.svg")).unwrap();
        assert_eq!(breaches(folder).unwrap(), ["book/src/drawings/epochs.svg: on no page of the book"]);
    }
}
