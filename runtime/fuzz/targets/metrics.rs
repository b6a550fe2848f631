//! Requests to `farfield memnode --metrics`, and the words of far memory that the answers report.
//!
//! The first 32 bytes are words, the others are what a client sends before it closes its side. The command's own module answers, over a stream in
//! memory.

#![no_main]

use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[allow(dead_code)] // it listens, too
#[path = "../../../cli/src/metrics.rs"]
mod metrics;

/// More than the longest answer.
const ANSWER_BYTES: u64 = 64 << 10;
/// Less than the longest request, so that it is sent in parts.
const PIPE_BYTES: usize = 1 << 10;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ask(data));

fn ask(data: &[u8]) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    let Some((words, request)) = data.split_first_chunk::<32>() else { return };
    let words = std::array::from_fn(|index| u64::from_le_bytes(words.as_chunks().0[index]));
    let observer = farfield::fuzzing::observer(words);
    let (mut client, server) = tokio::io::duplex(PIPE_BYTES);
    let (mut reads, mut writes) = tokio::io::split(&mut client);
    let mut answer = Vec::new();
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let asks = async {
                // The connection may be closed already.
                let _ = writes.write_all(request).await;
                let _ = writes.shutdown().await;
            };
            let hears = async {
                let _ = (&mut reads).take(ANSWER_BYTES).read_to_end(&mut answer).await;
            };
            let (_served, (), ()) = tokio::join!(metrics::answer_all(server, &observer), asks, hears);
        });
    });
    check(&answer);
}

/// Checks that an answer is complete or empty.
fn check(answer: &[u8]) {
    if answer.is_empty() {
        return;
    }
    assert!((answer.len() as u64) < ANSWER_BYTES, "the answer has no end");
    let text = std::str::from_utf8(answer).expect("answers are text");
    assert!(text.starts_with("HTTP/1."), "{text}");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a whole head");
    if !head.contains(" 200 ") {
        return;
    }
    if head.contains("application/json") {
        let json: serde_json::Value = serde_json::from_str(body).expect("it is JSON");
        assert_eq!(json["nodes"].as_array().map(Vec::len), Some(2));
    } else {
        let values = body.lines().filter(|line| !line.starts_with('#'));
        let numbers = values.filter(|line| line.rsplit(' ').next().is_some_and(|n| n.parse::<u64>().is_ok()));
        assert_eq!(numbers.count(), 7 + 2 * 3, "{body}");
    }
}
