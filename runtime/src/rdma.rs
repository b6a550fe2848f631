//! The RDMA devices of a machine. In a build with the feature `verbs` or `verbs-dlopen`.

use crate::error::Result;
use farfield_fabric::verbs;
pub use farfield_fabric::verbs::{Atomics, DeviceInfo, PortInfo};

/// Lists the RDMA devices of this machine.
///
/// # Errors
/// [`Error::System`](crate::Error::System) if there are none, or they may not be used.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Ok(verbs::devices()?)
}
