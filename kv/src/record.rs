//! Records: a key and its value, as they lie in a page.
//!
//! ```text
//!  word 0            words 1 and 2    the rest
//!  head              key              value, and zeros up to a whole word
//!
//!  of a record that is encrypted:
//!  head    key's identity and nonce: 16 bytes    key and value, encrypted    tag: 16 bytes    zeros
//! ```
//!
//! The head has the state (8 bits), whether the record is encrypted (8 bits), the length of the value (16 bits), and a checksum of all that (but the state) and of the rest (32 bits). Far memory
//! that was never written is zero, so a head of zero is the end of a page. A record of which not all words were written has a wrong checksum, unless by chance: one in `2^32`.
//!
//! A record is written once. Later only its state changes, by a store of its head: from live to dead.

use std::sync::atomic::{AtomicU64, Ordering};

use aes::Aes256;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use smallvec::SmallVec;

use crate::error::Fault;

/// The first words of a record, up to its key.
pub(crate) const fn key_words(is_encrypted: bool) -> usize {
    1 + (if is_encrypted { HEADER_BYTES } else { 0 } + KEY_BYTES) / 8
}

/// The bytes of a key.
pub const KEY_BYTES: usize = 16;
/// The most bytes of a value.
pub const MOST_VALUE_BYTES: usize = 8 << 10;

pub(crate) type Key = [u8; KEY_BYTES];

const STATE: u64 = 0xff;
const LIVE: u64 = 0xa5;
const DEAD: u64 = 0x5a;
const ENCRYPTED: u64 = 1 << 8;
const UNUSED: u64 = 0xfe00;
const LENGTH_SHIFT: u32 = 16;
pub(crate) const CHECK_SHIFT: u32 = 32;

pub(crate) const TAG_BYTES: usize = 16;
/// The identity of the key, and the nonce.
pub(crate) const HEADER_BYTES: usize = 4 + NONCE_LEN;

/// The words of a new record. Those of most values are not allocated.
pub(crate) type Encoded = SmallVec<[u64; 32]>;
/// The bytes of a record, for a moment.
type Scratch = SmallVec<[u8; 512]>;

/// Where a record is: its page, the word where it begins, and its words; and whether it is encrypted, so that of one that is not no more is read than its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) page: u32,
    pub(crate) first: u16,
    pub(crate) words: u16,
    pub(crate) is_encrypted: bool,
}

/// Set in the words of a place. A record has fewer.
const PLACE_ENCRYPTED: u16 = 1 << 15;

impl Place {
    /// Returns the place of a record that has a head.
    pub(crate) fn of(page: u32, first: usize, head: Head) -> Self {
        Self { page, first: first as u16, words: head.words() as u16, is_encrypted: head.is_encrypted() }
    }

    /// Returns how many words of the record are read: all of them, or those up to its key, if that is enough.
    pub(crate) fn words_read(self, is_value_wanted: bool) -> u16 {
        let words = if is_value_wanted { usize::MAX } else { key_words(self.is_encrypted) };
        words.min(self.words.into()) as u16
    }

    /// Decodes the record, of which at least [these words](Self::words_read) are there.
    pub(crate) fn decode<W: Words + ?Sized>(
        self,
        words: &W,
        is_value_wanted: bool,
        cipher: Option<&Cipher>,
    ) -> Result<Decoded, Fault> {
        if is_value_wanted {
            decode(words, true, cipher)
        } else {
            decode_key(words, self.words.into(), cipher)
        }
    }

    pub(crate) fn to_word(self) -> u64 {
        let words = self.words | if self.is_encrypted { PLACE_ENCRYPTED } else { 0 };
        u64::from(self.page) << 32 | u64::from(self.first) << 16 | u64::from(words)
    }

    pub(crate) fn of_word(word: u64) -> Self {
        let (first, words) = ((word >> 16) as u16, word as u16);
        let is_encrypted = words & PLACE_ENCRYPTED != 0;
        Self { page: (word >> 32) as u32, first, words: words & !PLACE_ENCRYPTED, is_encrypted }
    }
}

/// What records are encrypted by.
pub(crate) struct Cipher {
    key: LessSafeKey,
    /// The same key: AES itself, which makes the key stream of GCM.
    block: Aes256,
    /// Stands for the key.
    pub(crate) identity: u32,
}

impl Cipher {
    /// `None` if the key can not be used.
    pub(crate) fn new(key: &[u8; 32], identity: u32) -> Option<Self> {
        let sealing = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
        Some(Self { key: sealing, block: Aes256::new(&(*key).into()), identity })
    }

    /// Decrypts the first 16 bytes of what was encrypted with a nonce: the first block after that of the tag (NIST SP 800-38D).
    fn decrypt_first(&self, nonce: &[u8], encrypted: &[u8]) -> [u8; 16] {
        let mut block = [0; 16];
        block[..NONCE_LEN].copy_from_slice(nonce);
        block[15] = 2;
        let mut block = block.into();
        self.block.encrypt_block(&mut block);
        std::array::from_fn(|byte| block[byte] ^ encrypted[byte])
    }
}

/// The first word of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head(u64);

impl Head {
    /// Decodes one. `None` if no record begins with such a word.
    pub(crate) fn of_word(word: u64) -> Option<Self> {
        let is_known = matches!(word & STATE, LIVE | DEAD) && word & UNUSED == 0;
        (is_known && Self(word).value_bytes() <= MOST_VALUE_BYTES).then_some(Self(word))
    }

    pub(crate) fn is_live(self) -> bool {
        self.0 & STATE == LIVE
    }

    /// Returns the word of a dead record.
    pub(crate) fn dead_word(self) -> u64 {
        self.0 & !STATE | DEAD
    }

    pub(crate) fn is_encrypted(self) -> bool {
        self.0 & ENCRYPTED != 0
    }

    pub(crate) fn value_bytes(self) -> usize {
        (self.0 >> LENGTH_SHIFT) as u16 as usize
    }

    /// The bytes of the key and the value.
    pub(crate) fn user_bytes(self) -> u64 {
        (KEY_BYTES + self.value_bytes()) as u64
    }

    /// The words of the record.
    pub(crate) fn words(self) -> usize {
        words_of(self.value_bytes(), self.is_encrypted())
    }

    /// What does not change.
    fn constant(self) -> u64 {
        self.0 & 0xffff_ff00
    }
}

/// Returns the words of a record.
pub(crate) fn words_of(value_bytes: usize, is_encrypted: bool) -> usize {
    let more = if is_encrypted { HEADER_BYTES + TAG_BYTES } else { 0 };
    1 + (KEY_BYTES + value_bytes + more).div_ceil(8)
}

/// The words of a record, wherever they are.
pub(crate) trait Words {
    fn length(&self) -> usize;
    fn word(&self, index: usize) -> u64;

    /// Copies their bytes, from a word on, to the end of the words or of the bytes.
    fn copy_to(&self, first: usize, bytes: &mut [u8]) {
        let mut chunks = bytes.chunks_exact_mut(8);
        let whole = chunks.len();
        for (index, chunk) in (first..self.length()).zip(&mut chunks) {
            chunk.copy_from_slice(&self.word(index).to_le_bytes());
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() && first + whole < self.length() {
            rest.copy_from_slice(&self.word(first + whole).to_le_bytes()[..rest.len()]);
        }
    }
}

impl Words for [u64] {
    fn length(&self) -> usize {
        self.len()
    }

    fn word(&self, index: usize) -> u64 {
        self[index]
    }

    #[cfg(target_endian = "little")]
    fn copy_to(&self, first: usize, bytes: &mut [u8]) {
        let all: &[u8] = bytemuck::cast_slice(self.get(first..).unwrap_or_default());
        let copied = all.len().min(bytes.len());
        bytes[..copied].copy_from_slice(&all[..copied]);
    }
}

impl Words for [AtomicU64] {
    fn length(&self) -> usize {
        self.len()
    }

    fn word(&self, index: usize) -> u64 {
        self[index].load(Ordering::Relaxed)
    }
}

fn check(head: u64, rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head.to_le_bytes());
    hasher.update(rest);
    hasher.finalize()
}

fn check_of(head: Head, words: &[u64]) -> u32 {
    let mut bytes = vec![0; 8 * (words.len() - 1)];
    words.copy_to(1, &mut bytes);
    check(head.constant(), &bytes)
}

/// Makes a record. It is encrypted if there is a cipher, with a nonce that was never used with it. The value must not be longer than [`MOST_VALUE_BYTES`].
pub(crate) fn encode(
    key: &Key,
    value: &[u8],
    cipher: Option<(&Cipher, [u8; NONCE_LEN])>,
) -> Result<Encoded, Fault> {
    let kind = if cipher.is_some() { ENCRYPTED } else { 0 };
    let head = kind | (value.len() as u64) << LENGTH_SHIFT;
    let mut encoded = Encoded::from_elem(0, words_of(value.len(), cipher.is_some()));
    // All but the head.
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut encoded[1..]);
    if let Some((cipher, nonce)) = cipher {
        bytes[..4].copy_from_slice(&cipher.identity.to_le_bytes());
        bytes[4..HEADER_BYTES].copy_from_slice(&nonce);
        let (secret, rest) = bytes[HEADER_BYTES..].split_at_mut(KEY_BYTES + value.len());
        secret[..KEY_BYTES].copy_from_slice(key);
        secret[KEY_BYTES..].copy_from_slice(value);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = cipher.key.seal_in_place_separate_tag(nonce, Aad::from(head.to_le_bytes()), secret);
        rest[..TAG_BYTES].copy_from_slice(tag.map_err(|_| Fault::Encryption)?.as_ref());
    } else {
        bytes[..KEY_BYTES].copy_from_slice(key);
        bytes[KEY_BYTES..KEY_BYTES + value.len()].copy_from_slice(value);
    }
    let check = check(head, bytes);
    encoded[1..].iter_mut().for_each(|word| *word = u64::from_le(*word));
    encoded[0] = head | LIVE | u64::from(check) << CHECK_SHIFT;
    Ok(encoded)
}

/// Returns whether a record is as it was written, but for its state.
pub(crate) fn is_whole(words: &[u64]) -> bool {
    let Some(head) = words.first().and_then(|word| Head::of_word(*word)) else { return false };
    words.len() == head.words() && check_of(head, words) == (head.0 >> CHECK_SHIFT) as u32
}

/// Returns the head of a record with the checksum that its words have.
#[cfg(any(fuzzing, test))]
pub(crate) fn with_check(words: &[u64]) -> u64 {
    let head = Head(words[0]);
    head.0 & u64::from(u32::MAX) | u64::from(check_of(head, words)) << CHECK_SHIFT
}

/// What a record has.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Decoded {
    pub(crate) head: Head,
    pub(crate) key: Key,
    /// Empty if it was not wanted.
    pub(crate) value: Vec<u8>,
}

/// Decodes a record that is [whole](is_whole), its value only if that is wanted.
pub(crate) fn decode<W: Words + ?Sized>(
    words: &W,
    is_value_wanted: bool,
    cipher: Option<&Cipher>,
) -> Result<Decoded, Fault> {
    let head = head_of(words)?;
    if head.is_encrypted() {
        return decrypt(head, words, is_value_wanted, cipher);
    }
    let mut key = [0; KEY_BYTES];
    words.copy_to(1, &mut key);
    let mut value = vec![0; if is_value_wanted { head.value_bytes() } else { 0 }];
    words.copy_to(1 + KEY_BYTES / 8, &mut value);
    Ok(Decoded { head, key, value })
}

/// Decodes the key of a record that has so many words, of which only the [first](key_words) are needed.
///
/// If the record is encrypted, it is not authenticated: this is for comparing the key with a known one, and who changed it in far memory has made it another one. What the value is, this does not tell.
pub(crate) fn decode_key<W: Words + ?Sized>(
    first: &W,
    words: usize,
    cipher: Option<&Cipher>,
) -> Result<Decoded, Fault> {
    let head = if first.length() == 0 { None } else { Head::of_word(first.word(0)) };
    let head = head.filter(|head| head.words() == words).ok_or(Fault::NotARecord)?;
    let mut key = [0; KEY_BYTES];
    if head.is_encrypted() {
        let mut bytes = [0; HEADER_BYTES + KEY_BYTES];
        first.copy_to(1, &mut bytes);
        let (header, encrypted) = bytes.split_at(HEADER_BYTES);
        key = cipher_of(header, cipher)?.decrypt_first(&header[4..], encrypted);
    } else {
        first.copy_to(1, &mut key);
    }
    Ok(Decoded { head, key, value: Vec::new() })
}

/// Returns the cipher of a record, by the first bytes behind its head.
fn cipher_of<'c>(header: &[u8], cipher: Option<&'c Cipher>) -> Result<&'c Cipher, Fault> {
    let cipher = cipher.ok_or(Fault::NoKey)?;
    if header[..4] == cipher.identity.to_le_bytes() { Ok(cipher) } else { Err(Fault::OtherKey) }
}

fn head_of<W: Words + ?Sized>(words: &W) -> Result<Head, Fault> {
    let word = if words.length() == 0 { 0 } else { words.word(0) };
    Head::of_word(word).filter(|head| words.length() == head.words()).ok_or(Fault::NotARecord)
}

fn decrypt<W: Words + ?Sized>(
    head: Head,
    words: &W,
    is_value_wanted: bool,
    cipher: Option<&Cipher>,
) -> Result<Decoded, Fault> {
    let mut bytes = Scratch::from_elem(0, HEADER_BYTES + KEY_BYTES + head.value_bytes() + TAG_BYTES);
    words.copy_to(1, &mut bytes);
    let (header, secret) = bytes.split_at_mut(HEADER_BYTES);
    let cipher = cipher_of(header, cipher)?;
    let nonce = Nonce::try_assume_unique_for_key(&header[4..]).map_err(|_| Fault::NotARecord)?;
    let aad = Aad::from(head.constant().to_le_bytes());
    let opened = cipher.key.open_in_place(nonce, aad, secret).map_err(|_| Fault::Tampered)?;
    let (key, value) = opened.split_first_chunk().ok_or(Fault::NotARecord)?;
    let value = if is_value_wanted { value.to_vec() } else { Vec::new() };
    Ok(Decoded { head, key: *key, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(words: &[u64], cipher: Option<&Cipher>) -> Result<(Key, Vec<u8>), Fault> {
        super::decode(words, true, cipher).map(|decoded| (decoded.key, decoded.value))
    }

    fn cipher(byte: u8) -> Cipher {
        Cipher::new(&[byte; 32], byte.into()).unwrap()
    }

    #[test]
    fn a_place_is_a_word() {
        for is_encrypted in [false, true] {
            let place = Place { page: u32::MAX - 1, first: 2047, words: 2045, is_encrypted };
            assert_eq!(Place::of_word(place.to_word()), place);
        }
    }

    #[test]
    fn a_record_is_decoded_as_it_was_encoded() {
        for length in [0, 1, 7, 8, 9, 80, 1024, MOST_VALUE_BYTES] {
            let (key, value) = ([7; KEY_BYTES], vec![9; length]);
            let words = encode(&key, &value, None).unwrap();
            assert_eq!(words.len(), words_of(length, false));
            assert!(is_whole(&words) && Head::of_word(words[0]).unwrap().is_live());
            assert_eq!(decode(&words, None).unwrap(), (key, value.clone()));
            let copy: Vec<AtomicU64> = words.iter().map(|word| AtomicU64::new(*word)).collect();
            let head = Head::of_word(words[0]).unwrap();
            let mut expected = Decoded { head, key, value: value.clone() };
            assert_eq!(super::decode(&copy[..], true, None).unwrap(), expected);
            expected.value.clear();
            assert_eq!(super::decode(&copy[..], false, None).unwrap(), expected);
            assert_eq!(decode_key(&words[..key_words(false)], words.len(), None).unwrap(), expected);
            let (one, other) = (cipher(1), cipher(2));
            let words = encode(&key, &value, Some((&one, [3; NONCE_LEN]))).unwrap();
            assert!(is_whole(&words) && words.len() == words_of(length, true));
            assert!(8 * (words.len() - words_of(length, false)) <= 44);
            assert_eq!(decode(&words, Some(&one)).unwrap(), (key, value));
            let first = &words[..key_words(true)];
            assert_eq!(decode_key(first, words.len(), Some(&one)).unwrap().key, key);
            assert_eq!(decode_key(first, words.len() + 1, Some(&one)), Err(Fault::NotARecord));
            assert_eq!(decode_key(first, words.len(), Some(&other)), Err(Fault::OtherKey));
            assert_eq!(decode_key(first, words.len(), None), Err(Fault::NoKey));
            assert_eq!(decode(&words, Some(&other)), Err(Fault::OtherKey));
            assert_eq!(decode(&words, None), Err(Fault::NoKey));
        }
    }

    #[test]
    fn a_record_that_is_not_whole_is_recognised() {
        let words = encode(&[1; KEY_BYTES], &[2; 100], None).unwrap();
        for torn in 1..words.len() {
            let mut words = words.clone();
            words[torn..].fill(0);
            assert!(!is_whole(&words), "only {torn} words were written");
        }
        let mut dead = words.clone();
        dead[0] = Head::of_word(words[0]).unwrap().dead_word();
        assert!(is_whole(&dead) && !Head::of_word(dead[0]).unwrap().is_live());
        assert!(!is_whole(&words[..words.len() - 1]) && !is_whole(&[]));
        assert_eq!(Head::of_word(0), None);
    }

    /// An attacker who changes far memory can also compute the checksum.
    #[test]
    fn a_record_that_was_tampered_with_is_refused() {
        let cipher = cipher(1);
        let words = encode(&[1; KEY_BYTES], &[2; 100], Some((&cipher, [3; NONCE_LEN]))).unwrap();
        for bit in 0..64 * words.len() {
            let mut words = words.clone();
            words[bit / 64] ^= 1 << (bit % 64);
            let Some(head) = Head::of_word(words[0]) else { continue };
            let decoded = decode(&words, Some(&cipher));
            let is_padding = bit / 8 >= 8 + HEADER_BYTES + KEY_BYTES + 100 + TAG_BYTES;
            // The checksum and the padding are not secret, nor is whether the record is dead.
            if bit / 64 == 0 && (bit >= CHECK_SHIFT as usize || bit < 8) || is_padding {
                continue;
            }
            assert!(decoded.is_err(), "bit {bit} of {head:?}");
        }
    }
}
