//! What became of the tests, and how it is printed.

use std::time::Duration;

use serde_json::{Map, Value};

use super::perftest::{Latency, Rate};
use super::suite::{ATOMIC_LATENCY, READ_LATENCY, READ_RATE, WRITE_LATENCY};

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// With this exit code.
    Failed(i32),
    TimedOut,
    /// It did not end, or not begin, for this reason.
    Lost(String),
}

/// A test and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    pub(super) printed: String,
}

impl Report {
    pub(super) fn lost(name: &str, why: &str) -> Self {
        let outcome = Outcome::Lost(why.to_owned());
        Self { name: name.to_owned(), outcome, took: Duration::ZERO, printed: String::new() }
    }

    pub(super) fn passed(&self) -> bool {
        self.outcome == Outcome::Passed
    }

    /// A line, and if the test failed what it printed.
    pub(super) fn text(&self) -> String {
        let (name, took) = (&self.name, self.took.as_secs_f64());
        let line = match &self.outcome {
            Outcome::Passed => return format!("{name} ok ({took:.1} s)"),
            Outcome::Failed(code) => format!("{name} FAILED (exit code {code}, {took:.1} s)"),
            Outcome::TimedOut => format!("{name} FAILED (timed out after {took:.1} s)"),
            Outcome::Lost(why) => format!("{name} FAILED ({why})"),
        };
        self.printed.lines().fold(line, |text, line| format!("{text}\n    {line}"))
    }
}

/// How a script's exit code and time are to be understood.
///
/// What exceeds its limit is killed, but not all that is killed has exceeded it.
pub(super) fn outcome(code: i32, took: Duration, limit: Duration) -> Outcome {
    match code {
        0 => Outcome::Passed,
        137 if took >= limit => Outcome::TimedOut,
        code => Outcome::Failed(code),
    }
}

/// The figures in what the tests did.
pub(super) fn figures(reports: &[Report]) -> Result<Map<String, Value>, String> {
    let mut figures = Map::new();
    let passed = reports.iter().filter(|report| report.passed()).count();
    figures.insert("rdma.tests_passed".to_owned(), Value::from(passed));
    for report in reports.iter().filter(|report| report.passed()) {
        let failed = |why: String| format!("{}: {why}", report.name);
        match report.name.as_str() {
            name @ (READ_LATENCY | WRITE_LATENCY | ATOMIC_LATENCY) => {
                let latency = Latency::parse(&report.printed).map_err(failed)?;
                figures.insert(format!("rdma.perftest.{name}.p50_us"), Value::from(latency.p50_us));
                figures.insert(format!("rdma.perftest.{name}.p99_us"), Value::from(latency.p99_us));
            }
            name @ READ_RATE => {
                let rate = Rate::parse(&report.printed).map_err(failed)?;
                let value = Value::from(rate.messages_m_per_s);
                figures.insert(format!("rdma.perftest.{name}.messages_m_per_s"), value);
            }
            _ => {}
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, outcome: Outcome, printed: &str) -> Report {
        Report {
            name: name.to_owned(),
            outcome,
            took: Duration::from_millis(1500),
            printed: printed.to_owned(),
        }
    }

    #[test]
    fn a_failure_shows_what_was_printed() {
        assert_eq!(report("a", Outcome::Passed, "x").text(), "a ok (1.5 s)");
        let failed = report("a", Outcome::Failed(3), "x\ny\n").text();
        assert_eq!(failed, "a FAILED (exit code 3, 1.5 s)\n    x\n    y");
        assert_eq!(report("a", Outcome::TimedOut, "").text(), "a FAILED (timed out after 1.5 s)");
        assert_eq!(Report::lost("a", "no machine").text(), "a FAILED (no machine)");
    }

    #[test]
    fn only_what_was_killed_at_its_limit_has_timed_out() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(outcome(0, long, short), Outcome::Passed);
        assert_eq!(outcome(137, long, long), Outcome::TimedOut);
        assert_eq!(outcome(137, short, long), Outcome::Failed(137));
        assert_eq!(outcome(2, long, short), Outcome::Failed(2));
    }

    #[test]
    fn figures_are_those_of_tests_that_passed() {
        let table = "#bytes #iterations t_typical[usec]\n8 1000 1 9 2.5 3 1 8 9\n";
        let passed = report(READ_LATENCY, Outcome::Passed, table);
        let reports =
            [passed, report(ATOMIC_LATENCY, Outcome::Failed(1), ""), report("x", Outcome::Passed, "")];
        let figures = figures(&reports).unwrap();
        assert_eq!(figures["rdma.tests_passed"], 2);
        assert_eq!(figures["rdma.perftest.read-latency.p50_us"], 2.5);
        assert_eq!(figures.len(), 3);
    }

    #[test]
    fn a_test_that_passed_without_its_table_is_an_error() {
        let error = figures(&[report(READ_RATE, Outcome::Passed, "")]).unwrap_err();
        assert!(error.starts_with("read-rate: "), "{error}");
    }
}
