//! Checks of the decoders with any words: for fuzz targets and for tests.

use ring::aead::NONCE_LEN;

use crate::error::Fault;
use crate::pages::PAGE_WORDS;
use crate::record::{
    self, CHECK_SHIFT, Cipher, HEADER_BYTES, Head, KEY_BYTES, Key, MOST_VALUE_BYTES, TAG_BYTES,
};
use crate::store::records;

fn cipher(byte: u8) -> Cipher {
    Cipher::new(&[byte; 32], byte.into()).expect("a key of 32 bytes")
}

fn decode(words: &[u64], cipher: Option<&Cipher>) -> Result<(Key, Vec<u8>), Fault> {
    record::decode(words, true, cipher).map(|decoded| (decoded.key, decoded.value))
}

/// Decodes a page of any words, with a key and without, and encodes its records again.
///
/// Nearly all words have a wrong checksum, at which decoding ends. So the page is decoded again with right ones.
pub(crate) fn page(data: &[u8]) {
    let mut words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    words.resize(PAGE_WORDS, 0);
    let cipher = cipher(1);
    check_page(&words, &cipher);
    let found: Vec<_> = records(&words).map(|(first, record)| first..first + record.len()).collect();
    for record in &found {
        let head = record::with_check(&words[record.clone()]);
        words[record.start] = head;
        assert!(record::is_whole(&words[record.clone()]), "its checksum is right");
    }
    assert_eq!(records(&words).count(), found.len(), "a checksum changes no length");
    check_page(&words, &cipher);
}

fn check_page(words: &[u64], cipher: &Cipher) {
    let mut end = 0;
    for (first, words) in records(words) {
        assert_eq!(first, end, "records lie one after the other");
        end += words.len();
        let decoded = decode(words, Some(cipher));
        let head = Head::of_word(words[0]).expect("the record has a head");
        let first = &words[..record::key_words(head.is_encrypted()).min(words.len())];
        let key_alone = record::decode_key(first, words.len(), Some(cipher));
        if head.is_encrypted() {
            assert_eq!(decode(words, None), Err(Fault::NoKey));
            // Only the holder of the key can make one.
            assert!(matches!(decoded, Err(Fault::OtherKey | Fault::Tampered)), "{decoded:?}");
            continue;
        }
        let (key, value) = decoded.expect("a record that is not encrypted has a key and a value");
        assert_eq!(key_alone.map(|decoded| decoded.key), Ok(key));
        let encoded = record::encode(&key, &value, None).expect("it is not encrypted");
        assert_eq!(decode(&encoded, None), Ok((key, value.clone())));
        assert!(record::is_whole(&encoded) && encoded.len() == words.len());
        let has_padding = !value.len().is_multiple_of(8);
        if record::is_whole(words) && !has_padding {
            let dead = |word: u64| Head::of_word(word).map(Head::dead_word);
            assert!(dead(encoded[0]) == dead(words[0]) && encoded[1..] == words[1..], "{head:?}");
        }
    }
}

/// Encrypts a record, decodes it, and changes a bit of it. The first bytes are the nonce, the key and the number of the bit; the others are the value.
pub(crate) fn encrypted(data: &[u8]) {
    let Some((nonce, rest)) = data.split_first_chunk::<NONCE_LEN>() else { return };
    let Some((key, rest)) = rest.split_first_chunk::<KEY_BYTES>() else { return };
    let Some((bit, value)) = rest.split_first_chunk::<4>() else { return };
    let value = &value[..value.len().min(MOST_VALUE_BYTES)];
    check_encrypted(*nonce, key, u32::from_le_bytes(*bit) as usize, value);
}

fn check_encrypted(nonce: [u8; NONCE_LEN], key: &Key, bit: usize, value: &[u8]) {
    let (ours, other) = (cipher(1), cipher(2));
    let mut words = record::encode(key, value, Some((&ours, nonce))).expect("it can be encrypted");
    assert!(record::is_whole(&words));
    assert_eq!(decode(&words, Some(&ours)), Ok((*key, value.to_vec())));
    assert_eq!(decode(&words, Some(&other)), Err(Fault::OtherKey));
    assert_eq!(decode(&words, None), Err(Fault::NoKey));
    let first = &words[..record::key_words(true)];
    let key_alone = record::decode_key(first, words.len(), Some(&ours));
    assert_eq!(key_alone.map(|decoded| decoded.key), Ok(*key));
    let bit = bit % (64 * words.len());
    words[bit / 64] ^= 1 << (bit % 64);
    assert!(!record::is_whole(&words), "bit {bit} was changed");
    // The checksum and the padding are not authenticated.
    let is_open = (CHECK_SHIFT as usize..64).contains(&bit)
        || bit / 8 >= 8 + HEADER_BYTES + KEY_BYTES + value.len() + TAG_BYTES;
    let decoded = decode(&words, Some(&ours));
    let expected = is_open.then(|| (*key, value.to_vec()));
    assert_eq!(decoded.ok(), expected, "bit {bit} was changed");
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, RngExt, SeedableRng};

    use super::*;

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn pages_with_changed_bits_are_decoded() {
        let (ours, theirs, mut rng) = (cipher(1), cipher(2), SmallRng::seed_from_u64(1));
        for number in 0..400 {
            let mut words = Vec::new();
            for _ in 0..rng.random_range(0..8) {
                let mut value = vec![0; rng.random_range(0..200)];
                rng.fill_bytes(&mut value);
                let cipher = rng.random::<bool>().then(|| (&theirs, rng.random()));
                words.extend(record::encode(&rng.random(), &value, cipher).unwrap());
            }
            page(&bytes_of(&words));
            for _ in 0..number % 8 * words.len().min(1) {
                let bit = rng.random_range(0..64 * words.len());
                words[bit / 64] ^= 1 << (bit % 64);
                page(&bytes_of(&words));
            }
        }
        // One that the key has made is not refused.
        let words = record::encode(&[1; KEY_BYTES], b"value", Some((&ours, [3; NONCE_LEN]))).unwrap();
        assert!(std::panic::catch_unwind(|| page(&bytes_of(&words))).is_err());
    }

    #[test]
    fn encrypted_records_with_changed_bits_are_refused() {
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..2000 {
            let mut data = vec![0; rng.random_range(32..300)];
            rng.fill_bytes(&mut data);
            encrypted(&data);
        }
        encrypted(&vec![7; 32 + MOST_VALUE_BYTES + 1]);
    }
}
