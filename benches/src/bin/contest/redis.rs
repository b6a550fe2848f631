//! Redis.

use std::path::Path;

use redis::Value;

use crate::servers::{Connection, Server};
use crate::workload::Request;

/// Starts a server without persistence.
pub(crate) fn start() -> Result<Server, String> {
    Server::start("redis-server", &["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
}

/// A connection to Redis.
pub(crate) struct Redis(redis::Connection);

impl Connection for Redis {
    fn open(socket: &Path) -> Result<Self, String> {
        let url = format!("redis+unix://{}", socket.display());
        let connection = redis::Client::open(url).and_then(|client| client.get_connection());
        connection.map(Self).map_err(|error| format!("redis: {error}"))
    }

    fn carry_out(&mut self, requests: &[Request]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let mut pipe = redis::Pipeline::with_capacity(requests.len());
        for request in requests {
            match request {
                Request::Write { key, value } => pipe.set(key, value),
                Request::Delete { key } => pipe.del(key),
                Request::Read { key, .. } => pipe.get(key),
            };
        }
        let answers: Vec<Value> = pipe.query(&mut self.0).map_err(|error| format!("redis: {error}"))?;
        let answers = requests.iter().zip(answers).map(|(request, answer)| match (request, answer) {
            (Request::Write { .. }, Value::Okay)
            | (Request::Delete { .. }, Value::Int(1))
            | (Request::Read { .. }, Value::Nil) => Ok(None),
            (Request::Read { .. }, Value::BulkString(bytes)) => Ok(Some(bytes)),
            (_, other) => Err(format!("redis has answered {other:?}")),
        });
        answers.collect()
    }

    fn stored_bytes(&mut self) -> Result<u64, String> {
        let info: String =
            redis::cmd("INFO").arg("memory").query(&mut self.0).map_err(|error| format!("redis: {error}"))?;
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
        used.ok_or_else(|| "redis has not said how much memory it uses".to_owned())
    }
}
