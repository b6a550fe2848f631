//! Builds the book with mdBook, and checks it further than mdBook does.
//!
//! mdBook only logs a broken include, and does not check links. So this task first checks the includes of every page and the listings. Then
//! it checks the generated pages: no directive remains, each relative link points to an existing page and anchor, and the search index
//! contains every page. A page may not contain typed Rust code; code is included from files that are compiled and run.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::links::resolved;
use crate::markdown::{broken, includes, noise, unsound_blocks};
use crate::workspace::{files, read, report, root};

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
            let found = broken(&include, folder).or_else(|| noise(&include, folder));
            faults.extend(found.map(|what| format!("{name}:{}: {what}", include.line)));
        }
        faults.extend(unsound_blocks(&text).into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    if faults.is_empty() {
        build(&book)?;
        faults = check_pages(&book.join("book"), &book.join("src"))?;
        faults.extend(check_search(&book.join("book"))?);
    }
    report(&faults)
}

/// Opens the built book.
pub(crate) fn open() -> Result<(), String> {
    let index = root().join("book/book/index.html");
    let index = index.to_str().ok_or("the workspace's path is not UTF-8")?;
    let opener: &[&str] = if cfg!(target_os = "macos") {
        &["open"]
    } else if cfg!(windows) {
        &["cmd", "/C", "start", ""]
    } else {
        &["xdg-open"]
    };
    crate::workspace::run(&[opener, &[index]].concat(), &[])
}

#[cfg(feature = "book")]
fn build(book: &Path) -> Result<(), String> {
    let built = mdbook_driver::MDBook::load(book).and_then(|book| book.build());
    built.map_err(|error| format!("{error:#}"))
}

/// Without mdBook the task runs itself with the feature.
#[cfg(not(feature = "book"))]
fn build(_: &Path) -> Result<(), String> {
    let words = ["cargo", "run", "--quiet", "--package", "xtask", "--features", "book", "--", "book"];
    crate::workspace::run(&words, &[])
}

/// Checks the generated pages in `folder` against their `sources`.
fn check_pages(folder: &Path, sources: &Path) -> Result<Vec<String>, String> {
    let mut texts = HashMap::new();
    for page in files(folder, "html") {
        texts.insert(page.clone(), read(&page)?);
    }
    let anchors: HashMap<&PathBuf, HashSet<&str>> =
        texts.iter().map(|(page, text)| (page, values(text, "id"))).collect();
    let mut faults = Vec::new();
    for (page, text) in &texts {
        let name = page.strip_prefix(folder).expect("below the folder");
        let source = sources.join(name).with_extension("md");
        // The print page has all other pages' links, relative to other folders. mdBook generates its error page and its table of contents
        // without links of the sources.
        if ["print.html", "404.html", "toc.html"].iter().any(|own| page.ends_with(own)) {
            continue;
        }
        if text.contains("{{#") {
            faults.push(format!("{}: a directive remains", place(&source, page, "{{#")));
        }
        if text.contains("class=\"boring\"") {
            faults.push(format!("{}: a listing has hidden lines", name.display()));
        }
        for link in values(text, "href").into_iter().chain(values(text, "src")) {
            if has_scheme(link) || link.starts_with("//") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { resolved(page, path) };
            let known = target.exists();
            let placed =
                anchor.is_empty() || anchors.get(&target).is_none_or(|anchors| anchors.contains(anchor));
            if !known || !placed {
                let written = link.replacen(".html", ".md", 1);
                faults.push(format!("{}: the link `{link}` is broken", place(&source, page, &written)));
            }
        }
    }
    faults.sort();
    Ok(faults)
}

/// The files of mdBook's search. Their names contain hashes.
const SEARCH: [&str; 4] = ["elasticlunr-", "mark-", "searcher-", "searchindex-"];

/// The missing parts of the search in `folder`: its programs, or pages in its index.
fn check_search(folder: &Path) -> Result<Vec<String>, String> {
    let scripts = files(folder, "js");
    let found = |start: &str| {
        let is_it =
            |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
        scripts.iter().find(is_it)
    };
    let mut faults = Vec::new();
    for start in SEARCH {
        let is_empty = found(start).is_none_or(|path| path.metadata().is_ok_and(|data| data.len() == 0));
        if is_empty {
            faults.push(format!("the book's search has no `{start}….js`"));
        }
    }
    let index = found("searchindex-").map_or(Ok(String::new()), |path| read(path))?;
    for page in files(folder, "html") {
        let name = page.strip_prefix(folder).expect("below the folder").to_string_lossy();
        let is_chapter = !["404.html", "index.html", "print.html", "toc.html"].contains(&&*name);
        // An address in the index is a page's, with or without an anchor.
        if is_chapter
            && ![format!("\"{name}\""), format!("\"{name}#")].iter().any(|page| index.contains(page))
        {
            faults.push(format!("the book's search does not find {name}"));
        }
        if is_chapter && !read(&page)?.contains("searcher-") {
            faults.push(format!("{name}: has no search"));
        }
    }
    Ok(faults)
}

/// `file:line` of the first line with `text`: in the page's source, or in the generated page if mdBook inserted it.
fn place(source: &Path, page: &Path, text: &str) -> String {
    let line_in = |file: &Path| {
        let content = std::fs::read_to_string(file).ok()?;
        Some(content.lines().position(|line| line.contains(text))? + 1)
    };
    let (file, line) = match line_in(source) {
        Some(line) => (source, line),
        None => (page, line_in(page).unwrap_or(1)),
    };
    format!("{}:{line}", file.strip_prefix(root()).unwrap_or(file).display())
}

/// Returns whether a link begins with a scheme such as `https:`, and so points outside the book.
fn has_scheme(link: &str) -> bool {
    link.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// The values of an attribute.
fn values<'a>(html: &'a str, attribute: &str) -> HashSet<&'a str> {
    let start = format!("{attribute}=\"");
    html.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks two pages, of which the second is generated from `source`; returns the faults.
    fn faults(second: &str, source: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (pages, sources) = (folder.join("pages"), folder.join("sources"));
        for part in [&pages, &sources] {
            std::fs::create_dir_all(part.join("part")).unwrap();
        }
        let first =
            r##"<a href="part/b.html#here">x</a><a href="#top" id="top">y</a><a href="https://z">z</a>"##;
        std::fs::write(pages.join("a.html"), first).unwrap();
        std::fs::write(pages.join("part/b.html"), second).unwrap();
        std::fs::write(sources.join("part/b.md"), source).unwrap();
        check_pages(&pages, &sources).unwrap()
    }

    #[test]
    fn an_incomplete_search_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::create_dir_all(folder.join("part")).unwrap();
        let index = r#"{"doc_urls":["a.html#top","part/b.html"]}"#;
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let sound = |planted: &str, text: &str| {
            for start in SEARCH {
                write(&format!("{start}7.js"), index);
            }
            for page in ["a.html", "part/b.html"] {
                write(page, r#"<script src="searcher-7.js">"#);
            }
            write("print.html", "");
            write(planted, text);
            check_search(folder).unwrap().join("; ")
        };
        assert_eq!(sound("print.html", ""), "");
        for start in SEARCH {
            let expected = format!("the book's search has no `{start}….js`");
            assert!(sound(&format!("{start}7.js"), "").contains(&expected), "{start}");
            std::fs::remove_file(folder.join(format!("{start}7.js"))).unwrap();
            assert!(check_search(folder).unwrap().contains(&expected), "{start}");
        }
        assert_eq!(sound("searchindex-7.js", r#"["a.html"]"#), "the book's search does not find part/b.html");
        assert_eq!(sound("part/b.html", "text"), "part/b.html: has no search");
    }

    #[test]
    fn sound_links_pass() {
        assert_eq!(faults(r#"<p id="here"><a href="../a.html">z</a>"#, ""), Vec::<String>::new());
    }

    #[test]
    fn broken_links_and_hidden_lines_are_found_at_their_source() {
        let page = r##"{{#include x}} <span class="boring"> <a href="../c.html">z</a> <a href="#gone"> <img src="gone.png">"##;
        let faults = faults(page, "text\n[z](../c.md)\n\n[y](#gone)\n");
        assert_eq!(faults.len(), 6, "{faults:?}");
        let has = |end: &str| faults.iter().any(|fault| fault.ends_with(end));
        assert!(has("part/b.md:2: the link `../c.html` is broken"), "{faults:?}");
        assert!(has("part/b.md:4: the link `#gone` is broken"), "{faults:?}");
        assert!(has("part/b.html:1: the link `gone.png` is broken"), "{faults:?}");
        assert!(has("part/b.html:1: a directive remains"), "{faults:?}");
        assert!(has("a.html:1: the link `part/b.html#here` is broken"), "{faults:?}");
        assert!(has("part/b.html: a listing has hidden lines"), "{faults:?}");
    }
}
