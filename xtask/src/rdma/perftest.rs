//! What perftest's programs print, as numbers.
//!
//! They print a table of one line below a header. The columns' names have spaces in them, so columns are known by their
//! order; the header tells which table it is.

/// What one message takes, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Latency {
    /// Which perftest calls typical: the median.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// How much goes through.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rate {
    /// Millions of messages a second.
    pub(super) messages_m_per_s: f64,
}

impl Latency {
    /// The table in what `ib_read_lat`, `ib_write_lat` or `ib_atomic_lat` printed.
    pub(super) fn parse(printed: &str) -> Result<Self, String> {
        let [_bytes, _iterations, _min, _max, p50_us, _mean, _deviation, p99_us] =
            row(printed, "t_typical[usec]")?;
        Ok(Self { p50_us, p99_us })
    }
}

impl Rate {
    /// The table in what `ib_read_bw`, `ib_write_bw` or `ib_atomic_bw` printed.
    pub(super) fn parse(printed: &str) -> Result<Self, String> {
        let [_bytes, _iterations, _peak, _mean, messages_m_per_s] = row(printed, "MsgRate[Mpps]")?;
        Ok(Self { messages_m_per_s })
    }
}

/// The first `N` numbers of the line below the header that has this column.
fn row<const N: usize>(printed: &str, column: &str) -> Result<[f64; N], String> {
    let missing = || format!("perftest printed no table with {column}");
    let mut lines = printed.lines().map(str::trim);
    lines.find(|line| line.starts_with("#bytes") && line.contains(column)).ok_or_else(missing)?;
    // Warnings may come between the header and the numbers, as from another thread.
    let row =
        lines.find(|line| line.starts_with(|first: char| first.is_ascii_digit())).ok_or_else(missing)?;
    let mut numbers = [0.0; N];
    let mut words = row.split_whitespace();
    for number in &mut numbers {
        let word = words.next().ok_or_else(|| format!("perftest's line is too short: {row}"))?;
        *number = word
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
            .ok_or_else(|| format!("perftest printed `{word}` for a number: {row}"))?;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = "\
---------------------------------------------------------------------------------------
                    RDMA_Read Latency Test
 Dual-port       : OFF\t\tDevice         : rxe0
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       1000          51.20          1207.49      60.25    \t       62.91       \t12.30\t\t98.50\t\t\t1207.49
---------------------------------------------------------------------------------------
";

    const RATE: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 64         1000             3.28               3.25   \t\t   0.053263
";

    #[test]
    fn latencies_are_read_by_column() {
        assert_eq!(Latency::parse(LATENCY), Ok(Latency { p50_us: 60.25, p99_us: 98.5 }));
    }

    #[test]
    fn rates_are_read_by_column() {
        assert_eq!(Rate::parse(RATE), Ok(Rate { messages_m_per_s: 0.053_263 }));
    }

    #[test]
    fn another_table_is_not_taken_for_it() {
        assert!(Latency::parse(RATE).unwrap_err().contains("t_typical[usec]"));
        assert!(Rate::parse(LATENCY).unwrap_err().contains("MsgRate[Mpps]"));
        assert!(Latency::parse("").is_err());
    }

    #[test]
    fn what_is_cut_off_or_no_number_is_an_error() {
        let header = LATENCY.lines().nth(4).unwrap();
        assert!(Latency::parse(header).is_err());
        assert!(Latency::parse(&format!("{header}\n 8 1000 51.2")).unwrap_err().contains("too short"));
        let strange = LATENCY.replace("60.25", "-nan");
        assert!(Latency::parse(&strange).unwrap_err().contains("`-nan`"));
    }
}
