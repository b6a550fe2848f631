//! The options of URLs that name memory nodes.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Result;
use crate::handshake::Secret;
use crate::secret;

/// The default timeout of an operation.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// The default number of shared lanes.
const DEFAULT_LANES: usize = 4;

/// The memory nodes of a cluster, and the use of connections to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesConfig {
    /// The memory nodes, each `host:port`, in the order of their numbers.
    pub nodes: Vec<Box<str>>,
    /// The timeout of an operation, and of an attempt to connect.
    pub timeout: Duration,
    /// How threads share queue pairs.
    pub sharing: Sharing,
    secret_file: Option<PathBuf>,
    /// The seed of random choices of lanes.
    pub seed: u64,
}

/// How threads share lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each thread has a lane of its own.
    OneToOne,
    /// Thread `i` of a run has lane `i` modulo their number.
    Mod(usize),
    /// Threads take lanes in turn.
    RoundRobin(usize),
    /// Each thread has a random lane.
    Random(usize),
}

impl Sharing {
    /// Returns the number of lanes to each memory node for a run of `threads` threads.
    pub(crate) fn lanes(self, threads: usize) -> usize {
        match self {
            Self::OneToOne => threads,
            Self::Mod(lanes) | Self::RoundRobin(lanes) | Self::Random(lanes) => lanes.min(threads),
        }
    }

    /// Returns the index of a thread's lane. The thread is the `turn`th to ask.
    pub(crate) fn lane(self, thread: usize, turn: u64, lanes: usize) -> usize {
        match self {
            Self::OneToOne | Self::Mod(_) => thread % lanes,
            Self::RoundRobin(_) => (turn % lanes as u64) as usize,
            // A multiplicative hash scatters consecutive turns.
            Self::Random(_) => {
                ((u128::from(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * lanes as u128) >> 64) as usize
            }
        }
    }
}

impl NodesConfig {
    /// Parses the memory nodes, the part of a URL behind `rdma://` or `tcp://`.
    pub fn new(nodes: &str) -> Result<Self, String> {
        let names: Vec<Box<str>> = nodes.split(',').map(Into::into).collect();
        for (index, name) in names.iter().enumerate() {
            let port = name.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
            if port.and_then(|port| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
                return Err(format!("`{name}` is not HOST:PORT"));
            }
            if names[..index].contains(name) {
                return Err(format!("memory node `{name}` is given twice"));
            }
        }
        if names.len() > usize::from(u16::MAX) {
            return Err(format!("{} memory nodes are too many: give up to {}", names.len(), u16::MAX));
        }
        Ok(Self {
            nodes: names,
            timeout: DEFAULT_TIMEOUT,
            sharing: Sharing::OneToOne,
            secret_file: None,
            seed: 0,
        })
    }

    /// Sets an option. Returns whether it exists.
    pub fn set(
        &mut self,
        name: &str,
        value: &str,
        number: impl Fn(u64, u64) -> Result<u64, String>,
        duration: impl FnOnce() -> Result<Duration, String>,
    ) -> Result<bool, String> {
        match name {
            "timeout" => self.timeout = duration()?,
            "lanes" => {
                let lanes = number(1, 1 << 16)? as usize;
                self.sharing = match self.sharing {
                    Sharing::OneToOne | Sharing::Mod(_) => Sharing::Mod(lanes),
                    Sharing::RoundRobin(_) => Sharing::RoundRobin(lanes),
                    Sharing::Random(_) => Sharing::Random(lanes),
                };
            }
            "lane-policy" => {
                let lanes = match self.sharing {
                    Sharing::OneToOne => DEFAULT_LANES,
                    Sharing::Mod(lanes) | Sharing::RoundRobin(lanes) | Sharing::Random(lanes) => lanes,
                };
                self.sharing = match value {
                    "one-to-one" if self.sharing != Sharing::OneToOne => {
                        return Err("lane-policy=one-to-one gives each thread its own lane: leave out lanes"
                            .to_owned());
                    }
                    "one-to-one" => Sharing::OneToOne,
                    "mod" => Sharing::Mod(lanes),
                    "rr" => Sharing::RoundRobin(lanes),
                    "rand" => Sharing::Random(lanes),
                    _ => {
                        return Err(format!(
                            "lane-policy={value} is none of `one-to-one`, `mod`, `rr`, `rand`"
                        ));
                    }
                };
            }
            "secret-file" => self.secret_file = Some(value.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads the cluster's secret.
    pub(crate) fn secret(&self) -> Result<Secret> {
        secret::of_client(self.secret_file.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_sharing_uses_every_lane() {
        for sharing in [Sharing::OneToOne, Sharing::Mod(3), Sharing::RoundRobin(3), Sharing::Random(3)] {
            let lanes = sharing.lanes(16);
            let mut used = vec![0; lanes];
            for thread in 0..16 {
                used[sharing.lane(thread, thread as u64 + 9, lanes)] += 1;
            }
            assert!(used.iter().all(|used| *used > 0), "{sharing:?}: {used:?}");
        }
        assert_eq!(Sharing::Mod(8).lanes(2), 2, "no more than there are threads");
    }
}
