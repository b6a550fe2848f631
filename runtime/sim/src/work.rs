//! The cost of a thread's own work in virtual time.

use farfield_words::units::{Picos, parse_duration, picos};

const NANOSECOND: Picos = 1000;

/// The costs of a thread's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// For each operation that is posted, and for each that completes.
    posted: Picos,
    completed: Picos,
    /// For each use of a cached copy of an object.
    cached: Picos,
    /// For each request that is served.
    served: Picos,
    /// True if work that the program declares takes time.
    counts: bool,
}

/// Work of a compute thread that the simulator can not observe, for `ComputeThread::compute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Work that takes this long.
    Time(std::time::Duration),
    /// The use of a local copy of an object: `cached` of the option `compute`. `Cached::get` accounts for it itself.
    CachedAccess,
    /// Serving another thread's request: `served` of the option `compute`.
    RequestServed,
}

impl From<std::time::Duration> for Work {
    fn from(time: std::time::Duration) -> Self {
        Self::Time(time)
    }
}

impl Default for Costs {
    /// `Cluster::connect` documents the sources.
    fn default() -> Self {
        Self {
            posted: 60 * NANOSECOND,
            completed: 60 * NANOSECOND,
            cached: 10 * NANOSECOND,
            // As measured: `shm.trust.served.ratio_to_simulated` of the book's figures.
            served: 20 * NANOSECOND,
            counts: true,
        }
    }
}

impl Costs {
    /// Costs of zero.
    const NONE: Self = Self { posted: 0, completed: 0, cached: 0, served: 0, counts: false };

    /// Parses the option: `0`, or a list like `posted:60ns+cached:5ns`. Costs that it does not name keep their defaults.
    ///
    /// # Errors
    /// One line that names the option and its value.
    pub(super) fn parse(name: &str, value: &str) -> Result<Self, String> {
        if value == "0" {
            return Ok(Self::NONE);
        }
        let wrong = || {
            format!(
                "{name}={value} is not understood; write 0, or a list of `posted`, `completed`, `cached` and `served` like posted:60ns+cached:5ns"
            )
        };
        let mut costs = Self::default();
        for part in value.split('+') {
            let (kind, cost) = part.split_once(':').ok_or_else(wrong)?;
            let place = match kind {
                "posted" => &mut costs.posted,
                "completed" => &mut costs.completed,
                "cached" => &mut costs.cached,
                "served" => &mut costs.served,
                _ => return Err(wrong()),
            };
            *place = parse_duration(name, cost, 0).map_err(|_| wrong())?;
        }
        Ok(costs)
    }

    /// Returns the cost of work.
    pub(super) fn of(&self, work: Work) -> Picos {
        match work {
            Work::CachedAccess => self.cached,
            Work::RequestServed => self.served,
            Work::Time(time) if self.counts => picos(time),
            Work::Time(_) => 0,
        }
    }

    pub(super) fn of_posting(&self, operations: usize) -> Picos {
        self.posted * operations as u64
    }

    pub(super) fn of_completing(&self, operations: usize) -> Picos {
        self.completed * operations as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_are_not_named_keep_their_defaults() {
        let costs = Costs::parse("compute", "posted:1us+cached:0ns").unwrap();
        assert_eq!((costs.of_posting(3), costs.of(Work::CachedAccess)), (3_000_000, 0));
        assert_eq!(costs.of_completing(2), Costs::default().of_completing(2));
        assert_eq!(costs.of(Work::RequestServed), Costs::default().served);
        let none = Costs::parse("compute", "0").unwrap();
        let second = Work::Time(std::time::Duration::from_secs(1));
        assert_eq!((none.of(second), none.of_posting(9), none.of_completing(9)), (0, 0, 0));
        assert_eq!(costs.of(second), 1_000_000_000_000);
    }

    #[test]
    fn each_mistake_names_the_option() {
        for value in ["", "1", "60ns", "posted", "posted:60", "posted:60ns+", "sent:60ns", "posted:2hours"] {
            let reason = Costs::parse("compute", value).unwrap_err();
            assert!(reason.starts_with(&format!("compute={value} ")) && !reason.contains('\n'), "{reason}");
        }
    }
}
