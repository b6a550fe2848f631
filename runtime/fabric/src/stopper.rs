//! What memory nodes of both kinds have in common: what ends them, and a lease's bounds.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::error::{self, Error, Result};

/// Ends a memory node, from any thread.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// One that writes to this end of a pair; the memory node waits at the other.
    pub(crate) fn new(end: UnixStream) -> Self {
        Self(end)
    }

    /// Tells it to stop. It does so at once, whether clients are connected or not; they find it unreachable.
    pub fn stop(&self) {
        // One that is gone has stopped.
        let _ = (&self.0).write(&[1]);
    }
}

/// A lease in milliseconds.
///
/// # Errors
/// [`Error::InvalidArgument`] if it is out of its bounds.
pub fn lease_ms(lease: Duration) -> Result<u32> {
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&lease) {
        let (value, reason) = (format!("{lease:?}").into(), "it is from 100 ms to an hour");
        return Err(Error::from(error::InvalidArgument { argument: "lease", value, reason }));
    }
    Ok(lease.as_millis() as u32)
}
