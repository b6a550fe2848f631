//! Stopping a memory node of either kind, and the bounds of a lease.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::error::{self, Error, Result};

/// Stops a memory node, from any thread.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// Makes a stopper that writes to this end of a socket pair; the memory node waits at the other.
    pub(crate) fn new(end: UnixStream) -> Self {
        Self(end)
    }

    /// Stops the memory node immediately, even if clients are connected: they find it unreachable.
    pub fn stop(&self) {
        // A memory node that has closed its end has stopped.
        let _ = (&self.0).write(&[1]);
    }
}

/// Converts a lease to milliseconds.
///
/// # Errors
/// [`Error::InvalidArgument`] if it is out of its bounds.
pub fn lease_ms(lease: Duration) -> Result<u32> {
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&lease) {
        let (value, reason) = (format!("{lease:?}").into(), "it must be from 100 ms to an hour");
        return Err(Error::from(error::InvalidArgument { argument: "lease", value, reason }));
    }
    Ok(lease.as_millis() as u32)
}
