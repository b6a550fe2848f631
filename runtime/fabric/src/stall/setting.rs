//! The time after which a wait counts as a stall: `FARFIELD_STALL`, a duration such as `5s` or `50ms`; `0` for never.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{self, Error, Result};
use farfield_words::units;

/// The environment variable.
const VARIABLE: &str = "FARFIELD_STALL";

/// The limit if the variable is not set, and the limit when this process last connected; in nanoseconds, 0 for off.
static DEFAULT_LIMIT: AtomicU64 = AtomicU64::new(0);
static LAST_LIMIT: AtomicU64 = AtomicU64::new(0);

/// Sets the limit for a process whose environment sets none.
pub fn set_default_limit(limit: Duration) {
    DEFAULT_LIMIT.store(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Returns the limit, if stalls are to be reported.
///
/// # Errors
/// [`Error::InvalidArgument`] naming the variable if its value is no duration.
pub fn limit() -> Result<Option<Duration>> {
    let limit = match std::env::var_os(VARIABLE) {
        Some(value) => parse(&value.to_string_lossy())?,
        None => Duration::from_nanos(DEFAULT_LIMIT.load(Ordering::Relaxed)),
    };
    LAST_LIMIT.store(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    Ok(Some(limit).filter(|limit| !limit.is_zero()))
}

/// Returns the limit as of this process's last connection: for waits that belong to no cluster.
pub(super) fn last() -> Option<Duration> {
    Some(Duration::from_nanos(LAST_LIMIT.load(Ordering::Relaxed))).filter(|limit| !limit.is_zero())
}

fn parse(value: &str) -> Result<Duration> {
    if matches!(value, "" | "0") {
        return Ok(Duration::ZERO);
    }
    let least = units::picos(Duration::from_millis(1));
    let wrong = |_| {
        let reason = "write it like 50ms or 5s, from 1ms to an hour, or 0 for off";
        Error::from(error::InvalidArgument { argument: VARIABLE, value: value.into(), reason })
    };
    units::parse_duration(VARIABLE, value, least).map(units::duration).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_the_empty_string_are_limits() {
        assert_eq!(parse("50ms").unwrap(), Duration::from_millis(50));
        assert_eq!(parse("5s").unwrap(), Duration::from_secs(5));
        assert!(parse("").unwrap().is_zero() && parse("0").unwrap().is_zero());
        for wrong in ["5", "soon", "-1s", "1us", "3h"] {
            let error = parse(wrong).unwrap_err().to_string();
            let expected = format!("FARFIELD_STALL is {wrong}: write it like 50ms or 5s");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
