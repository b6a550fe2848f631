//! The options of a `sim:` URL and their defaults.
//!
//! Times are in picoseconds, so that the time of a word on a fast link is not rounded away. 64 bits of them are 213 days; no option accepts more than
//! an hour.

use crate::plant::Plant;
use crate::work::Costs;

use farfield_words::units::{MICROSECOND, SECOND, parse_duration, split};
pub(crate) use farfield_words::units::{Picos, duration, picos};

/// A probability in units of 2^-32.
pub(crate) type Odds = u32;

/// The options of a simulated cluster: its network, its costs and its faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// The time from posting a chain to its completion on an idle network.
    pub rtt: Picos,
    /// The time of a byte on a link, in units of 2^-16 ps; 0 for an infinite bandwidth.
    byte_time: u64,
    /// The time for which an operation occupies a memory node; 0 for an infinite rate.
    pub service: Picos,
    /// The time for which a doorbell occupies a compute node's NIC.
    pub doorbell: Picos,
    /// The cost of a thread's own work.
    pub compute: Costs,
    /// The largest deviation of a one-way latency from its mean, in units of 2^-32 of the mean.
    pub jitter: u32,
    /// The time after which an unanswered chain fails.
    pub timeout: Picos,
    /// The virtual time after which a run is abandoned.
    pub limit: Picos,
    /// The number of compute threads of a compute node: they share its NIC and die with it.
    pub threads_per_node: u32,
    /// For each posted chain, the probability that its compute node dies.
    pub crash: Odds,
    /// For each posted chain, the probability that its compute node stalls for a while.
    pub stall: Odds,
    /// For each posted chain, the probability that the link between its compute node and its memory node is cut for a while.
    pub cut: Odds,
    /// For each posted chain, the probability that its memory node dies.
    pub memory_crash: Odds,
    /// The probability that a memory node is slow from the start.
    pub slow: Odds,
    /// True if an object that is unreachable at a run's end is an error.
    pub leaks_fail: bool,
    /// When epochs advance.
    pub reclaim: Reclaim,
    /// The reuse of freed blocks, if the URL sets it.
    reuse: Option<Reuse>,
    /// The planted bug.
    pub plant: Plant,
    /// True if a dead process is only marked, as by real memory nodes, and keepers evict it. Its memory is lost then.
    pub marks_dead_members: bool,
    /// True if keepers sweep lost memory.
    pub sweeps: bool,
    /// Where requests to trustees lie.
    pub requests: Requests,
    /// The order in which the words of a READ or WRITE are accessed.
    pub words: WordOrder,
}

/// The policy by which epochs advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// As soon as the rules of reclamation allow.
    Eager,
    /// As on real fabrics: occasionally, by steps that take round trips.
    Lazy,
}

/// Where requests to trustees lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// In the memory of the trustee's compute node, where chains can reach it.
    Hosted,
    /// On memory nodes, as on networks.
    InMailboxes,
}

/// The order in which the words of a READ or WRITE are accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordOrder {
    /// By their addresses.
    Ascending,
    /// From a random word on, and after the last the first.
    Any,
}

/// The policy by which freed blocks are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// A thread reuses the block that it freed last for its next allocation of that size.
    Immediate,
    /// A freed block is not reused until memory is short.
    Never,
}

impl Default for SimConfig {
    fn default() -> Self {
        let mut config = Self {
            rtt: 2 * MICROSECOND,
            byte_time: 0,
            service: 0,
            doorbell: 0,
            compute: Costs::default(),
            jitter: 0,
            timeout: 100 * MICROSECOND,
            limit: 60 * SECOND,
            threads_per_node: 1,
            crash: 0,
            stall: 0,
            cut: 0,
            memory_crash: 0,
            slow: 0,
            leaks_fail: true,
            reclaim: Reclaim::Eager,
            reuse: None,
            plant: Plant::None,
            marks_dead_members: false,
            sweeps: false,
            requests: Requests::Hosted,
            words: WordOrder::Ascending,
        };
        for (name, value) in Self::DEFAULTS {
            let known = config.set(name, value);
            debug_assert_eq!(known, Ok(true), "{name}={value}");
        }
        config
    }
}

impl SimConfig {
    /// The defaults in the notation of a URL. `Cluster::connect` documents their sources.
    const DEFAULTS: [(&str, &str); 4] =
        [("bandwidth", "100Gbps"), ("rate", "20M"), ("jitter", "10%"), ("doorbell", "100ns")];

    /// The options that only `sim:` has.
    pub const OPTIONS: &str = "`rtt`, `bandwidth`, `rate`, `jitter`, `doorbell`, `compute`, `timeout`, `limit`, \
                                      `threads-per-node`, `crash`, `stall`, `cut`, `memory-crash`, `slow`, `leaks`, `reclaim`, `reuse`, `dead`, `sweep`, `delegation`, `words` and `plant`";

    /// Sets one option. Returns whether the option exists.
    ///
    /// # Errors
    /// One line that names the option and its value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "rtt" => self.rtt = parse_duration(name, value, MICROSECOND / 1000)?,
            "timeout" => self.timeout = parse_duration(name, value, MICROSECOND / 1000)?,
            "limit" => self.limit = parse_duration(name, value, MICROSECOND)?,
            "doorbell" => self.doorbell = parse_duration(name, value, 0)?,
            "compute" => self.compute = Costs::parse(name, value)?,
            "bandwidth" => {
                let bits = quantity(name, value, "bps", "100Gbps")?;
                self.byte_time = bits.map_or(0, |bits| per_second(bits / 8.0, 65536.0));
            }
            "rate" => {
                let operations = quantity(name, value, "", "20M")?;
                self.service = operations.map_or(0, |operations| per_second(operations, 1.0));
            }
            "jitter" => self.jitter = odds(name, value)?,
            "threads-per-node" => {
                self.threads_per_node = match value.parse() {
                    Ok(threads @ 1..) => threads,
                    _ => return Err(format!("{name}={value} is not a number from 1 to {}", u32::MAX)),
                }
            }
            "crash" => self.crash = odds(name, value)?,
            "stall" => self.stall = odds(name, value)?,
            "cut" => self.cut = odds(name, value)?,
            "memory-crash" => self.memory_crash = odds(name, value)?,
            "slow" => self.slow = odds(name, value)?,
            "leaks" => {
                self.leaks_fail = match value {
                    "fail" => true,
                    "ignore" => false,
                    _ => return Err(format!("{name}={value} is neither `fail` nor `ignore`")),
                }
            }
            "reclaim" => {
                self.reclaim = match value {
                    "eager" => Reclaim::Eager,
                    "lazy" => Reclaim::Lazy,
                    _ => return Err(format!("{name}={value} is neither `eager` nor `lazy`")),
                }
            }
            "reuse" => {
                self.reuse = match value {
                    "at-once" => Some(Reuse::Immediate),
                    "never" => Some(Reuse::Never),
                    "seed" => None,
                    _ => return Err(format!("{name}={value} is none of `at-once`, `never` and `seed`")),
                }
            }
            "dead" => {
                self.marks_dead_members = match value {
                    "marked" => true,
                    "cleared" => false,
                    _ => return Err(format!("{name}={value} is neither `cleared` nor `marked`")),
                }
            }
            "sweep" => {
                self.sweeps = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(format!("{name}={value} is neither `yes` nor `no`")),
                }
            }
            "delegation" => {
                self.requests = match value {
                    "mailboxes" => Requests::InMailboxes,
                    "hosted" => Requests::Hosted,
                    _ => return Err(format!("{name}={value} is neither `hosted` nor `mailboxes`")),
                }
            }
            "words" => {
                self.words = match value {
                    "ascending" => WordOrder::Ascending,
                    "any" => WordOrder::Any,
                    _ => return Err(format!("{name}={value} is neither `ascending` nor `any`")),
                }
            }
            "plant" => {
                let mut known = Plant::ALL.iter().copied();
                self.plant = known.find(|plant| plant.name() == value).ok_or_else(|| {
                    let known: Vec<_> =
                        Plant::ALL.iter().map(|plant| format!("`{}`", plant.name())).collect();
                    format!("{name}={value} is none of {}", known.join(", "))
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the reuse policy of a run of `seed`. Lazy reclamation models real fabrics, which reuse blocks immediately.
    pub fn reuse(&self, seed: u64) -> Reuse {
        let drawn =
            if seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 { Reuse::Immediate } else { Reuse::Never };
        self.reuse.unwrap_or(if self.reclaim == Reclaim::Eager { drawn } else { Reuse::Immediate })
    }

    /// Returns the time of `bytes` bytes on a link.
    pub fn transfer(&self, bytes: u64) -> Picos {
        ((u128::from(self.byte_time) * u128::from(bytes)) >> 16) as u64
    }

    /// Returns the mean latency of one way, without jitter.
    pub fn one_way(&self) -> Picos {
        self.rtt * 2 / 5
    }

    /// Returns the time over which a memory node spreads the word accesses of one chain.
    pub fn window(&self) -> Picos {
        self.rtt - 2 * self.one_way()
    }

    /// Returns whether simulated processes have keepers.
    pub fn has_keepers(&self) -> bool {
        self.marks_dead_members || self.sweeps
    }

    /// Returns whether the seed can cause faults while threads run.
    pub fn has_odds(&self) -> bool {
        self.crash | self.stall | self.cut | self.memory_crash > 0
    }
}

/// Returns the time of one event at `rate` events a second, in units of a picosecond divided by `scale`.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // positive, and far from the limits of either type
fn per_second(rate: f64, scale: f64) -> u64 {
    (SECOND as f64 * scale / rate).ceil() as u64
}

/// Parses a positive quantity with a decimal prefix and a unit; returns `None` for `inf`.
fn quantity(name: &str, value: &str, unit: &str, like: &str) -> Result<Option<f64>, String> {
    let wrong = || format!("{name}={value} is not understood; write it like {like}, or `inf`");
    if value == "inf" {
        return Ok(None);
    }
    let (number, rest) = split(value).ok_or_else(wrong)?;
    let prefix = rest.strip_suffix(unit).ok_or_else(wrong)?;
    let factor = match prefix {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return Err(wrong()),
    };
    let quantity = number * factor;
    if quantity < 1.0 {
        return Err(format!("{name}={value} is too small: nothing would ever arrive"));
    }
    if quantity > 1e15 {
        return Err(format!("{name}={value} is too large; for no limit write `inf`"));
    }
    Ok(Some(quantity))
}

/// Parses a probability: a percentage from 0 to 100.
#[allow(clippy::cast_sign_loss)] // checked to be positive
fn odds(name: &str, value: &str) -> Result<Odds, String> {
    let wrong = || format!("{name}={value} is not a percentage from 0% to 100%; write it like 0.1%");
    let (percent, unit) = split(value).ok_or_else(wrong)?;
    if unit != "%" || percent > 100.0 {
        return Err(wrong());
    }
    Ok((percent / 100.0 * f64::from(u32::MAX)).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_converted_to_times() {
        let mut config = SimConfig::default();
        assert_eq!((config.rtt, config.service, config.doorbell), (2_000_000, 50_000, 100_000));
        assert_eq!(config.transfer(1000), 80_000, "8000 bits at 100 Gbit/s");
        assert_eq!(config.set("bandwidth", "1Tbps"), Ok(true));
        assert_eq!(config.transfer(1), 8);
        assert_eq!(config.set("bandwidth", "inf"), Ok(true));
        assert_eq!(config.set("rate", "inf"), Ok(true));
        assert_eq!((config.transfer(1 << 40), config.service), (0, 0));
        assert_eq!(config.set("rtt", "1.5us"), Ok(true));
        assert_eq!((config.rtt, 2 * config.one_way() + config.window()), (1_500_000, 1_500_000));
        assert_eq!(config.set("jitter", "100%"), Ok(true));
        assert_eq!(config.jitter, u32::MAX);
        assert_eq!(config.set("colour", "red"), Ok(false));
    }

    #[test]
    fn each_mistake_names_its_option() {
        let refused = |name: &str, value: &str| {
            let reason = SimConfig::default().set(name, value).expect_err(value);
            assert!(reason.starts_with(&format!("{name}={value} ")) && !reason.contains('\n'), "{reason}");
            reason
        };
        for value in ["-1us", "", "fast", "2", "2 us", "1e3us", "0us", "2hours", "99999s", "1.2.3us", "0.1ns"]
        {
            refused("rtt", value);
        }
        assert!(refused("limit", "2000000000s").contains("too long"));
        for value in ["0", "-5", "0Gbps", "M", "20Mops", "1e9", "99999T"] {
            refused("rate", value);
        }
        for value in ["0Gbps", "100", "100GBps", "-1Gbps"] {
            refused("bandwidth", value);
        }
        for value in ["101%", "-1%", "10", "%", "ten%"] {
            refused("crash", value);
            refused("jitter", value);
        }
        refused("threads-per-node", "0");
        refused("leaks", "maybe");
        refused("reclaim", "soon");
        refused("reuse", "sometimes");
        refused("dead", "buried");
        refused("sweep", "perhaps");
        refused("delegation", "direct");
        refused("plant", "tree");
    }

    proptest::proptest! {
        #[test]
        fn no_value_panics(name in "(rtt|rate|bandwidth|jitter|crash|limit)", value in "[0-9.]{0,24}[a-zA-Z%]{0,4}") {
            drop(SimConfig::default().set(&name, &value));
        }
    }
}
