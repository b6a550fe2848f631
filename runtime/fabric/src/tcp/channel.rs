//! A channel: records in both directions of a connection, sealed or plain.
//!
//! A record is its length in two bytes, little-endian, and its body. In a sealed channel the body is a message of Noise, encrypted and authenticated
//! under a number that both ends count; it is 16 bytes longer than its contents. So a record that was changed, left out, repeated or moved can not
//! be opened, and none can be made without the keys. In a plain channel the body is the contents.
//!
//! # The beginning of a connection
//!
//! The client sends a *preamble* of 8 bytes: the protocol, its version, and whether the channel is sealed. For a sealed one follows a handshake of Noise,
//! pattern `NNpsk0` with X25519, AES-256-GCM and SHA-256: a record from the client, and one from the memory node. The pre-shared key is derived of the
//! cluster's secret, so neither end can compute the keys of the channel without it; these also depend on two fresh keys, so recorded traffic stays
//! secret if the secret becomes known later. The preamble is part of the handshake (its prologue), so a preamble that was changed on the way ends it.
//!
//! The memory node answers an invalid beginning by a plain record with the reason, which the client reports without relying on it.
//!
//! Then the messages of [`handshake`](crate::handshake) follow as records, in a plain channel immediately after the preamble. They prove that both ends know the
//! secret and that a lane belongs to its control connection. A memory node's record begins with a byte: 0, or 1 before the reason of a refusal.

use snow::{Builder, HandshakeState, TransportState};

use crate::handshake::{MAGIC, Secret, printable_reason, truncate_reason};

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// The bytes of a record's length.
pub(super) const HEAD_BYTES: usize = 2;
/// The bytes by which sealing makes a body longer.
const TAG_BYTES: usize = 16;
/// The longest body and the longest contents of a record.
pub(super) const MAX_BODY_BYTES: usize = u16::MAX as usize;
pub(super) const MAX_CONTENT_BYTES: usize = MAX_BODY_BYTES - TAG_BYTES;
pub(super) const PREAMBLE_BYTES: usize = 8;
/// Messages after which a direction of a sealed channel gets a new key: far below the limits of AES-GCM.
const MESSAGES_PER_KEY: u64 = if cfg!(test) { 8 } else { 1 << 24 };

/// The first byte of a memory node's record.
const ACCEPTED: u8 = 0;
const REFUSED: u8 = 1;

/// Why a record can not be opened.
pub(super) const ALTERED: &str = "a record was altered, repeated, moved or left out";

/// The first bytes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    pub(super) is_sealed: bool,
}

impl Preamble {
    pub(super) fn to_bytes(self) -> [u8; PREAMBLE_BYTES] {
        let [a, b, c, version] = MAGIC;
        [a, b, c, version, u8::from(self.is_sealed), 0, 0, 0]
    }

    /// # Errors
    /// The reason of a refusal.
    pub(super) fn parse(bytes: [u8; PREAMBLE_BYTES]) -> Result<Self, &'static str> {
        let [a, b, c, version, mode, rest @ ..] = bytes;
        if [a, b, c] != MAGIC[..3] {
            return Err("this is not Farfield's protocol");
        }
        if version != MAGIC[3] {
            return Err(
                "client and memory node speak different versions of the protocol: use one version of Farfield",
            );
        }
        match (mode, rest) {
            (0 | 1, [0, 0, 0]) => Ok(Self { is_sealed: mode == 1 }),
            _ => Err("the client asks for an unknown kind of channel"),
        }
    }
}

/// Seals and opens the records of a connection.
#[derive(Debug)]
pub(super) enum Channel {
    Plain,
    Sealed(Box<TransportState>),
}

impl Channel {
    /// Appends a record with these contents, which are at most [`MAX_CONTENT_BYTES`].
    pub(super) fn seal(&mut self, contents: &[u8], out: &mut Vec<u8>) {
        assert!(contents.len() <= MAX_CONTENT_BYTES);
        match self {
            Self::Plain => {
                out.extend((contents.len() as u16).to_le_bytes());
                out.extend(contents);
            }
            Self::Sealed(noise) => {
                let bytes = contents.len() + TAG_BYTES;
                out.extend((bytes as u16).to_le_bytes());
                let start = out.len();
                out.resize(start + bytes, 0);
                let written = noise.write_message(contents, &mut out[start..]);
                assert_eq!(written.ok(), Some(bytes), "there is room for it, and a number");
                if noise.sending_nonce().is_multiple_of(MESSAGES_PER_KEY) {
                    noise.rekey_outgoing();
                }
            }
        }
    }

    /// Opens a record's body. `room` has [`MAX_BODY_BYTES`].
    ///
    /// # Errors
    /// [`ALTERED`].
    pub(super) fn open<'a>(&mut self, body: &'a [u8], room: &'a mut [u8]) -> Result<&'a [u8], &'static str> {
        let Self::Sealed(noise) = self else { return Ok(body) };
        let bytes = noise.read_message(body, room).map_err(|_| ALTERED)?;
        if noise.receiving_nonce().is_multiple_of(MESSAGES_PER_KEY) {
            noise.rekey_incoming();
        }
        Ok(&room[..bytes])
    }
}

/// Returns the body of the record at the beginning of `bytes`, if it is complete.
pub(super) fn first_record(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    rest.get(..usize::from(u16::from_le_bytes(*head)))
}

/// Appends a memory node's message to a channel, or its refusal.
pub(super) fn seal_answer(channel: &mut Channel, message: Result<&[u8], &str>, out: &mut Vec<u8>) {
    let (kind, body) = match message {
        Ok(message) => (ACCEPTED, message),
        Err(reason) => (REFUSED, truncate_reason(reason).as_bytes()),
    };
    channel.seal(&[&[kind], body].concat(), out);
}

/// Parses the contents of a memory node's record.
///
/// # Errors
/// The reason of a refusal, or that of a record that is none.
pub(super) fn answer(contents: &[u8]) -> Result<&[u8], String> {
    match contents.split_first() {
        Some((&ACCEPTED, message)) => Ok(message),
        Some((&REFUSED, reason)) => Err(printable_reason(reason)),
        _ => Err("it does not speak Farfield's protocol".to_owned()),
    }
}

/// A handshake of Noise that has begun.
#[derive(Debug)]
pub(super) struct Handshake(HandshakeState);

impl Handshake {
    fn builder<'a>(secret: &'a [u8; 32], preamble: &'a [u8; PREAMBLE_BYTES]) -> Builder<'a> {
        let pattern = PATTERN.parse().expect("it is a pattern of Noise");
        let builder = Builder::new(pattern).prologue(preamble).expect("it is the only one");
        builder.psk(0, secret).expect("the key has 32 bytes")
    }

    /// Begins as the client. Returns the first message.
    pub(super) fn begin(secret: &Secret, preamble: Preamble) -> Result<(Self, Vec<u8>), snow::Error> {
        let (key, preamble) = (secret.shared_key(), preamble.to_bytes());
        let mut state = Self::builder(&key, &preamble).build_initiator()?;
        let mut message = vec![0; MAX_HANDSHAKE_BYTES];
        let bytes = state.write_message(&[], &mut message)?;
        message.truncate(bytes);
        Ok((Self(state), message))
    }

    /// Completes the handshake by the memory node's message.
    pub(super) fn complete(mut self, message: &[u8]) -> Result<Channel, String> {
        let mut contents = [0; MAX_HANDSHAKE_BYTES];
        let read = self.0.read_message(message, &mut contents);
        read.map_err(|_| "it does not know the cluster's secret".to_owned())?;
        let transport = self.0.into_transport_mode().map_err(|error| error.to_string())?;
        Ok(Channel::Sealed(Box::new(transport)))
    }

    /// Answers the client's first message. Returns the channel, and the answer.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub(super) fn answer(
        secret: &Secret,
        preamble: Preamble,
        message: &[u8],
    ) -> Result<(Channel, Vec<u8>), &'static str> {
        let (key, preamble) = (secret.shared_key(), preamble.to_bytes());
        let failed = |_| "the handshake failed";
        let mut state = Self::builder(&key, &preamble).build_responder().map_err(failed)?;
        let mut contents = [0; MAX_HANDSHAKE_BYTES];
        let read = state.read_message(message, &mut contents);
        read.map_err(|_| crate::admission::NO_PROOF)?;
        let mut answer = vec![0; MAX_HANDSHAKE_BYTES];
        let bytes = state.write_message(&[], &mut answer).map_err(failed)?;
        answer.truncate(bytes);
        let transport = state.into_transport_mode().map_err(failed)?;
        Ok((Channel::Sealed(Box::new(transport)), answer))
    }
}

/// The longest message of a handshake: a public key and a tag.
const MAX_HANDSHAKE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new(b"open sesame")
    }

    /// Both ends of a sealed channel.
    fn ends() -> (Channel, Channel) {
        let preamble = Preamble { is_sealed: true };
        let (client, first) = Handshake::begin(&secret(), preamble).unwrap();
        let (node, second) = Handshake::answer(&secret(), preamble, &first).unwrap();
        (client.complete(&second).unwrap(), node)
    }

    fn sealed(channel: &mut Channel, contents: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        channel.seal(contents, &mut out);
        assert_eq!(first_record(&out).unwrap().len() + HEAD_BYTES, out.len());
        out.split_off(HEAD_BYTES)
    }

    fn opened(channel: &mut Channel, body: &[u8]) -> Result<Vec<u8>, &'static str> {
        channel.open(body, &mut vec![0; MAX_BODY_BYTES]).map(<[u8]>::to_vec)
    }

    #[test]
    fn records_arrive_in_both_directions() {
        for (mut client, mut node) in [ends(), (Channel::Plain, Channel::Plain)] {
            for contents in [&b""[..], b"a", &vec![7; MAX_CONTENT_BYTES]] {
                let body = sealed(&mut client, contents);
                assert_eq!(opened(&mut node, &body).unwrap(), contents);
                let body = sealed(&mut node, contents);
                assert_eq!(opened(&mut client, &body).unwrap(), contents);
            }
        }
    }

    #[test]
    fn altered_repeated_and_missing_records_are_refused() {
        let (mut client, mut node) = ends();
        let first = sealed(&mut client, b"first");
        let second = sealed(&mut client, b"second");
        assert_eq!(opened(&mut node, &second), Err(ALTERED), "the first is missing");
        for index in 0..first.len() {
            let mut altered = first.clone();
            altered[index] ^= 1;
            assert_eq!(opened(&mut node, &altered), Err(ALTERED), "byte {index}");
        }
        assert_eq!(opened(&mut node, &first[1..]), Err(ALTERED));
        assert_eq!(opened(&mut node, b""), Err(ALTERED));
        assert_eq!(opened(&mut node, &first).unwrap(), b"first");
        assert_eq!(opened(&mut node, &first), Err(ALTERED), "it is repeated");
        assert_eq!(opened(&mut client, &second), Err(ALTERED), "it is the client's own");
        assert_eq!(opened(&mut node, &second).unwrap(), b"second");
    }

    #[test]
    fn keys_change_at_both_ends_at_the_same_message() {
        let (mut client, mut node) = ends();
        for number in 0..3 * MESSAGES_PER_KEY as u8 {
            let body = sealed(&mut client, &[number]);
            assert_eq!(opened(&mut node, &body).unwrap(), [number]);
        }
        let Channel::Sealed(noise) = &mut client else { panic!("it is sealed") };
        noise.rekey_outgoing();
        let body = sealed(&mut client, b"under a key too new");
        assert_eq!(opened(&mut node, &body), Err(ALTERED));
    }

    #[test]
    fn another_secret_or_preamble_ends_the_handshake() {
        let preamble = Preamble { is_sealed: true };
        let (client, first) = Handshake::begin(&secret(), preamble).unwrap();
        let other = Secret::new(b"close sesame");
        assert_eq!(
            Handshake::answer(&other, preamble, &first).unwrap_err(),
            "the client does not know the cluster's secret"
        );
        let changed = Preamble { is_sealed: false };
        assert!(Handshake::answer(&secret(), changed, &first).is_err());
        let (_, answer) = Handshake::answer(&secret(), preamble, &first).unwrap();
        let mut forged = answer;
        forged[0] ^= 1;
        assert_eq!(client.complete(&forged).unwrap_err(), "it does not know the cluster's secret");
    }

    #[test]
    fn preambles_of_other_protocols_are_refused_with_the_reason() {
        for is_sealed in [false, true] {
            let preamble = Preamble { is_sealed };
            assert_eq!(Preamble::parse(preamble.to_bytes()), Ok(preamble));
        }
        assert!(Preamble::parse(*b"GET / HT").unwrap_err().contains("not Farfield's"));
        let mut bytes = Preamble { is_sealed: true }.to_bytes();
        bytes[3] += 1;
        assert!(Preamble::parse(bytes).unwrap_err().contains("versions"));
        let mut bytes = Preamble { is_sealed: true }.to_bytes();
        bytes[4] = 2;
        assert!(Preamble::parse(bytes).unwrap_err().contains("kind of channel"));
    }
}
