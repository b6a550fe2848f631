//! Sizes in bytes and durations, in the notation of URLs and options.
//!
//! Durations are picoseconds, so that the time of a word on a fast link is not rounded away in the simulator. 64 bits of them are 213 days; no option
//! accepts more than an hour.

use std::time::Duration;

/// Picoseconds.
pub type Picos = u64;

/// A microsecond.
pub const MICROSECOND: Picos = 1_000_000;
/// A second.
pub const SECOND: Picos = 1_000_000 * MICROSECOND;
/// The longest duration that an option accepts.
const LONGEST: Picos = 3600 * SECOND;

/// Converts a duration to picoseconds.
pub fn picos(duration: Duration) -> Picos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000)
}

/// Converts picoseconds to a duration, rounded down to nanoseconds.
pub fn duration(time: Picos) -> Duration {
    Duration::from_nanos(time / 1000)
}

/// Parses a duration of at least `least`: a decimal number with a unit.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // checked to be positive and below an hour
pub fn parse_duration(name: &str, value: &str, least: Picos) -> Result<Picos, String> {
    let wrong = || format!("{name}={value} is not a duration; write it like 500ns, 2us, 1.5ms or 3s");
    let (number, unit) = split(value).ok_or_else(wrong)?;
    let unit = match unit {
        "ns" => MICROSECOND / 1000,
        "us" | "µs" => MICROSECOND,
        "ms" => MICROSECOND * 1000,
        "s" => SECOND,
        _ => return Err(wrong()),
    };
    let picos = number * unit as f64;
    if picos > LONGEST as f64 {
        return Err(format!("{name}={value} is too long: the longest is an hour"));
    }
    let picos = picos.round() as u64;
    if picos < least {
        let (least, unit) =
            if least < MICROSECOND { (least / 1000, "ns") } else { (least / MICROSECOND, "us") };
        return Err(format!("{name}={value} is too short: the shortest is {least}{unit}"));
    }
    Ok(picos)
}

/// Parses a size in bytes, in the notation of a cluster's URL: a number with an optional unit (`KiB`, `MiB`, `GiB`, `TiB`, or `kB`, `MB`, `GB`,
/// `TB`).
///
/// ```
/// assert_eq!(farfield_words::units::parse_size("2GiB"), Ok(2 << 30));
/// assert!(farfield_words::units::parse_size("2 parsecs").is_err());
/// ```
///
/// # Errors
/// The reason, in one line.
pub fn parse_size(value: &str) -> Result<u64, String> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let unit_bytes: u64 = match unit {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => {
            return Err(format!("{value} has an unknown unit `{unit}`; write it like 64KiB, 16MiB or 2GiB"));
        }
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit_bytes))
        .ok_or_else(|| format!("{value} is not a size; write it like 64KiB, 16MiB or 2GiB"))
}

/// Splits an unsigned decimal number from the text that follows it.
pub fn split(value: &str) -> Option<(f64, &str)> {
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_bounds() {
        let parse = |value| parse_duration("rtt", value, MICROSECOND);
        for (value, expected) in [
            ("1us", MICROSECOND),
            ("1.5µs", 1_500_000),
            ("2ms", 2000 * MICROSECOND),
            ("3600s", 3600 * SECOND),
        ] {
            assert_eq!(parse(value), Ok(expected));
        }
        for (value, reason) in [
            ("5", "is not a duration"),
            ("-1us", "is not a duration"),
            ("1h", "is not a duration"),
            ("999ns", "is too short: the shortest is 1us"),
            ("3601s", "is too long: the longest is an hour"),
        ] {
            let refused = parse(value).unwrap_err();
            assert!(refused.starts_with(&format!("rtt={value} {reason}")), "{refused}");
        }
        assert_eq!(duration(picos(Duration::from_millis(7))), Duration::from_millis(7));
        assert_eq!(duration(1999), Duration::from_nanos(1), "rounded down");
        assert_eq!(picos(Duration::MAX), u64::MAX);
    }

    #[test]
    fn sizes_have_decimal_and_binary_units_and_do_not_overflow() {
        for (value, expected) in [("7", 7), ("7B", 7), ("2kB", 2000), ("2KiB", 2048), ("16TiB", 16 << 40)] {
            assert_eq!(parse_size(value), Ok(expected));
        }
        for value in ["", "-1", "1.5MiB", "KiB", "1kib", "18446744073709551616", "16777216TiB"] {
            assert!(parse_size(value).unwrap_err().starts_with(value), "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(value in "[0-9.]{0,24}[a-zA-Zµ%]{0,4}") {
            let _ = (parse_size(&value), parse_duration("x", &value, 0), split(&value));
        }
    }
}
