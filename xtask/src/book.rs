//! The book: built with mdBook, and checked for what mdBook lets pass.
//!
//! mdBook reports a broken include in its log and goes on, and does not look at links at all. So the includes of every
//! page are checked first, then the pages that mdBook made: no directive is left in them, and each relative link leads to
//! a page, and to a place on it, that exists. Rust code may not be typed into a page; it is included from files that are
//! compiled and run.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use crate::markdown::{broken, includes, typed_rust};
use crate::workspace::{files, read, root};

/// Builds and checks the book.
pub(crate) fn run() -> Result<(), String> {
    let book = root().join("book");
    let mut faults = Vec::new();
    let pages = files(&book.join("src"), "md");
    if pages.is_empty() {
        return Err("the book has no pages".to_owned());
    }
    for page in pages {
        let text = read(&page)?;
        let folder = page.parent().expect("a file has a folder");
        let name = page.strip_prefix(root()).expect("below the root").display();
        for include in includes(&text) {
            faults.extend(broken(&include, folder).map(|what| format!("{name}:{}: {what}", include.line)));
        }
        faults.extend(
            typed_rust(&text)
                .into_iter()
                .map(|line| format!("{name}:{line}: Rust code that is not included")),
        );
    }
    if faults.is_empty() {
        build(&book)?;
        faults = check_pages(&book.join("book"))?;
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n       ")) }
}

#[cfg(feature = "book")]
fn build(book: &Path) -> Result<(), String> {
    let built = mdbook_driver::MDBook::load(book).and_then(|book| book.build());
    built.map_err(|error| format!("{error:#}"))
}

/// Without mdBook this task runs itself again with it.
#[cfg(not(feature = "book"))]
fn build(_: &Path) -> Result<(), String> {
    let words = ["cargo", "run", "--quiet", "--package", "xtask", "--features", "book", "--", "book"];
    crate::workspace::run(&words, &[])
}

/// What is wrong with the pages that were made.
fn check_pages(folder: &Path) -> Result<Vec<String>, String> {
    let mut texts = HashMap::new();
    for page in files(folder, "html") {
        texts.insert(page.clone(), read(&page)?);
    }
    let anchors: HashMap<&PathBuf, HashSet<&str>> =
        texts.iter().map(|(page, text)| (page, values(text, "id"))).collect();
    let mut faults = Vec::new();
    for (page, text) in &texts {
        let name = page.strip_prefix(folder).expect("below the folder").display();
        // The page that shows all others at once has their links, which lead from elsewhere; and mdBook's own search
        // and error pages have none of ours.
        if ["print.html", "404.html", "toc.html"].iter().any(|own| page.ends_with(own)) {
            continue;
        }
        if text.contains("{{#") {
            faults.push(format!("{name}: a directive is left"));
        }
        for link in values(text, "href") {
            if link.contains(':') || link.starts_with("//") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { resolved(page, path) };
            let known = target.exists();
            let placed =
                anchor.is_empty() || anchors.get(&target).is_none_or(|anchors| anchors.contains(anchor));
            if !known || !placed {
                faults.push(format!("{name}: the link `{link}` leads nowhere"));
            }
        }
    }
    faults.sort();
    Ok(faults)
}

/// The path that a link on a page leads to.
fn resolved(page: &Path, link: &str) -> PathBuf {
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

/// The values of an attribute.
fn values<'a>(html: &'a str, attribute: &str) -> HashSet<&'a str> {
    let start = format!("{attribute}=\"");
    html.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_found_and_sound_ones_pass() {
        let folder = std::env::temp_dir().join(format!("farfield-book-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("part")).unwrap();
        std::fs::write(
            folder.join("a.html"),
            r##"<a href="part/b.html#here">x</a><a href="#top" id="top">y</a>"##,
        )
        .unwrap();
        std::fs::write(folder.join("part/b.html"), r#"<p id="here"><a href="../a.html">z</a>"#).unwrap();
        assert_eq!(check_pages(&folder).unwrap(), Vec::<String>::new());
        std::fs::write(
            folder.join("part/b.html"),
            r##"{{#include x}} <a href="../c.html">z</a><a href="#gone">"##,
        )
        .unwrap();
        let faults = check_pages(&folder).unwrap();
        assert_eq!(faults.len(), 4, "{faults:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
