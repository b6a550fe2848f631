//! The shared-memory fabric: far memory is a [sealed](super::host::SealedMemory) file of memory that processes of one machine map.
//!
//! Operations are those of the [host fabric](super::host): a mapped word is a word. So nothing here is on their path. What there
//! is besides is how processes find the memory and each other:
//!
//! | module | what it does |
//! |---|---|
//! | [`directory`] | the directory of a cluster: whose it is, who uses it, what is left over |
//! | [`server`] | the memory node: makes the memory, lets clients in, knows when they are gone |
//! | [`client`] | a process that has been let in |
//! | [`passing`] | how it gets the memory: by a descriptor, with the welcome |
//!
//! # What it relies on
//!
//! A client that ends, however it ends, has its control connection closed by the kernel. Linux takes a thread's memory away
//! before its files (`exit_mm` before `exit_files` in `do_exit`), and a process's files are closed by the last of its threads. So once
//! the memory node sees the end of the connection, nothing of the client writes to the memory any more. (A child that a client
//! has forked without `exec` has the memory, its lock and the connection, too; it counts as the client.)

mod client;
mod directory;
mod passing;
mod server;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use client::Client;
pub use server::{Server, ShmNodeOptions};

use super::handshake::{MAX_WELCOME_BYTES, printable_reason, truncate_reason};

/// How long a process may take to let another in, or to answer it.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// What a `shm:` URL asks for.
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

    /// A cluster by its name, as it stands in a URL behind `shm:`.
    pub fn new(name: &str) -> Result<Self, String> {
        directory::check_name(name)?;
        Ok(Self { name: name.into(), secret_file: None })
    }

    /// Sets an option; gives whether there is such a one.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        if name == "secret-file" {
            self.secret_file = Some(value.into());
        }
        name == "secret-file"
    }
}

/// A stream until a time: all that is read and written has to be done by then, however it arrives.
struct DeadlineStream<'a> {
    stream: &'a UnixStream,
    time: Instant,
}

impl<'a> DeadlineStream<'a> {
    /// From now on for so long.
    fn after(stream: &'a UnixStream, timeout: Duration) -> Self {
        Self { stream, time: Instant::now() + timeout }
    }

    /// The stream, which waits no longer than until then for bytes to read.
    fn to_read(&self) -> io::Result<&'a UnixStream> {
        self.stream.set_read_timeout(self.left()?)?;
        Ok(self.stream)
    }

    /// The stream, which waits no longer than until then to write.
    fn to_write(&self) -> io::Result<&'a UnixStream> {
        self.stream.set_write_timeout(self.left()?)?;
        Ok(self.stream)
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.time.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
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

/// Sends what a client waits for: a message, or why it is refused. The length and the kind stand before it.
fn send(stream: &mut impl Write, message: Result<&[u8], &str>) -> io::Result<()> {
    stream.write_all(&framed(message))
}

/// What [`send`] writes.
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

/// Receives what [`send`] sent.
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
