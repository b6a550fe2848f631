//! Values of 8 bytes: a word that can still be verified.
//!
//! The word holds, from its lowest bit on, the writer, the number of its write, in workload f the number of read-modify-writes of the record, and in all
//! further bits, at least [`CHECK_BITS`], those of the stamp that a larger value has in its header. The fields have as many bits as the run needs.
//!
//! All fields of a value are kept but the record, of which only the stamp depends: a reader computes the stamp for the record that it has asked for. So the value
//! of another record is found with a probability of at least 1 − 2⁻¹⁶ each time it is read, but it does not tell whose it is. Lost updates,
//! stale values and lost read-modify-writes are found as with larger values.

use crate::record::Value;

/// The bytes of a value that is a word.
pub(crate) const WORD_VALUE: usize = size_of::<u64>();
/// The fewest bits of the stamp.
const CHECK_BITS: u32 = 16;

/// How values are encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Byte strings of this size, with a header.
    Bytes(usize),
    /// Words.
    Word(Packing),
}

impl Form {
    pub(crate) fn encode(self, value: Value) -> Vec<u8> {
        match self {
            Self::Bytes(size) => value.encode(size),
            Self::Word(packing) => packing.encode(value).to_vec(),
        }
    }

    /// Returns what the value of a record says, or a fault. A byte string may be the value of another record, and says so.
    pub(crate) fn decode(self, record: u64, bytes: &[u8]) -> Result<Value, String> {
        match self {
            Self::Bytes(size) => Value::decode(bytes, size),
            Self::Word(packing) => packing.decode(record, bytes),
        }
    }
}

/// The bits of a word's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    writer: u32,
    sequence: u32,
    increments: u32,
}

/// Returns the number of bits of the numbers up to `most`.
fn bits(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

impl Packing {
    /// Makes room for the writers below `writers`, up to `of_each` writes of each, and up to `increments` read-modify-writes of a record. `None` if a word
    /// is too small.
    pub(crate) fn new(writers: u64, of_each: u64, increments: u64) -> Option<Self> {
        let packing = Self {
            writer: bits(writers.saturating_sub(1)),
            sequence: bits(of_each),
            increments: bits(increments),
        };
        (packing.fields() + CHECK_BITS <= u64::BITS).then_some(packing)
    }

    /// The bits below the stamp.
    fn fields(self) -> u32 {
        self.writer + self.sequence + self.increments
    }

    pub(crate) fn encode(self, value: Value) -> [u8; WORD_VALUE] {
        let Value { writer, sequence, increments, .. } = value;
        let write = u64::from(writer) | u64::from(sequence) << self.writer;
        let counted = increments.checked_shl(self.writer + self.sequence).unwrap_or(0);
        let stamp = value.stamp().checked_shl(self.fields()).unwrap_or(0);
        (write | counted | stamp).to_le_bytes()
    }

    /// Returns what the value of a record says, or a fault.
    pub(crate) fn decode(self, record: u64, bytes: &[u8]) -> Result<Value, String> {
        let word = <[u8; WORD_VALUE]>::try_from(bytes).map(u64::from_le_bytes);
        let word = word.map_err(|_| format!("has a value of {} bytes", bytes.len()))?;
        let field = |from: u32, bits: u32| word >> from & ((1 << bits) - 1);
        let value = Value {
            record,
            writer: field(0, self.writer) as u32,
            sequence: field(self.writer, self.sequence) as u32,
            increments: field(self.writer + self.sequence, self.increments),
        };
        if self.encode(value) == bytes {
            Ok(value)
        } else {
            Err("has a value that is not its own".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: Value = Value { record: 7, writer: 3, sequence: 9, increments: 2 };

    #[test]
    fn every_field_is_kept_up_to_its_largest_number() {
        for (writers, of_each, increments) in
            [(4, 9, 2), (1 << 13, 1 << 20, 0), (1, 0, 0), (1 << 20, 7, 1 << 23)]
        {
            let packing = Packing::new(writers, of_each, increments).unwrap();
            for value in [
                Value { record: 7, writer: 0, sequence: 0, increments: 0 },
                Value { record: u64::MAX, writer: writers as u32 - 1, sequence: of_each as u32, increments },
            ] {
                assert_eq!(packing.decode(value.record, &packing.encode(value)), Ok(value));
            }
        }
    }

    #[test]
    fn every_changed_bit_is_found() {
        let packing = Packing::new(4, 1000, 1000).unwrap();
        let bytes = packing.encode(VALUE);
        for bit in 0..u64::BITS {
            let changed = u64::from_le_bytes(bytes) ^ 1 << bit;
            assert!(packing.decode(7, &changed.to_le_bytes()).is_err(), "bit {bit}");
        }
        for wrong in [&bytes[1..], &[bytes, bytes].concat()] {
            assert!(packing.decode(7, wrong).unwrap_err().contains("bytes"));
        }
    }

    #[test]
    fn the_value_of_another_record_is_found() {
        // As few bits of the stamp as there can be.
        let packing = Packing::new(1 << 10, (1 << 20) - 1, (1 << 18) - 1).unwrap();
        assert_eq!(packing.fields() + CHECK_BITS, u64::BITS);
        let bytes = packing.encode(VALUE);
        let taken = (8..200_000).filter(|record| packing.decode(*record, &bytes).is_ok()).count();
        assert!(taken <= 12, "{taken} of 200,000 records take it for theirs, of which 3 are expected");
    }

    #[test]
    fn a_run_that_is_too_large_for_a_word_is_refused() {
        assert_eq!(Packing::new(1 << 10, (1 << 20) - 1, 1 << 18), None);
        assert_eq!(Packing::new(u64::MAX, u64::MAX, u64::MAX), None);
    }
}
