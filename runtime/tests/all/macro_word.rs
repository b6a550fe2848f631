//! `#[derive(Word)]` from a user's side: every value survives far memory, and bits without a value are refused.

use farfield::prelude::*;
use farfield::{Pod, Result};

/// Explicit, implicit and extreme discriminants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Word)]
#[repr(i64)]
enum Signed {
    Least = i64::MIN,
    Next,
    Minus = -1,
    Zero,
    Most = i64::MAX,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Word)]
#[repr(u16)]
enum NoZero {
    Seven = 7,
    One = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Word)]
struct Tagged<T: Word> {
    inner: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Word)]
struct Nested(Tagged<NoZero>);

fn survives<T: Word + PartialEq>(value: T) {
    assert_eq!(T::from_word(value.to_word()), Some(value));
    let mut bytes = [0xa5; 16];
    value.encode(&mut bytes);
    assert_eq!(T::decode(&bytes), Some(value));
    assert!(bytes[size_of::<T>()..].iter().all(|byte| *byte == 0xa5), "no byte after the value is written");
}

#[test]
fn every_value_survives() {
    for value in [Signed::Least, Signed::Next, Signed::Minus, Signed::Zero, Signed::Most] {
        survives(value);
    }
    for value in [NoZero::Seven, NoZero::One] {
        survives(value);
        survives(Nested(Tagged { inner: value }));
    }
    survives(Tagged { inner: -5_i8 });
    survives(Tagged { inner: f64::MAX });
}

#[test]
fn bits_without_a_value_are_refused() {
    assert_eq!(NoZero::from_word(0), None);
    assert_eq!(NoZero::from_word(7 | 1 << 16), None, "the upper bits count");
    assert_eq!(Signed::from_word(1), None);
    assert_eq!(Nested::from_word(2), None);
    assert_eq!(NoZero::decode(&[2, 0]), None);
    assert_eq!(Tagged::<bool>::from_word(2), None);
}

#[test]
fn an_atomic_starts_as_the_variant_that_is_zero_or_as_the_first() {
    assert_eq!(Signed::initial(), Signed::Zero);
    assert_eq!(NoZero::initial(), NoZero::Seven);
    assert_eq!(Nested::initial(), Nested(Tagged { inner: NoZero::Seven }));
}

#[test]
fn types_of_one_representation_have_different_fingerprints() {
    assert_ne!(<Tagged<u16> as Pod>::FINGERPRINT, <Tagged<NoZero> as Pod>::FINGERPRINT);
    assert_ne!(NoZero::FINGERPRINT, u16::FINGERPRINT);
}

#[remote]
struct Holder {
    plain: Signed,
    state: Atomic<Nested>,
    all: [Atomic<Signed>; 2],
}

#[farfield::test]
async fn words_are_fields_and_atomics(ct: &ComputeThread) -> Result<()> {
    let ptr = Holder::new_in(ct, Holder::init(Signed::Least)).await?.write(ct).await?;
    let one = Nested(Tagged { inner: NoZero::One });
    assert_eq!(ptr.state().swap(ct, one).await?, Nested::initial());
    ptr.all().at(1).store(ct, Signed::Most).await?;
    let g = &ct.pin();
    let seen = ptr.read(g).await?;
    assert_eq!((seen.plain, seen.state, seen.all), (Signed::Least, one, [Signed::Zero, Signed::Most]));
    Ok(())
}
