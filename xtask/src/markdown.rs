//! Checks the book's sources: includes and code blocks.

use std::path::{Path, PathBuf};

/// An `{{#include path:anchor}}` and its line.
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

/// The fault of an include on a page in `folder`.
pub(crate) fn broken(include: &Include, folder: &Path) -> Option<String> {
    let path = folder.join(&include.path);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Some(format!("includes `{}`, which does not exist", include.path.display()));
    };
    let anchor = include.anchor.as_ref()?;
    // In Markdown the mark is inside a comment.
    let marks = |line: &str| line.trim().trim_end_matches("-->").trim_end().to_owned();
    let has = |mark: &str| text.lines().any(|line| marks(line).ends_with(&format!("{mark}: {anchor}")));
    let whole = has("ANCHOR") && has("ANCHOR_END");
    (!whole).then(|| format!("includes `{}`, which has no anchor `{anchor}`", include.path.display()))
}

/// Lines of a listing that distract readers: hidden lines of a doc example, and doc examples of the source.
pub(crate) fn noise(include: &Include, folder: &Path) -> Option<String> {
    if include.path.extension().is_none_or(|extension| extension != "rs") {
        return None;
    }
    let text = std::fs::read_to_string(folder.join(&include.path)).ok()?;
    let (found, why) = listing(&text, include.anchor.as_deref()).find_map(|line| {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start);
        if line == "#" || line.starts_with("# ") {
            Some((line, "a hidden line"))
        } else {
            doc.filter(|doc| doc.starts_with("```")).map(|_| (line, "a doc example"))
        }
    })?;
    let what = match &include.anchor {
        Some(anchor) => format!("{}:{anchor}", include.path.display()),
        None => include.path.display().to_string(),
    };
    Some(format!("the listing `{what}` has {why}: `{found}`"))
}

/// The lines of an include.
fn listing<'a>(text: &'a str, anchor: Option<&str>) -> impl Iterator<Item = &'a str> {
    let mut shown = text.lines();
    let end = anchor.map(|anchor| {
        let start = format!("ANCHOR: {anchor}");
        shown.find(|line| line.trim_end().ends_with(&start));
        format!("ANCHOR_END: {anchor}")
    });
    shown.take_while(move |line| end.as_ref().is_none_or(|end| !line.trim_end().ends_with(end)))
}

/// Languages of code blocks besides Rust: those that need no compiler.
const OTHER_BLOCKS: &[&str] = &["console", "text", "toml"];

/// Code blocks that are not checked, by line, and why. Rust must be included, and every block must name its language, so that no Rust is
/// hidden.
pub(crate) fn unsound_blocks(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut block: Option<(usize, bool)> = None;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        match (block, content.strip_prefix("```")) {
            (None, Some(language)) => {
                let language = language.split(',').next().unwrap_or_default().trim();
                block = Some((line, language == "rust"));
                if language != "rust" && !OTHER_BLOCKS.contains(&language) {
                    found.push((
                        line,
                        format!("a block of `{language}`: write `rust`, or one of {OTHER_BLOCKS:?}"),
                    ));
                }
            }
            (Some(_), Some(_)) => block = None,
            (Some((start, true)), None) => {
                let included = content.is_empty() || (content.starts_with("{{#") && content.ends_with("}}"));
                if !included && found.last().is_none_or(|(last, _)| *last != start) {
                    found.push((start, "Rust code that is not included".to_owned()));
                }
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
    fn noise_in_a_listing_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let include = |anchor: Option<&str>| Include {
            line: 1,
            path: "a.rs".into(),
            anchor: anchor.map(str::to_owned),
        };
        let noise_of = |text: &str, anchor| {
            std::fs::write(folder.join("a.rs"), text).unwrap();
            noise(&include(anchor), folder).unwrap_or_default()
        };
        let text =
            "/// ```\n# use a;\n// ANCHOR: b\n/// A field.\n#[remote]\n// ANCHOR_END: b\n# fn main() {\n";
        assert_eq!(noise_of(text, Some("b")), "");
        assert!(noise_of(text, None).contains("`a.rs` has a doc example"));
        for (line, why) in [
            ("/// ```", "a doc example: `/// ```"),
            ("    //! ```rust", "a doc example"),
            ("# use a;", "a hidden line: `# use a;`"),
            ("    #", "a hidden line"),
        ] {
            let noise = noise_of(&text.replace("/// A field.", line), Some("b"));
            assert!(noise.contains("`a.rs:b` has ") && noise.contains(why), "{line}: {noise}");
        }
    }

    #[test]
    fn rust_must_be_included() {
        let sound = "```rust\n{{#include a.rs}}\n\n{{#include b.rs}}\n```\n```console\n$ ls\n```";
        assert_eq!(unsound_blocks(sound), []);
        let typed = |page: &str| unsound_blocks(page).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(typed("\n```rust,ignore\nlet a = 1;\nlet b = 2;\n```"), [2]);
        assert_eq!(typed("```rust\nlet a = 1; {{#include a.rs}}\n```"), [1]);
    }

    #[test]
    fn a_block_names_its_language() {
        for fence in ["```", "```rs", "```ignore"] {
            let faults = unsound_blocks(&format!("text\n{fence}\nlet a = 1;\n```"));
            assert_eq!(faults.len(), 1, "{fence}");
            assert!(faults[0].0 == 2 && faults[0].1.contains("write `rust`"), "{faults:?}");
        }
    }
}
