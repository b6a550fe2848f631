//! The options of an `rdma:` URL.

use std::time::Duration;

pub use crate::lanes::config::{NodesConfig, Sharing};

/// The memory nodes of a cluster, and the use of connections to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsConfig {
    /// The memory nodes, and the options that all networks have.
    pub nodes: NodesConfig,
    /// The exponent of the time after which the device sends a packet again, if the URL sets it.
    pub ack_timeout: Option<u8>,
}

impl VerbsConfig {
    /// The options that only this fabric has.
    pub const OPTIONS: &'static str = "`timeout`, `lanes`, `lane-policy`, `secret-file`, `ack-timeout`";

    /// Parses the memory nodes, the part of a URL behind `rdma://`.
    pub fn new(nodes: &str) -> Result<Self, String> {
        Ok(Self { nodes: NodesConfig::new(nodes)?, ack_timeout: None })
    }

    /// Sets an option. Returns whether it exists.
    pub fn set(
        &mut self,
        name: &str,
        value: &str,
        number: impl Fn(u64, u64) -> Result<u64, String>,
        duration: impl FnOnce() -> Result<Duration, String>,
    ) -> Result<bool, String> {
        if name == "ack-timeout" {
            self.ack_timeout = Some(number(1, 31)? as u8);
            return Ok(true);
        }
        self.nodes.set(name, value, number, duration)
    }
}
