//! What fuzz targets call: the parsers of what peers say. Only in builds with `--cfg fuzzing`.

use farfield_words::Address;

/// Any of the messages of a handshake.
pub fn handshake(data: &[u8]) {
    crate::handshake::parse_any(data);
}

/// What a memory node says when it lets a process in that takes it for number `position.0` of `position.1`, and an address for its segments.
pub fn welcome(message: &[u8], position: (u16, u16), at: Address) {
    crate::handshake::join_any(message, position, at);
}
