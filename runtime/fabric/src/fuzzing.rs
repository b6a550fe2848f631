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
