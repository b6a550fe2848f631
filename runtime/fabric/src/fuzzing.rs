//! Entry points of fuzz targets: the parsers of peers' messages. Only in builds with `--cfg fuzzing`.

use farfield_words::Address;

/// Parses bytes as each message of the handshake.
pub fn handshake(data: &[u8]) {
    crate::handshake::parse_any(data);
}

/// Parses bytes as the welcome of memory node `position.0` of `position.1`, and looks up an address in its segments.
pub fn welcome(message: &[u8], position: (u16, u16), at: Address) {
    crate::handshake::join_any(message, position, at);
}

/// Parses bytes as what arrives over TCP: a beginning of a connection, records, frames of operations, and answers.
#[cfg(target_os = "linux")]
pub fn tcp(data: &[u8]) {
    crate::tcp::parse_any(data);
}
