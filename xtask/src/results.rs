//! Every figure that the project claims, and how it is measured.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use serde_json::{Map, Number, Value};

use crate::workspace::{output, read, root};

/// How to measure and print.
#[derive(Args)]
pub(crate) struct Options {
    /// Only the figures whose names begin with this
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,
    /// How to print them
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write the table in README.md anew
    #[arg(long)]
    update_readme: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// `name value unit`, a line each
    Text,
    /// One JSON object of names and values
    Json,
}

/// A figure: what it is called, what it means, and the command that prints it as a line `name value`.
struct Figure {
    name: &'static str,
    unit: &'static str,
    meaning: &'static str,
    command: &'static [&'static str],
}

const FIGURES: &[Figure] = &[
    Figure {
        name: "abstraction.get.ratio",
        unit: "times",
        meaning: "`get` of 256 keys on the embedded fabric, against the same list by hand on `crossbeam-epoch`",
        command: &[
            "cargo",
            "bench",
            "--quiet",
            "-p",
            "farfield-benches",
            "--bench",
            "abstraction",
            "--",
            "--ratio",
        ],
    },
    Figure {
        name: "ui.cases",
        unit: "cases",
        meaning: "mistakes that the compiler explains in the words we expect",
        command: &[
            "cargo",
            "test",
            "--quiet",
            "-p",
            "farfield-ui-tests",
            "--test",
            "ui",
            "--",
            "--nocapture",
        ],
    },
];

/// Where the table begins and ends in the README.
const BEGIN: &str = "<!-- results: begin -->\n";
const END: &str = "<!-- results: end -->";

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let prefix = options.only.as_deref().unwrap_or_default();
    let chosen: Vec<&Figure> = FIGURES.iter().filter(|figure| figure.name.starts_with(prefix)).collect();
    if chosen.is_empty() {
        return Err(format!("--only {prefix}: no figure's name begins so"));
    }
    if options.update_readme && chosen.len() < FIGURES.len() {
        return Err("--update-readme needs every figure; leave --only out".to_owned());
    }
    let mut measured = Vec::new();
    for figure in chosen {
        let value = measure(figure)?;
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
    if options.update_readme { update_readme(&measured) } else { Ok(()) }
}

/// Runs the figure's command and takes the value from what it prints.
fn measure(figure: &Figure) -> Result<Number, String> {
    let printed = output(figure.command).map_err(|why| format!("{}: {why}", figure.name))?;
    value(figure, &printed)
}

/// The figure's value in what its command printed: a number as JSON has it, so neither an infinity nor none at all.
fn value(figure: &Figure, printed: &str) -> Result<Number, String> {
    let value = printed.lines().find_map(|line| line.trim().strip_prefix(figure.name)?.trim().parse().ok());
    value.ok_or_else(|| format!("{}: `{}` did not print it", figure.name, figure.command.join(" ")))
}

fn update_readme(measured: &[(&Figure, Number)]) -> Result<(), String> {
    let path = root().join("README.md");
    let readme = read(&path)?;
    let missing = || "README.md: the markers of the results table are missing".to_owned();
    let (before, rest) = readme.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    let mut table =
        format!("Measured on {}.\n\n| figure | value | what it is |\n|---|---|---|\n", machine()?);
    for (figure, value) in measured {
        let _ = writeln!(table, "| `{}` | {value} {} | {} |", figure.name, figure.unit, figure.meaning);
    }
    std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}"))
        .map_err(|error| format!("README.md: {error}"))
}

/// What the figures were measured on.
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

    #[test]
    fn a_figure_is_taken_from_its_own_line() {
        let figure = &FIGURES[1];
        assert_eq!(value(figure, "test x ... ok\nui.cases 30\n"), Ok(Number::from(30)));
        let ratio = value(&FIGURES[0], "abstraction.get.ratio 1.650").unwrap();
        assert_eq!(ratio.to_string(), "1.65");
    }

    #[test]
    fn what_is_no_number_is_no_figure() {
        for printed in ["", "ui.cases many", "ui.cases NaN", "ui.cases inf", "ui.cases", "ui.cases.most 3"] {
            let error = value(&FIGURES[1], printed).unwrap_err();
            assert!(
                error.starts_with("ui.cases: ") && error.contains("did not print it"),
                "{printed}: {error}"
            );
        }
    }

    #[test]
    fn a_figure_that_cannot_be_measured_is_an_error_that_names_it() {
        let figure = Figure { name: "a.b", unit: "", meaning: "", command: &["no-such-program"] };
        assert!(measure(&figure).unwrap_err().starts_with("a.b: `no-such-program`"));
    }

    #[test]
    fn a_prefix_of_no_figure_is_named() {
        let options = Options { only: Some("moon".to_owned()), format: Format::Text, update_readme: false };
        assert_eq!(run(&options), Err("--only moon: no figure's name begins so".to_owned()));
    }
}
