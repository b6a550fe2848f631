//! What ends a memory node.

use std::io::Write;
use std::os::unix::net::UnixStream;

/// Ends a memory node, from any thread.
#[derive(Debug)]
pub struct Stopper(pub(crate) UnixStream);

impl Stopper {
    /// Tells it to stop. It does so at once, whether clients are connected or not; they find it unreachable.
    pub fn stop(&self) {
        // One that is gone has stopped.
        let _ = (&self.0).write(&[1]);
    }
}
