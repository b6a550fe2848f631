//! memcached.

use std::collections::HashMap;
use std::path::Path;

use async_memcached::{AsciiProtocol, Client, Error, Status};
use tokio::runtime::{Builder, Runtime};

use crate::servers::{Connection, Server};
use crate::workload::Request;

/// Starts a server with so many threads, and with more memory than it needs: it drops records when it has none.
pub(crate) fn start(threads: usize, most_bytes: u64) -> Result<Server, String> {
    let (threads, mebibytes) = (threads.to_string(), (64 + 3 * most_bytes.div_ceil(1 << 20)).to_string());
    // It refuses to run as root without `-u`.
    Server::start("memcached", &["-u", "root", "-t", &threads, "-m", &mebibytes, "-s"])
}

/// A connection to memcached.
pub(crate) struct Memcached {
    runtime: Runtime,
    client: Client,
}

fn failed(error: impl std::fmt::Display) -> String {
    format!("memcached: {error}")
}

impl Connection for Memcached {
    fn open(socket: &Path) -> Result<Self, String> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let client = runtime.block_on(Client::new(format!("unix://{}", socket.display()))).map_err(failed)?;
        Ok(Self { runtime, client })
    }

    /// Sends the writes at once, then the deletions, then the reads: its client can not mix them. Of deletions only the last one's end is waited for, by another request, since its client sends several only
    /// without answers.
    fn carry_out(&mut self, requests: &[Request]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let (mut writes, mut deletions, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            match request {
                Request::Write { key, value } => writes.push((&key[..], &value[..])),
                Request::Delete { key } => deletions.push(key),
                Request::Read { key, .. } => reads.push(key),
            }
        }
        let client = &mut self.client;
        let found = self.runtime.block_on(async {
            if !writes.is_empty() {
                for (_, written) in client.set_multi(&writes, None, None).await? {
                    written?;
                }
            }
            if !deletions.is_empty() {
                client.delete_multi_no_reply(&deletions).await?;
                // A connection's requests are carried out in order: when this one is answered, they are done.
                client.version().await?;
            }
            if reads.is_empty() {
                return Ok(Vec::new());
            }
            match client.get_multi(&reads).await {
                // None of them.
                Err(Error::Protocol(Status::NotFound)) => Ok(Vec::new()),
                found => found,
            }
        });
        let found = found.map_err(failed)?;
        let found: HashMap<_, _> = found.into_iter().map(|value| (value.key, value.data)).collect();
        let answer = |request: &Request| match request {
            Request::Read { key, .. } => found.get(&key[..]).cloned().flatten(),
            Request::Write { .. } | Request::Delete { .. } => None,
        };
        Ok(requests.iter().map(answer).collect())
    }

    fn stored_bytes(&mut self) -> Result<u64, String> {
        let stats = self.runtime.block_on(self.client.stats()).map_err(failed)?;
        let bytes = stats.get("bytes").and_then(|bytes| bytes.parse().ok());
        bytes.ok_or_else(|| failed("it has not said how much memory it uses"))
    }
}
