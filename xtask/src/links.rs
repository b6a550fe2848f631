//! Checks the relative links of the repository's pages: each must point to an existing file and heading.
//!
//! The book's links point to pages that mdBook generates: [`book`](crate::book) checks them.

use std::path::{Component, Path, PathBuf};

use crate::workspace::{files, read};

/// The pages whose links are checked.
pub(crate) fn pages(root: &Path) -> Vec<PathBuf> {
    let top = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];
    let top = top.iter().map(|name| root.join(name)).filter(|path| path.exists());
    top.chain(files(&root.join("docs"), "md")).collect()
}

/// The broken links of all pages of a workspace.
pub(crate) fn broken(root: &Path) -> Result<Vec<String>, String> {
    let mut breaches = Vec::new();
    for page in pages(root) {
        let text = read(&page)?;
        let name = page.strip_prefix(root).expect("below the root").display();
        for (line, link) in relative(&text) {
            breaches.extend(fault(&page, &link).map(|why| format!("{name}:{line}: the link `{link}` {why}")));
        }
    }
    Ok(breaches)
}

/// The relative links and images of a page, with their lines.
pub(crate) fn relative(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second part is between backquotes: code.
        let words = line.split('`').step_by(2).collect::<Vec<_>>().concat();
        let inline = words.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let defined = words.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, link)| link);
        for link in inline.chain(defined) {
            let link = link.split_whitespace().next().unwrap_or_default();
            let scheme = link.split_once(':').map(|(scheme, _)| scheme);
            if scheme.is_none_or(|scheme| !scheme.chars().all(|c| c.is_ascii_alphanumeric())) {
                found.push((number, link.to_owned()));
            }
        }
    }
    found
}

/// The lines of a page outside code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The fault of a link on a page.
fn fault(page: &Path, link: &str) -> Option<&'static str> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { page.to_owned() } else { resolved(page, path) };
    if !target.exists() {
        return Some("points to no file");
    }
    let is_page = target.extension().is_some_and(|extension| extension == "md");
    if anchor.is_empty() || !is_page {
        return None;
    }
    let text = std::fs::read_to_string(target).unwrap_or_default();
    let mut headings = prose(&text).filter_map(|(_, line)| line.strip_prefix('#'));
    let is_there = headings.any(|heading| slug(heading.trim_start_matches('#').trim()) == anchor);
    (!is_there).then_some("points to no heading")
}

/// The path that a link on a page points to.
pub(crate) fn resolved(page: &Path, link: &str) -> PathBuf {
    let mut target = page.parent().expect("a page is in a folder").to_owned();
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir => drop(target.pop()),
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    target
}

/// The anchor that a forge generates for a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    #[test]
    fn the_repository_has_no_broken_link() {
        assert_eq!(broken(&root()), Ok(vec![]));
    }

    #[test]
    fn a_broken_link_is_found_on_any_page_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::create_dir_all(folder.join("docs/part")).unwrap();
        let links = "# A `b` page\n\n[x](docs/part/c.md#the-c) [y](#a-b-page) [z](https://example.org/gone)\n`[code](gone)`\n\n```text\n[code](gone)\n```\n";
        std::fs::write(folder.join("docs/part/c.md"), "# The C!\n\n[back](../../README.md)\n").unwrap();
        std::fs::write(folder.join("README.md"), links).unwrap();
        assert_eq!(broken(folder), Ok(vec![]));
        for (page, link, why) in [
            ("README.md", "[x](docs/gone.md)", "points to no file"),
            ("ARCHITECTURE.md", "[x]: docs/part/gone.md", "points to no file"),
            ("CHANGELOG.md", "![x](gone.svg)", "points to no file"),
            ("CONTRIBUTING.md", "[x](docs/part/c.md#gone)", "points to no heading"),
            ("docs/part/d.md", "[x](README.md)", "points to no file"),
        ] {
            let sound = std::fs::read_to_string(folder.join(page)).unwrap_or_default();
            std::fs::write(folder.join(page), format!("text\n\n{link}\n")).unwrap();
            let found = broken(folder).unwrap();
            let one =
                matches!(&found[..], [one] if one.starts_with(&format!("{page}:3: ")) && one.ends_with(why));
            assert!(one, "{page}: {found:?}");
            std::fs::write(folder.join(page), sound).unwrap();
        }
    }
}
