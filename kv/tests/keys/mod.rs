//! The keys of tests.

/// Returns the key of a number.
pub(crate) fn key(number: u64) -> [u8; 16] {
    (u128::from(number) << 64 | u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_le_bytes()
}
