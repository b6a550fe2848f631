//! Measures the project's figures and prints them.

use std::collections::HashMap;
use std::fmt::Write;

use clap::{Args, ValueEnum};
use serde_json::{Map, Number, Value};

use crate::figures::{FIGURES, Figure, Source};
use crate::workspace::{self, Measured, measured, output, read, root};

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
pub(crate) enum Format {
    /// `name value unit`, a line each
    Text,
    /// One JSON object of names and values
    Json,
}

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
    if options.update_readme { update_readme(&measured) } else { Ok(()) }
}

/// What the commands did that have been run: several figures may come from one.
type Runs = HashMap<&'static [&'static str], Measured>;

/// Runs the figure's command, unless that has been done, and takes the value from what it did.
fn measure(figure: &Figure, runs: &mut Runs) -> Result<Number, String> {
    let failed = |why: String| format!("{}: {why}", figure.name);
    if !runs.contains_key(figure.command) {
        if let Some(program) = figure.command[0].strip_prefix("target/release/") {
            workspace::run(&["cargo", "build", "--release", "--quiet", "--bin", program], &[])
                .map_err(failed)?;
        }
        runs.insert(figure.command, measured(figure.command).map_err(failed)?);
    }
    let run = &runs[figure.command];
    let rounded = |value: f64| Number::from_f64((value * 100.0).round() / 100.0);
    match figure.source {
        Source::Printed => value(figure, &run.printed),
        Source::Seconds => rounded(run.seconds).ok_or_else(|| failed("no time".to_owned())),
        Source::PeakMib => {
            let peak = run.peak_kib.ok_or_else(|| failed("this system does not tell".to_owned()))?;
            Ok(Number::from(peak.div_ceil(1024)))
        }
    }
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

    const UI_CASES: Figure = Figure::printed("ui.cases", "cases", "", &[]);
    const RATIO: Figure = Figure::printed("abstraction.get.ratio", "times", "", &[]);

    #[test]
    fn a_figure_is_taken_from_its_own_line() {
        let figure = &UI_CASES;
        assert_eq!(value(figure, "test x ... ok\nui.cases 30\n"), Ok(Number::from(30)));
        let ratio = value(&RATIO, "abstraction.get.ratio 1.650").unwrap();
        assert_eq!(ratio.to_string(), "1.65");
    }

    #[test]
    fn what_is_no_number_is_no_figure() {
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
        let (name, unit, meaning, source) = ("a.b", "", "", Source::Printed);
        let figure = Figure { name, unit, meaning, source, command: &["no-such-program"] };
        let error = measure(&figure, &mut Runs::new()).unwrap_err();
        assert!(error.starts_with("a.b: `no-such-program`"), "{error}");
    }

    #[test]
    fn one_run_of_a_command_serves_several_figures() {
        let command: &[&str] = &["cargo", "--version"];
        let figure = |source| Figure { name: "a.b", unit: "", meaning: "", source, command };
        let mut runs = Runs::new();
        let seconds = measure(&figure(Source::Seconds), &mut runs).unwrap();
        assert_eq!(measure(&figure(Source::Seconds), &mut runs), Ok(seconds), "it is not measured again");
        if cfg!(target_os = "linux") {
            assert!(measure(&figure(Source::PeakMib), &mut runs).unwrap().as_u64() > Some(0));
        }
        assert!(measure(&figure(Source::Printed), &mut runs).unwrap_err().contains("did not print it"));
        assert_eq!(runs.len(), 1);
    }

    #[test]
    fn a_prefix_of_no_figure_is_named() {
        let options = Options { only: Some("moon".to_owned()), format: Format::Text, update_readme: false };
        assert_eq!(run(&options), Err("--only moon: no figure's name begins so".to_owned()));
    }
}
