//! The options of a `tcp:` URL.

use std::time::Duration;

pub use crate::lanes::config::{NodesConfig, Sharing};

/// The memory nodes of a cluster, and the use of connections to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// The memory nodes, and the options that all networks have.
    pub nodes: NodesConfig,
    /// True if all bytes are encrypted and authenticated, not only the proofs of the secret.
    pub encrypt: bool,
    /// True if compute threads connect to each other for delegation.
    pub direct: bool,
}

impl TcpConfig {
    /// The options that only this fabric has.
    pub const OPTIONS: &'static str = "`timeout`, `lanes`, `lane-policy`, `secret-file`, `encrypt`, `direct`";

    /// Parses the memory nodes, the part of a URL behind `tcp://`.
    pub fn new(nodes: &str) -> Result<Self, String> {
        Ok(Self { nodes: NodesConfig::new(nodes)?, encrypt: true, direct: true })
    }

    /// Sets an option. Returns whether it exists.
    pub fn set(
        &mut self,
        name: &str,
        value: &str,
        number: impl Fn(u64, u64) -> Result<u64, String>,
        duration: impl FnOnce() -> Result<Duration, String>,
    ) -> Result<bool, String> {
        let switch = match name {
            "encrypt" => &mut self.encrypt,
            "direct" => &mut self.direct,
            _ => return self.nodes.set(name, value, number, duration),
        };
        *switch = match value {
            "yes" => true,
            "no" => false,
            _ => return Err(format!("{name}={value} is neither `yes` nor `no`")),
        };
        Ok(true)
    }
}
