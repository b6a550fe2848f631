//! The shared-memory fabric: far memory is a [sealed](super::host::SealedMemory) file of memory that processes of one machine map.
//!
//! Operations are those of the [host fabric](super::host): a mapped word is a word. So this module is not on their path. It lets processes find the
//! memory and each other:
//!
//! | module | contents |
//! |---|---|
//! | `directory` | the files of a cluster: their owner, their locks, and the removal of stale ones |
//! | `connection` | the memory node: makes the memory, and passes it to clients; `server` serves them |
//! | `client` | an admitted process |
//! | `passing` | passing the memory's descriptor, with the welcome |
//!
//! # The property of the kernel on which it relies
//!
//! When a client ends, for any reason, the kernel closes its control connection. Linux unmaps a thread's memory before it closes its files
//! (`exit_mm` before `exit_files` in `do_exit`), and the last thread of a process closes the process's files. So once the memory node sees the end of
//! the connection, the client can not write to the memory any more. (A child that a client has forked without `exec` has the memory, its lock and the
//! connection, too; it counts as the client.)

mod client;
mod connection;
mod directory;
mod passing;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use client::Client;
pub(crate) use connection::ShmEntrance;

use super::handshake::{MAX_WELCOME_BYTES, printable_reason, truncate_reason};

/// The timeout of the handshake and of each answer.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// The options of a `shm:` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// The name of the cluster.
    pub name: Box<str>,
    /// The file with its secret, if the URL names one.
    pub secret_file: Option<PathBuf>,
}

impl ShmConfig {
    /// The options that only this fabric has.
    pub const OPTIONS: &'static str = "`secret-file`";

    /// Makes the options of a cluster from its name, the part of a URL behind `shm:`.
    pub fn new(name: &str) -> Result<Self, String> {
        directory::check_name(name)?;
        Ok(Self { name: name.into(), secret_file: None })
    }

    /// Sets an option. Returns whether it exists.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        if name == "secret-file" {
            self.secret_file = Some(value.into());
        }
        name == "secret-file"
    }
}

/// A stream with a deadline for all reads and writes together, however slowly bytes arrive.
struct DeadlineStream<'a> {
    stream: &'a UnixStream,
    time: Instant,
}

impl<'a> DeadlineStream<'a> {
    /// Sets the deadline to now plus `timeout`.
    fn after(stream: &'a UnixStream, timeout: Duration) -> Self {
        Self { stream, time: Instant::now() + timeout }
    }

    /// Returns the stream, with the remaining time as its read timeout.
    fn to_read(&self) -> io::Result<&'a UnixStream> {
        self.stream.set_read_timeout(self.remaining()?)?;
        Ok(self.stream)
    }

    /// Returns the stream, with the remaining time as its write timeout.
    fn to_write(&self) -> io::Result<&'a UnixStream> {
        self.stream.set_write_timeout(self.remaining()?)?;
        Ok(self.stream)
    }

    fn remaining(&self) -> io::Result<Option<Duration>> {
        let remaining = self.time.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(remaining)) }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.to_read()?.read(buffer)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to_write()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the bytes of a message to a client, or of the reason of a refusal: its length, its kind and the text.
fn framed(message: Result<&[u8], &str>) -> Vec<u8> {
    let (kind, body) = match message {
        Ok(body) => (0, body),
        Err(reason) => (1, truncate_reason(reason).as_bytes()),
    };
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(body);
    bytes
}

/// Receives a message of [`framed`].
fn receive(stream: &mut impl Read) -> io::Result<Result<Vec<u8>, String>> {
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [length @ .., kind] = head;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_WELCOME_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(if kind == 0 { Ok(body) } else { Err(printable_reason(&body)) })
}

#[cfg(test)]
mod tests;
