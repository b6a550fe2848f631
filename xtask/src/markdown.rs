//! Reading the book's sources: includes, fences.

use std::path::{Path, PathBuf};

/// An `{{#include path:anchor}}` and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Include {
    pub(crate) line: usize,
    pub(crate) path: PathBuf,
    pub(crate) anchor: Option<String>,
}

/// The includes of a page.
pub(crate) fn includes(text: &str) -> Vec<Include> {
    let mut found = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        for start in content.match_indices("{{#").map(|(start, _)| start) {
            let Some(inside) = content[start + 3..].split("}}").next() else { continue };
            let mut words = inside.split_whitespace();
            if !words.next().is_some_and(|word| word == "include" || word == "rustdoc_include") {
                continue;
            }
            let Some(target) = words.next() else { continue };
            let (path, anchor) = match target.split_once(':') {
                Some((path, anchor)) => (path, Some(anchor.to_owned())),
                None => (target, None),
            };
            found.push(Include { line, path: PathBuf::from(path), anchor });
        }
    }
    found
}

/// What is wrong with an include, given the folder of its page.
pub(crate) fn broken(include: &Include, folder: &Path) -> Option<String> {
    let path = folder.join(&include.path);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Some(format!("includes `{}`, which does not exist", include.path.display()));
    };
    let anchor = include.anchor.as_ref()?;
    let has = |mark: &str| text.lines().any(|line| line.trim().ends_with(&format!("{mark}: {anchor}")));
    let whole = has("ANCHOR") && has("ANCHOR_END");
    (!whole).then(|| format!("includes `{}`, which has no anchor `{anchor}`", include.path.display()))
}

/// The lines of Rust code that are typed into a page instead of included, by where their block begins.
pub(crate) fn typed_rust(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut block: Option<(usize, bool)> = None;
    for (line, content) in (1..).zip(text.lines()) {
        match (&block, content.trim_start().strip_prefix("```")) {
            (None, Some(language)) => block = Some((line, language.starts_with("rust"))),
            (Some(_), Some(_)) => block = None,
            (Some((start, true)), None)
                if !content.trim().is_empty() && !content.contains("{{#") && found.last() != Some(start) =>
            {
                found.push(*start);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_found_with_their_anchors() {
        let page = "text\n{{#include ../a.rs:get}} and {{#rustdoc_include b.rs}}\n{{#title x}}";
        let found = includes(page);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].line, found[0].anchor.as_deref()), (2, Some("get")));
        assert_eq!(found[1].path, PathBuf::from("b.rs"));
    }

    #[test]
    fn a_missing_file_and_a_missing_anchor_are_broken() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let include = |path: &str, anchor: Option<&str>| Include {
            line: 1,
            path: path.into(),
            anchor: anchor.map(str::to_owned),
        };
        assert!(broken(&include("nowhere.rs", None), &folder).unwrap().contains("does not exist"));
        assert!(broken(&include("main.rs", Some("nowhere")), &folder).unwrap().contains("no anchor"));
        assert_eq!(broken(&include("main.rs", None), &folder), None);
    }

    #[test]
    fn rust_must_be_included() {
        assert_eq!(typed_rust("```rust\n{{#include a.rs}}\n```\n```console\n$ ls\n```"), Vec::<usize>::new());
        assert_eq!(typed_rust("\n```rust,ignore\nlet a = 1;\n```"), [2]);
    }
}
