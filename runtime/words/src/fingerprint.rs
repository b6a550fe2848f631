//! Layout fingerprints: 64 bits that differ when two builds would read the same bytes differently.
//!
//! FNV-1a over names, kinds, offsets and sizes, computed by the compiler. It guards against mistakes, not attacks. A
//! link contributes its pointee's name only, so that recursive types have a fingerprint; a type parameter contributes
//! through the fields that use it.

use crate::FieldInfo;

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

const fn bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(PRIME);
        index += 1;
    }
    // A terminator keeps ("ab", "c") and ("a", "bc") apart.
    (hash ^ 0xff).wrapping_mul(PRIME)
}

/// Returns the hash with a number added.
pub const fn number(hash: u64, number: u64) -> u64 {
    bytes(hash, &number.to_le_bytes())
}

/// Returns the fingerprint of a type that its name identifies.
pub const fn name(name: &str) -> u64 {
    bytes(OFFSET_BASIS, name.as_bytes())
}

/// Returns the fingerprint of a kind (`"Atomic"`) around a type's fingerprint.
pub const fn wrap(kind: &str, inner: u64) -> u64 {
    number(name(kind), inner)
}

/// Returns the fingerprint of `[F; length]`.
pub const fn array(inner: u64, length: usize) -> u64 {
    number(wrap("array", inner), length as u64)
}

/// Returns the fingerprint of a struct, computed from its name and fields.
pub const fn fields(struct_name: &str, size: usize, align: usize, fields: &[FieldInfo]) -> u64 {
    let mut hash = number(number(name(struct_name), size as u64), align as u64);
    hash = number(hash, cfg!(target_endian = "big") as u64);
    let mut index = 0;
    while index < fields.len() {
        let field = &fields[index];
        hash = bytes(hash, field.name.as_bytes());
        hash = number(hash, field.shape.fingerprint);
        hash = number(hash, field.offset as u64);
        hash = number(hash, field.shape.size as u64);
        index += 1;
    }
    hash
}

/// Returns the fingerprint of a message, computed from the names of its type and of its variants, and the names and fingerprints of
/// each variant's fields. A struct is one variant without a name.
pub const fn message(type_name: &str, variants: &[(&str, &[(&str, u64)])]) -> u64 {
    let mut hash = bytes(name("message"), type_name.as_bytes());
    let mut index = 0;
    while index < variants.len() {
        let (variant, fields) = variants[index];
        hash = number(bytes(hash, variant.as_bytes()), fields.len() as u64);
        let mut field = 0;
        while field < fields.len() {
            hash = number(bytes(hash, fields[field].0.as_bytes()), fields[field].1);
            field += 1;
        }
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_kinds_and_lengths_change_the_fingerprint() {
        let word = name("u64");
        let all =
            [word, name("i64"), wrap("Atomic", word), wrap("Link", word), array(word, 2), array(word, 3)];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
        assert_ne!(number(name("ab"), 1), number(name("a"), 1));
    }

    #[test]
    fn names_order_and_number_of_fields_and_variants_change_the_fingerprint_of_a_message() {
        let all = [
            message("A", &[("", &[])]),
            message("B", &[("", &[])]),
            message("A", &[("", &[("a", 1), ("b", 2)])]),
            message("A", &[("", &[("b", 2), ("a", 1)])]),
            message("A", &[("", &[("a", 2), ("b", 1)])]),
            message("A", &[("", &[("a", 1)]), ("", &[("b", 2)])]),
            message("A", &[("a", &[]), ("b", &[])]),
            message("A", &[("b", &[]), ("a", &[])]),
            message("A", &[("a", &[("b", 1)])]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }
}
