//! `farfield memnode --metrics ADDR`: a memory node's metrics over HTTP, for monitoring.
//!
//! `GET /metrics` answers in the text format of Prometheus, `GET /metrics.json` with one JSON object. Clients are not authenticated; they can
//! change nothing.
//!
//! An untrusted client may connect, so its resources are bounded: [`CONNECTIONS`] at a time, [`HEAD_BYTES`] for a request, [`HEAD_TIMEOUT`]
//! to send it, and [`CONNECTION_TIMEOUT`] until the connection is closed. A request's body is not read. So silent clients delay others by
//! [`HEAD_TIMEOUT`] at most, and all clients together take less than a megabyte.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farfield::memory_node::{NodeMetrics, Observer};
use farfield::{Error, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Limit of concurrent connections. Further clients wait.
const CONNECTIONS: usize = 64;
/// Limit of a request's bytes, up to its body.
const HEAD_BYTES: usize = 8192;
/// Timeout for a client to send its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an accept that failed: the process may be out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves metrics on a thread until the process ends; returns the address.
pub(crate) fn serve(address: SocketAddr, observer: Observer) -> Result<SocketAddr> {
    let failed = |error: std::io::Error| Error::other(format!("--metrics {address}: {error}"));
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let listens = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener).map_err(failed)?
    };
    let serve = move || runtime.block_on(accept(listener, Arc::new(observer)));
    std::thread::Builder::new().name("metrics".to_owned()).spawn(serve).map_err(failed)?;
    Ok(listens)
}

async fn accept(listener: TcpListener, observer: Arc<Observer>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let observer = Arc::clone(&observer);
        tokio::spawn(async move {
            // The client may have disconnected. Hyper answers malformed requests.
            let _ = timeout(CONNECTION_TIMEOUT, answer_all(stream, &observer)).await;
            drop(permit);
        });
    }
}

/// Answers the only request of a connection.
pub(crate) async fn answer_all(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    observer: &Observer,
) -> hyper::Result<()> {
    let service = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(answer(request.method(), request.uri().path(), observer))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn answer(method: &Method, path: &str, observer: &Observer) -> Response<Full<Bytes>> {
    let (status, kind, text) = match (method, path) {
        (&Method::GET, "/metrics") => {
            (StatusCode::OK, "text/plain; version=0.0.4", prometheus(&observer.metrics()))
        }
        (&Method::GET, "/metrics.json") => (StatusCode::OK, "application/json", json(&observer.metrics())),
        _ => (StatusCode::NOT_FOUND, "text/plain", "not found\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

fn prometheus(metrics: &NodeMetrics) -> String {
    let mut text = String::new();
    let mut one = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    one("farfield_epoch", "counter", "Epoch of reclamation.", metrics.epoch);
    one("farfield_joined_total", "counter", "Processes that were admitted.", metrics.joined);
    one("farfield_connected", "gauge", "Processes that are connected.", metrics.connected);
    one("farfield_refused_total", "counter", "Processes that were refused.", metrics.refused);
    one("farfield_evictions_total", "counter", "Processes that were evicted.", metrics.evictions);
    let help = "Bytes reclaimed from dead processes.";
    one("farfield_taken_back_bytes_total", "counter", help, metrics.taken_back_bytes);
    let help = "Estimated bytes of dead processes that are not yet reclaimed.";
    one("farfield_uncollected_bytes", "gauge", help, metrics.uncollected_bytes);
    let name = "farfield_heap_bytes";
    let _ = writeln!(text, "# HELP {name} Heap bytes of a memory node, by use.\n# TYPE {name} gauge");
    for usage in &metrics.heap {
        for (kind, bytes) in
            [("size", usage.size_bytes), ("live", usage.live_bytes), ("cached", usage.cached_bytes)]
        {
            let _ = writeln!(text, "{name}{{node=\"{}\",use=\"{kind}\"}} {bytes}", usage.node);
        }
    }
    text
}

fn json(metrics: &NodeMetrics) -> String {
    let node = |usage: &farfield::HeapUse| {
        json!({
            "node": usage.node,
            "size_bytes": usage.size_bytes,
            "live_bytes": usage.live_bytes,
            "cached_bytes": usage.cached_bytes,
        })
    };
    let object = json!({
        "epoch": metrics.epoch,
        "joined": metrics.joined,
        "connected": metrics.connected,
        "refused": metrics.refused,
        "evictions": metrics.evictions,
        "taken_back_bytes": metrics.taken_back_bytes,
        "uncollected_bytes": metrics.uncollected_bytes,
        "nodes": metrics.heap.iter().map(node).collect::<Vec<_>>(),
    });
    format!("{object}\n")
}
