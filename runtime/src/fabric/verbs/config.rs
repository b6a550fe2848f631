//! What an `rdma:` URL asks for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::handshake::Secret;
use crate::error::{self, Error, Result};

/// How long an operation may go without an answer if nobody says.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// The variable that names the secret's file where the URL does not.
const SECRET_VARIABLE: &str = "FARFIELD_SECRET_FILE";
/// How many lanes threads share if nobody says.
const DEFAULT_LANES: usize = 4;
/// The longest secret that is read.
const MAX_SECRET_BYTES: u64 = 4096;

/// How to reach a cluster, and how to use the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The memory nodes, each `host:port`, in the order of their numbers.
    pub(crate) nodes: Vec<Box<str>>,
    pub(crate) timeout: Duration,
    pub(crate) sharing: Sharing,
    secret_file: Option<PathBuf>,
    pub(crate) ack_timeout: Option<u8>,
    /// What a random choice of lanes starts from.
    pub(crate) seed: u64,
}

/// How threads share lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Each has its own.
    OneToOne,
    /// Thread `i` of a run has lane `i` modulo their number.
    Mod(usize),
    /// Each thread has the next.
    RoundRobin(usize),
    /// Each thread has any.
    Random(usize),
}

impl Sharing {
    /// How many lanes to each memory node a run of so many threads uses.
    pub(super) fn lanes(self, threads: usize) -> usize {
        match self {
            Self::OneToOne => threads,
            Self::Mod(lanes) | Self::RoundRobin(lanes) | Self::Random(lanes) => lanes.min(threads),
        }
    }

    /// The lane of a thread, which is the `turn`th to ask, of those that there are.
    pub(super) fn lane(self, thread: usize, turn: u64, lanes: usize) -> usize {
        match self {
            Self::OneToOne | Self::Mod(_) => thread % lanes,
            Self::RoundRobin(_) => (turn % lanes as u64) as usize,
            // A multiplicative hash: what follows one another is scattered.
            Self::Random(_) => {
                ((u128::from(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * lanes as u128) >> 64) as usize
            }
        }
    }
}

impl Config {
    /// The options that only this fabric has.
    pub(crate) const OPTIONS: &'static str =
        "`timeout`, `qp-lanes`, `qp-policy`, `secret-file`, `ack-timeout`";

    /// Memory nodes, as they stand in a URL behind `rdma://`.
    pub(crate) fn new(nodes: &str) -> Result<Self, String> {
        let names: Vec<Box<str>> = nodes.split(',').map(Into::into).collect();
        for (index, name) in names.iter().enumerate() {
            let port = name.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
            if port.and_then(|port| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
                return Err(format!("`{name}` is no HOST:PORT"));
            }
            if names[..index].contains(name) {
                return Err(format!("memory node `{name}` is given twice"));
            }
        }
        if names.len() > usize::from(u16::MAX) {
            return Err(format!("{} memory nodes are too many", names.len()));
        }
        Ok(Self {
            nodes: names,
            timeout: DEFAULT_TIMEOUT,
            sharing: Sharing::OneToOne,
            secret_file: None,
            ack_timeout: None,
            seed: 0,
        })
    }

    /// Sets an option; gives whether there is such a one.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: &str,
        number: impl Fn(u64, u64) -> Result<u64, String>,
        duration: impl FnOnce() -> Result<Duration, String>,
    ) -> Result<bool, String> {
        match name {
            "timeout" => self.timeout = duration()?,
            "qp-lanes" => {
                let lanes = number(1, 1 << 16)? as usize;
                self.sharing = match self.sharing {
                    Sharing::OneToOne | Sharing::Mod(_) => Sharing::Mod(lanes),
                    Sharing::RoundRobin(_) => Sharing::RoundRobin(lanes),
                    Sharing::Random(_) => Sharing::Random(lanes),
                };
            }
            "qp-policy" => {
                let lanes = match self.sharing {
                    Sharing::OneToOne => DEFAULT_LANES,
                    Sharing::Mod(lanes) | Sharing::RoundRobin(lanes) | Sharing::Random(lanes) => lanes,
                };
                self.sharing = match value {
                    "one-to-one" if self.sharing != Sharing::OneToOne => {
                        return Err(
                            "qp-policy=one-to-one gives each thread its own: leave out qp-lanes".to_owned()
                        );
                    }
                    "one-to-one" => Sharing::OneToOne,
                    "mod" => Sharing::Mod(lanes),
                    "rr" => Sharing::RoundRobin(lanes),
                    "rand" => Sharing::Random(lanes),
                    _ => {
                        return Err(format!(
                            "qp-policy={value} is none of `one-to-one`, `mod`, `rr`, `rand`"
                        ));
                    }
                };
            }
            "secret-file" => self.secret_file = Some(value.into()),
            "ack-timeout" => self.ack_timeout = Some(number(1, 31)? as u8),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The cluster's secret: what the file has that the URL or the environment names, or nothing.
    pub(super) fn secret(&self) -> Result<Secret> {
        let file = self.secret_file.clone().or_else(|| std::env::var_os(SECRET_VARIABLE).map(PathBuf::from));
        file.map_or_else(|| Ok(Secret::new(b"")), |file| read_secret(&file))
    }
}

/// Reads a secret from a file that nobody but its owner may read.
///
/// # Errors
/// [`Error::InvalidArgument`] in a line.
pub(crate) fn read_secret(file: &Path) -> Result<Secret> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let invalid = |reason| {
        let value = file.display().to_string().into();
        Error::from(error::InvalidArgument { argument: "secret file", value, reason })
    };
    let mut open = std::fs::File::open(file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => invalid("there is no such file"),
        _ => invalid("it can not be read"),
    })?;
    let metadata = open.metadata().map_err(|_| invalid("it can not be read"))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(invalid("others than its owner may read it: chmod 600"));
    }
    let mut bytes = Vec::new();
    open.by_ref()
        .take(MAX_SECRET_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|_| invalid("it can not be read"))?;
    // Editors end a file with a line break.
    let secret = bytes.trim_ascii_end();
    if secret.is_empty() {
        return Err(invalid("it is empty"));
    }
    Ok(Secret::new(secret))
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

    #[test]
    fn a_secret_is_its_owners() {
        use std::os::unix::fs::PermissionsExt;
        let file = std::env::temp_dir().join(format!("farfield-secret-{}", std::process::id()));
        let said = |file: &Path| read_secret(file).map(drop).unwrap_err().to_string();
        assert!(said(&file).contains("no such file"));
        std::fs::write(&file, "open sesame\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(said(&file).contains("chmod 600"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read_secret(&file).is_ok());
        std::fs::write(&file, "\n").unwrap();
        assert!(said(&file).contains("empty"));
        std::fs::remove_file(&file).unwrap();
    }
}
