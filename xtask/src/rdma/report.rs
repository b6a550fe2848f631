//! The results of tests, and how they are printed.

use std::time::Duration;

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// With this exit code.
    Failed(i32),
    TimedOut,
    /// It did not start or end, for this reason.
    Aborted(String),
}

/// A test and its result.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    pub(super) printed: String,
}

impl Report {
    pub(super) fn aborted(name: &str, why: &str) -> Self {
        let outcome = Outcome::Aborted(why.to_owned());
        Self { name: name.to_owned(), outcome, took: Duration::ZERO, printed: String::new() }
    }

    pub(super) fn passed(&self) -> bool {
        self.outcome == Outcome::Passed
    }

    /// One line; for a failed test also its output.
    pub(super) fn text(&self) -> String {
        let (name, took) = (&self.name, self.took.as_secs_f64());
        let line = match &self.outcome {
            Outcome::Passed => return format!("{name} ok ({took:.1} s)"),
            Outcome::Failed(code) => format!("{name} FAILED (exit code {code}, {took:.1} s)"),
            Outcome::TimedOut => format!("{name} FAILED (timed out after {took:.1} s)"),
            Outcome::Aborted(why) => format!("{name} FAILED ({why})"),
        };
        self.printed.lines().fold(line, |text, line| format!("{text}\n    {line}"))
    }
}

/// Classifies a script's exit code and time.
///
/// A test that exceeds its limit is killed, but not every killed test exceeded its limit.
pub(super) fn outcome(code: i32, took: Duration, limit: Duration) -> Outcome {
    match code {
        0 => Outcome::Passed,
        137 if took >= limit => Outcome::TimedOut,
        code => Outcome::Failed(code),
    }
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
    fn a_failure_shows_the_output() {
        assert_eq!(report("a", Outcome::Passed, "x").text(), "a ok (1.5 s)");
        let failed = report("a", Outcome::Failed(3), "x\ny\n").text();
        assert_eq!(failed, "a FAILED (exit code 3, 1.5 s)\n    x\n    y");
        assert_eq!(report("a", Outcome::TimedOut, "").text(), "a FAILED (timed out after 1.5 s)");
        assert_eq!(Report::aborted("a", "no machine").text(), "a FAILED (no machine)");
    }

    #[test]
    fn only_a_test_killed_at_its_limit_has_timed_out() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(outcome(0, long, short), Outcome::Passed);
        assert_eq!(outcome(137, long, long), Outcome::TimedOut);
        assert_eq!(outcome(137, short, long), Outcome::Failed(137));
        assert_eq!(outcome(2, long, short), Outcome::Failed(2));
    }
}
