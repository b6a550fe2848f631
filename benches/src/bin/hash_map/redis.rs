//! Redis on a Unix socket, with the records of the comparison.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farfield::{Error, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::records::{KEY_BYTES, RECORDS, VALUE_BYTES, is_value, key, value};

const CONNECTIONS: usize = 32;
const PIPELINED: usize = 16;
/// Records of a request while the server is filled.
const FILLED: u64 = 1000;
const OK: &[u8] = b"+OK\r\n";

/// `redis-server`, which is killed when this is dropped, and its connections.
pub(crate) struct Redis {
    server: Child,
    connections: Vec<UnixStream>,
    rng: SmallRng,
}

impl Redis {
    /// Starts a server without persistence, with all records.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let socket = folder.join("redis.socket");
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(folder)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Error::other(format!("redis-server: {error}")))?;
        let mut redis = Self { server, connections: Vec::new(), rng: SmallRng::seed_from_u64(0) };
        let until = Instant::now() + Duration::from_secs(10);
        while redis.connections.len() < CONNECTIONS {
            match UnixStream::connect(&socket) {
                Ok(connection) => redis.connections.push(connection),
                Err(error) if Instant::now() > until => return Err(Error::other(error)),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        redis.fill().map_err(Error::other)?;
        Ok(redis)
    }

    fn fill(&mut self) -> std::io::Result<()> {
        let connection = &mut self.connections[0];
        for first in (0..RECORDS).step_by(FILLED as usize) {
            let mut request = Vec::new();
            for record in first..RECORDS.min(first + FILLED) {
                write!(request, "*3\r\n$3\r\nSET\r\n${KEY_BYTES}\r\n")?;
                request.extend(key(record));
                write!(request, "\r\n${VALUE_BYTES}\r\n")?;
                request.extend(value(record, 0));
                request.extend(b"\r\n");
            }
            connection.write_all(&request)?;
            let mut answer = vec![0; OK.len() * (RECORDS - first).min(FILLED) as usize];
            connection.read_exact(&mut answer)?;
            assert!(answer.chunks(OK.len()).all(|each| each == OK), "redis-server has set all");
        }
        Ok(())
    }

    /// Returns the nanoseconds of a `GET` of a random record, during some time. Each connection has a request of 16 in flight.
    pub(crate) fn get(&mut self, time: Duration) -> Result<f64> {
        self.gets(time).map_err(Error::other)
    }

    fn gets(&mut self, time: Duration) -> std::io::Result<f64> {
        let mut asked = [[0; PIPELINED]; CONNECTIONS];
        let (mut request, mut count) = (Vec::new(), 0_u32);
        let prefix = format!("${VALUE_BYTES}\r\n").into_bytes();
        let answer_bytes = prefix.len() + VALUE_BYTES + 2;
        let mut answers = vec![0; answer_bytes * PIPELINED];
        let began = Instant::now();
        let mut is_last = false;
        for round in 0.. {
            for (connection, asked) in self.connections.iter_mut().zip(&mut asked) {
                if round > 0 {
                    connection.read_exact(&mut answers)?;
                    for (answer, record) in answers.chunks(answer_bytes).zip(*asked) {
                        assert!(
                            is_value(&answer[prefix.len()..][..VALUE_BYTES], record),
                            "redis-server answers"
                        );
                    }
                    count += PIPELINED as u32;
                }
                if is_last {
                    continue;
                }
                request.clear();
                for record in asked {
                    *record = self.rng.random_range(0..RECORDS);
                    write!(request, "*2\r\n$3\r\nGET\r\n${KEY_BYTES}\r\n")?;
                    request.extend(key(*record));
                    request.extend(b"\r\n");
                }
                connection.write_all(&request)?;
            }
            if is_last {
                break;
            }
            is_last = began.elapsed() >= time;
        }
        Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(count))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
