//! Measures the project's figures, prints them, and writes their tables.
//!
//! The book's [`TABLES`] have all figures, and the README's has the [`HEADLINES`]. A table is written from one measurement. [`breaches`] compares
//! them with the tables generated from the book's values, so no row can be typed by hand.

use std::collections::HashMap;
use std::fmt::Write;

use clap::{Args, ValueEnum};
use serde_json::{Map, Number, Value};

use crate::figures::{FIGURES, Figure, HEADLINES, INSTRUCTIONS, Source};
use crate::workspace::{self, Measured, measured, output, read, root, write};

/// Options of `cargo xtask results`.
#[derive(Args)]
pub(crate) struct Options {
    /// Only the figures whose names begin with PREFIX
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Rewrite the tables of the book and of README.md
    #[arg(long)]
    update_tables: bool,
    /// Rewrite both tables with the book's values, without measuring: after a change of a description, for example
    #[arg(long, conflicts_with_all = ["only", "format", "update_tables"])]
    reword_tables: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines of `name value unit`
    Text,
    /// One JSON object of names and values
    Json,
}

/// The book's tables, relative to the workspace. The second has the counts of instructions, which do not depend on the machine's speed and are
/// recorded with each change of them.
const TABLES: [&str; 2] = [BOOK, "book/src/results/instructions.md"];
const BOOK: &str = "book/src/results/figures.md";
/// The markers of the README's table.
const BEGIN: &str = "<!-- results: begin -->\n";
const END: &str = "<!-- results: end -->";
/// Most lines of the README's table.
const SHORT: usize = 15;
const _: () = assert!(HEADLINES.len() + 2 <= SHORT, "the README's table is short");

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    if options.reword_tables {
        for table in TABLES {
            let (machine, recorded) = recorded(table, &read(&root().join(table))?)?;
            write_table(table, &machine, &recorded)?;
        }
        return Ok(());
    }
    let prefix = options.only.as_deref().unwrap_or_default();
    let chosen: Vec<&Figure> = FIGURES.iter().filter(|figure| figure.name.starts_with(prefix)).collect();
    if chosen.is_empty() {
        return Err(format!("--only {prefix}: no figure has this prefix"));
    }
    let tables = if options.update_tables { complete_tables(&chosen)? } else { Vec::new() };
    let (mut measured, mut runs) = (Vec::new(), Runs::new());
    for figure in chosen {
        let value = measure(figure, &mut runs)?;
        if options.format == Format::Text {
            println!("{} {value} {}", figure.name, figure.unit);
        }
        measured.push((figure, value));
    }
    if options.format == Format::Json {
        let object: Map<String, Value> = measured
            .iter()
            .map(|(figure, value)| (figure.name.to_owned(), Value::Number(value.clone())))
            .collect();
        println!("{}", Value::Object(object));
    }
    for table in tables {
        let its =
            measured.iter().filter(|(figure, _)| table_of(figure) == table).cloned().collect::<Vec<_>>();
        write_table(table, &machine()?, &its)?;
    }
    Ok(())
}

/// The book's table of a figure.
fn table_of(figure: &Figure) -> &'static str {
    TABLES[usize::from(figure.name.starts_with(INSTRUCTIONS))]
}

/// The tables whose figures are all among `chosen`. A table is of one measurement, so none may have only some of its figures there.
fn complete_tables(chosen: &[&Figure]) -> Result<Vec<&'static str>, String> {
    let mut complete = Vec::new();
    for table in TABLES {
        let all = FIGURES.iter().filter(|figure| table_of(figure) == table).count();
        match chosen.iter().filter(|figure| table_of(figure) == table).count() {
            0 => {}
            count if count == all => complete.push(table),
            _ => return Err(format!("--update-tables needs every figure of {table}")),
        }
    }
    Ok(complete)
}

/// Measured commands; several figures may come from one.
type Runs = HashMap<&'static str, Measured>;

/// Runs the figure's command, unless it has been run, and extracts the value.
fn measure(figure: &Figure, runs: &mut Runs) -> Result<Number, String> {
    let failed = |why: String| format!("{}: {why}", figure.name);
    if !runs.contains_key(figure.command) {
        let words: Vec<&str> = figure.command.split_whitespace().collect();
        if let Some(program) = words[0].strip_prefix("target/release/") {
            let build = ["cargo", "build", "--release", "--quiet", "--bin", program, workspace::MUTANTS];
            workspace::run(&build, &[]).map_err(failed)?;
        }
        runs.insert(figure.command, measured(&words).map_err(failed)?);
    }
    let run = &runs[figure.command];
    let rounded = |value: f64| Number::from_f64((value * 100.0).round() / 100.0);
    match figure.source {
        Source::Printed => value(figure, &run.printed),
        Source::Seconds => rounded(run.seconds).ok_or_else(|| failed("no time".to_owned())),
        Source::PeakMib => {
            let peak = run.peak_kib.ok_or_else(|| failed("this system does not report it".to_owned()))?;
            Ok(Number::from(peak.div_ceil(1024)))
        }
    }
}

/// The figure's value in its command's output: a JSON number, so no infinity and no NaN.
fn value(figure: &Figure, printed: &str) -> Result<Number, String> {
    let value = printed.lines().find_map(|line| line.trim().strip_prefix(figure.name)?.trim().parse().ok());
    value.ok_or_else(|| format!("{}: `{}` did not print it", figure.name, figure.command))
}

/// Figures and their values.
type Values<'a> = [(&'a Figure, Number)];
/// The machine and the values of the book's table.
type Recorded = (String, Vec<(&'static Figure, Number)>);

/// Writes a table of the book, and with the first the README's.
fn write_table(path: &str, machine: &str, values: &Values<'_>) -> Result<(), String> {
    if path == BOOK {
        let readme = root().join("README.md");
        write(&readme, with_table(&read(&readme)?, &short(machine, values)?)?)?;
    }
    write(&root().join(path), table(machine, values))
}

/// A table of figures.
fn table(machine: &str, values: &Values<'_>) -> String {
    let mut table = format!("Measured on {machine}.\n\n| figure | value | meaning |\n|---|---|---|\n");
    for (figure, value) in values {
        let _ = writeln!(table, "| `{}` | {value} {} | {} |", figure.name, figure.unit, figure.meaning);
    }
    table
}

/// The README's table: the headlines among the values.
fn short(machine: &str, values: &Values<'_>) -> Result<String, String> {
    let value_of = |name: &&str| values.iter().find(|(figure, _)| figure.name == *name).cloned();
    let chosen: Option<Vec<_>> = HEADLINES.iter().map(value_of).collect();
    Ok(table(machine, &chosen.ok_or("a figure of the README has no value")?))
}

/// Replaces the README's table.
fn with_table(readme: &str, table: &str) -> Result<String, String> {
    let missing = || "README.md: the markers of the results table are missing".to_owned();
    let (before, rest) = readme.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// The machine and the values of a table of the book, which must have each of its figures exactly once.
fn recorded(path: &str, table: &str) -> Result<Recorded, String> {
    let machine = table.lines().find_map(|line| line.strip_prefix("Measured on ")?.strip_suffix('.'));
    let machine = machine.ok_or(format!("{path}: the line `Measured on …` is missing"))?;
    let mut values = Vec::new();
    for figure in FIGURES.iter().filter(|figure| table_of(figure) == path) {
        let mut rows = rows(figure, table);
        let (Some(Some(value)), None) = (rows.next(), rows.next()) else {
            return Err(format!("{path}: does not have one value of {}", figure.name));
        };
        values.push((figure, value));
    }
    Ok((machine.to_owned(), values))
}

/// The values of a figure in a table, `None` for one that is not a number.
fn rows<'a>(figure: &Figure, table: &'a str) -> impl Iterator<Item = Option<Number>> + 'a {
    let start = format!("| `{}` | ", figure.name);
    table.lines().filter_map(move |line| {
        let value = line.strip_prefix(&start)?.split([' ', '|']).next()?;
        Some(value.parse().ok())
    })
}

/// Compares a table of the book, and with the first the README's, with what `--update-tables` would write from the book's values.
pub(crate) fn breaches(path: &str, book: &str, readme: &str) -> Vec<String> {
    let check = || {
        let (machine, values) = recorded(path, book)?;
        let mut breaches = Vec::new();
        if table(&machine, &values) != book {
            breaches.push(format!("{path}: not as `cargo xtask results --update-tables` writes it"));
        }
        if path == BOOK && with_table(readme, &short(&machine, &values)?)? != readme {
            breaches.push(format!("README.md: its table is not that of {path}"));
        }
        Ok(breaches)
    };
    check().unwrap_or_else(|error: String| vec![error])
}

/// Checks the repository's tables.
pub(crate) fn check_tables() -> Result<Vec<String>, String> {
    let readme = read(&root().join("README.md"))?;
    let mut found = Vec::new();
    for path in TABLES {
        found.extend(breaches(path, &read(&root().join(path))?, &readme));
    }
    Ok(found)
}

/// The recorded counts of instructions.
pub(crate) fn recorded_instructions() -> Result<Vec<(&'static str, f64)>, String> {
    recorded_values(TABLES[1])
}

/// The recorded values of the other figures.
pub(crate) fn recorded_figures() -> Result<Vec<(&'static str, f64)>, String> {
    recorded_values(BOOK)
}

/// The values in a table. A new figure has none before it is measured for the first time; [`breaches`] reports that.
fn recorded_values(path: &str) -> Result<Vec<(&'static str, f64)>, String> {
    Ok(values_in(path, &read(&root().join(path))?))
}

fn values_in(path: &str, table: &str) -> Vec<(&'static str, f64)> {
    let figures = FIGURES.iter().filter(|figure| table_of(figure) == path);
    figures.filter_map(|figure| Some((figure.name, rows(figure, table).next()??.as_f64()?))).collect()
}

/// The machine on which figures are measured.
fn machine() -> Result<String, String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("an unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let rustc = output(&["rustc", "--version"])?;
    let rustc = rustc.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    Ok(format!("{model}, {cores} cores, {rustc}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn figure(name: &'static str, source: Source, command: &'static str) -> Figure {
        Figure { name, source, unit: "", meaning: "", command }
    }

    const UI_CASES: Figure = figure("ui.cases", Source::Printed, "");

    #[test]
    fn a_figure_is_taken_from_its_own_line() {
        assert_eq!(value(&UI_CASES, "test x ... ok\nui.cases 30\n"), Ok(Number::from(30)));
        let ratio = figure("abstraction.get.ratio", Source::Printed, "");
        let ratio = value(&ratio, "abstraction.get.ratio 1.650").unwrap();
        assert_eq!(ratio.to_string(), "1.65");
    }

    #[test]
    fn a_figure_must_be_a_number() {
        for printed in ["", "ui.cases many", "ui.cases NaN", "ui.cases inf", "ui.cases", "ui.cases.most 3"] {
            let error = value(&UI_CASES, printed).unwrap_err();
            assert!(
                error.starts_with("ui.cases: ") && error.contains("did not print it"),
                "{printed}: {error}"
            );
        }
    }

    #[test]
    fn a_figure_that_cannot_be_measured_is_an_error_that_names_it() {
        let unknown = figure("a.b", Source::Printed, "no-such-program");
        let error = measure(&unknown, &mut Runs::new()).unwrap_err();
        assert!(error.starts_with("a.b: `no-such-program`"), "{error}");
    }

    #[test]
    fn one_run_of_a_command_serves_several_figures() {
        let of = |source| figure("a.b", source, "cargo --version");
        let mut runs = Runs::new();
        let seconds = measure(&of(Source::Seconds), &mut runs).unwrap();
        assert_eq!(measure(&of(Source::Seconds), &mut runs), Ok(seconds), "it is not measured again");
        if cfg!(target_os = "linux") {
            assert!(measure(&of(Source::PeakMib), &mut runs).unwrap().as_u64() > Some(0));
        }
        assert!(measure(&of(Source::Printed), &mut runs).unwrap_err().contains("did not print it"));
        assert_eq!(runs.len(), 1);
    }

    #[test]
    fn a_prefix_of_no_figure_is_named() {
        let options = Options {
            only: Some("moon".to_owned()),
            format: Format::Text,
            update_tables: false,
            reword_tables: false,
        };
        assert_eq!(run(&options), Err("--only moon: no figure has this prefix".to_owned()));
    }

    /// Tables of the book and the README with some values.
    fn tables() -> (String, String) {
        let figures = FIGURES.iter().filter(|figure| table_of(figure) == BOOK);
        let values: Vec<_> = figures.zip(1u64..).map(|(figure, value)| (figure, value.into())).collect();
        let readme = format!("# Farfield\n\n{BEGIN}{END}\n\nMore.\n");
        let readme = with_table(&readme, &short("a machine", &values).unwrap()).unwrap();
        (table("a machine", &values), readme)
    }

    #[test]
    fn both_tables_show_one_measurement() {
        let (book, readme) = tables();
        assert_eq!(breaches(BOOK, &book, &readme), [""; 0]);
        let (machine, values) = recorded(BOOK, &book).unwrap();
        let rows = book.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!((machine.as_str(), values.len()), ("a machine", rows));
        let rows = readme.lines().filter(|line| line.starts_with('|')).count();
        assert!(rows == HEADLINES.len() + 2 && rows <= SHORT, "{rows} lines");
    }

    #[test]
    fn manual_edits_of_a_table_are_found() {
        let (book, readme) = tables();
        let row = |name: &str| format!("| `{name}` | ");
        let first = row(HEADLINES[0]);
        for (book, readme, expected) in [
            (book.clone(), readme.replace(&first, &format!("{first}7")), "README.md: its table"),
            (book.replace(&first, &format!("{first}7")), readme.clone(), "README.md: its table"),
            (book.replace("times | time", "times | about the time"), readme.clone(), "not as `cargo xtask"),
            (format!("{book}| `moon.ratio` | 1 times | more |\n"), readme.clone(), "not as `cargo xtask"),
            (book.replace(&row("ui.cases"), "| `ui.case` | "), readme.clone(), "one value of ui.cases"),
            (format!("{book}{}7 cases | more |\n", row("ui.cases")), readme.clone(), "one value of ui.cases"),
            (book.replace("Measured", "Made"), readme.clone(), "`Measured on …` is missing"),
            (book.clone(), readme.replace(END, ""), "the markers"),
        ] {
            let found = breaches(BOOK, &book, &readme);
            assert!(found.iter().any(|breach| breach.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn a_new_figure_can_be_measured_before_the_table_has_it() {
        let (book, _) = tables();
        let all = values_in(BOOK, &book);
        let row = book.lines().find(|line| line.starts_with("| `ui.cases`")).unwrap();
        let without = values_in(BOOK, &book.replace(row, ""));
        assert_eq!(without.len() + 1, all.len());
        assert!(without.iter().all(|value| all.contains(value) && value.0 != "ui.cases"));
    }

    #[test]
    fn a_table_is_not_written_in_part() {
        let of = |table| FIGURES.iter().filter(|figure| table_of(figure) == table).collect::<Vec<_>>();
        let [machine, instructions] = TABLES.map(of);
        assert_eq!(complete_tables(&instructions), Ok(vec![TABLES[1]]));
        assert_eq!(complete_tables(&[machine.clone(), instructions].concat()), Ok(TABLES.to_vec()));
        let error = complete_tables(&machine[1..]).unwrap_err();
        assert_eq!(error, "--update-tables needs every figure of book/src/results/figures.md");
    }

    #[test]
    fn a_headline_is_understood_alone() {
        for headline in HEADLINES {
            let figure = FIGURES.iter().find(|figure| figure.name == *headline);
            let meaning = figure.unwrap_or_else(|| panic!("{headline} is no figure")).meaning;
            let refers = ["of ", "the same", "its "].iter().any(|start| meaning.starts_with(start));
            assert!(!refers && !meaning.contains("likewise"), "{headline}: {meaning}");
        }
    }
}
