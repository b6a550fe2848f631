//! The TCP fabric: far memory is memory of other machines, reached by any network.
//!
//! | module | contents |
//! |---|---|
//! | `config` | the options of a URL |
//! | `channel` | records, sealed by Noise or plain, and the beginning of a connection |
//! | `frame` | batches of operations, and their answers |
//! | `line` | a compute process's end of a connection |
//! | `network` | a process's side: connections of lanes (`lanes`), and control connections |
//! | `connection` | a memory node's end of a connection; `server` serves it |
//! | `peers` | lines between compute threads, without a memory node between them |
//!
//! Threads post on lanes (`lanes`), as over RDMA. All chains that a thread's tasks have ready become one frame, which is written by one system call. The
//! memory node's thread executes it in order and answers by one frame.
//!
//! # Additions to the memory model
//!
//! None: the memory node's processor executes all operations, as on the [host](crate::host), and those of a lane in the order in which they were posted.

mod channel;
pub mod config;
mod connection;
mod frame;
mod line;
mod network;
mod peers;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use connection::TcpEntrance;
pub use connection::TcpListen;
pub use network::{Client, TcpEndpoint};
pub use peers::{MOST_NOTE_WORDS, Peer, PeerArrival, PeerHello, PeerKey, PeerState, Peers};

/// Parses bytes as each part of the protocol.
#[cfg(any(fuzzing, test))]
pub(crate) fn parse_any(bytes: &[u8]) {
    use channel::{Channel, Handshake, PREAMBLE_BYTES, Preamble, answer, first_record};
    let secret = crate::handshake::Secret::new(b"open sesame");
    let preamble = bytes.first_chunk::<PREAMBLE_BYTES>().map(|bytes| Preamble::parse(*bytes));
    let rest = bytes.get(PREAMBLE_BYTES..).unwrap_or_default();
    if let (Some(Ok(preamble)), Some(message)) = (preamble, first_record(rest)) {
        assert!(Handshake::answer(&secret, preamble, message).is_err(), "it has no proof of the secret");
    }
    // As frames of a plain channel, of which the memory node parses the first refused one.
    let (mut rest, mut channel) = (bytes, Channel::Plain);
    while let Some(body) = first_record(rest) {
        let contents = channel.open(body, &mut []).expect("it is plain");
        let operations: Vec<_> = frame::Operations::new(contents).collect();
        assert!(operations.iter().rev().skip(1).all(Result::is_ok), "the refused one is the last");
        let _ = frame::forwarded_in(contents);
        if let Ok(words) = answer(contents) {
            let _ = frame::words_of(words, words.len() / 8);
        }
        rest = &rest[channel::HEAD_BYTES + body.len()..];
    }
}
