//! `farfield memnode --metrics ADDR`: how a cluster stands, for programs that watch it.
//!
//! `GET /metrics` answers in the text format of Prometheus, `GET /metrics.json` with one JSON object. Whoever reaches the address may
//! ask; nothing can be changed there.

use std::fmt::Write;
use std::net::SocketAddr;

use farfield::shm::{NodeMetrics, Observer};
use farfield::{Error, Result};
use serde_json::json;
use tiny_http::{Header, Method, Response, Server};

/// Serves metrics in the background, as long as the program runs; gives where.
pub(crate) fn serve(address: SocketAddr, observer: Observer) -> Result<SocketAddr> {
    let failed = |error: &dyn std::fmt::Display| Error::other(format!("--metrics {address}: {error}"));
    let server = Server::http(address).map_err(|error| failed(&error))?;
    let listens = server.server_addr().to_ip().unwrap_or(address);
    let answer = move || {
        for request in server.incoming_requests() {
            let metrics = observer.metrics();
            let (kind, text) = match (request.method(), request.url()) {
                (Method::Get, "/metrics") => ("text/plain; version=0.0.4", prometheus(&metrics)),
                (Method::Get, "/metrics.json") => ("application/json", json(&metrics)),
                _ => {
                    let _ = request.respond(Response::from_string("not found\n").with_status_code(404));
                    continue;
                }
            };
            let response = Response::from_string(text);
            let response = match Header::from_bytes("Content-Type", kind) {
                Ok(header) => response.with_header(header),
                Err(()) => response,
            };
            // Who has asked may be gone.
            let _ = request.respond(response);
        }
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(answer).map_err(|error| failed(&error))?;
    Ok(listens)
}

fn prometheus(metrics: &NodeMetrics) -> String {
    let mut text = String::new();
    let mut one = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    one("farfield_epoch", "counter", "The epoch of reclamation.", metrics.epoch);
    one("farfield_joined_total", "counter", "Processes that have been let in.", metrics.joined);
    one("farfield_connected", "gauge", "Processes that are there.", metrics.connected);
    one("farfield_refused_total", "counter", "Processes that were refused.", metrics.refused);
    one("farfield_evictions_total", "counter", "Processes that ended without leaving.", metrics.evictions);
    let help = "Memory that was taken back from processes that had ended.";
    one("farfield_taken_back_bytes_total", "counter", help, metrics.taken_back_bytes);
    let help = "About the memory of processes that have ended, which has not been taken back.";
    one("farfield_uncollected_bytes", "gauge", help, metrics.uncollected_bytes);
    let name = "farfield_heap_bytes";
    let _ = writeln!(text, "# HELP {name} Memory of a memory node, by use.\n# TYPE {name} gauge");
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
