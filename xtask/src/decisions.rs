//! Checks the pages of `docs/decisions`: consecutive numbers, the same parts, and an entry in the index.

use std::path::Path;

use crate::links;
use crate::workspace::{files, read};

/// The parts of a page, in order.
const PARTS: [&str; 3] = ["Context", "Decision", "Price"];

/// Checks the pages of a folder.
pub(crate) fn breaches(folder: &Path) -> Result<Vec<String>, String> {
    let mut pages = Vec::new();
    for path in files(folder, "md") {
        let name = path.strip_prefix(folder).expect("below the folder").to_string_lossy().into_owned();
        pages.push((name, read(&path)?));
    }
    Ok(check(&pages))
}

/// Checks pages, sorted by name.
fn check(pages: &[(String, String)]) -> Vec<String> {
    let mut breaches = Vec::new();
    let index = pages.iter().find(|(name, _)| name == "README.md").map_or("", |(_, text)| text);
    let mut numbers = 1..;
    for (name, text) in pages.iter().filter(|(name, _)| name != "README.md") {
        let mut breach = |what: String| breaches.push(format!("docs/decisions/{name}: {what}"));
        let number = format!("{:03}", numbers.next().expect("numbers do not end"));
        if !is_named(name, &number) {
            breach(format!("the next page's name is `{number}-title.md`: numbers are consecutive"));
        }
        let title = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        if title.is_empty() {
            breach("its first line is not its title".to_owned());
        }
        let parts: Vec<&str> = text.split("\n## ").skip(1).collect();
        let headings: Vec<&str> = parts.iter().filter_map(|part| part.lines().next()).collect();
        if headings != PARTS {
            breach(format!("its parts are {headings:?}, not {PARTS:?}"));
        }
        for part in parts.iter().filter(|part| part.lines().skip(1).all(|line| line.trim().is_empty())) {
            breach(format!("its part `{}` is empty", part.trim()));
        }
        let line = format!("- {number} [{title}]({name})");
        if index.lines().filter(|listed| *listed == line).count() != 1 {
            breach(format!("the index does not have the line `{line}` once"));
        }
    }
    for (number, link) in links::relative(index) {
        if !pages.iter().any(|(name, _)| *name == link) {
            breaches.push(format!("docs/decisions/README.md:{number}: `{link}` is no decision"));
        }
    }
    if pages.len() < 2 {
        breaches.push("docs/decisions: there are no decisions".to_owned());
    }
    breaches
}

/// Returns whether a page's name is its number and a title in lower case.
fn is_named(name: &str, number: &str) -> bool {
    let title = name.strip_prefix(number).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".md"));
    title.is_some_and(|title| {
        !title.is_empty() && title.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# It is so\n\n## Context\n\nA.\n\n## Decision\n\nB.\n\n## Price\n\nC.\n";
    const INDEX: &str = "# Decisions\n\n- 001 [It is so](001-a.md)\n- 002 [It is so](002-b.md)\n";

    /// The breaches of an index and two pages.
    fn found(index: &str, names: [&str; 2], second: &str) -> Vec<String> {
        let page = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        check(&[page(names[0], PAGE), page(names[1], second), page("README.md", index)])
    }

    #[test]
    fn sound_pages_pass() {
        assert_eq!(found(INDEX, ["001-a.md", "002-b.md"], PAGE), [""; 0]);
    }

    #[test]
    fn each_planted_breach_is_found() {
        let names = ["001-a.md", "002-b.md"];
        for (page, expected) in [
            (PAGE.replace("# It is so\n", "It is so\n"), "is not its title"),
            (PAGE.replace("## Price", "## Cost"), "not [\"Context\", \"Decision\", \"Price\"]"),
            (PAGE.replace("## Price\n\nC.\n", ""), "not [\"Context\", \"Decision\", \"Price\"]"),
            (format!("{PAGE}\n## History\n\nD.\n"), "not [\"Context\", \"Decision\", \"Price\"]"),
            (PAGE.replace("B.", ""), "its part `Decision` is empty"),
            (PAGE.replace("It is so", "It is not"), "`- 002 [It is not](002-b.md)` once"),
        ] {
            let breaches = found(INDEX, names, &page);
            let is_found = |breach: &String| breach.contains("002-b.md: ") && breach.contains(expected);
            assert!(breaches.iter().any(is_found), "{expected}: {breaches:?}");
        }
        for (first, second) in [("001-a.md", "003-b.md"), ("001-a.md", "001-b.md"), ("001-a.md", "002-B.md")]
        {
            let index = INDEX.replace("002-b.md", second);
            let breaches = found(&index, [first, second], PAGE);
            assert!(
                breaches[0].contains(&format!("{second}: the next page's name is `002-title.md`")),
                "{breaches:?}"
            );
        }
        let unlisted = found(&INDEX[..INDEX.rfind("- 002").unwrap()], names, PAGE);
        assert!(unlisted[0].contains("002-b.md: the index does not have"), "{unlisted:?}");
        let twice = found(&format!("{INDEX}- 002 [It is so](002-b.md)\n"), names, PAGE);
        assert!(twice[0].contains("002-b.md: the index does not have"), "{twice:?}");
        let gone = found(&format!("{INDEX}- 003 [It is so](003-c.md)\n"), names, PAGE);
        assert_eq!(gone, ["docs/decisions/README.md:5: `003-c.md` is no decision"]);
        assert!(check(&[])[0].contains("there are no decisions"));
    }
}
