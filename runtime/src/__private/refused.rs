//! What stands for a type that `#[remote]` has refused.
//!
//! The program does not compile, so nothing here ever runs. It is there for what the program does with the field, none of
//! which is a mistake: whatever is done with the type as it was declared is accepted, so that the user sees one error.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::cell::Place;
use farfield_words::Address;
use farfield_words::Result;
use farfield_words::{DefaultInit, Describer, Field, FrozenField, Shape};

/// A field declared as a `T`, which it cannot be.
pub struct Refused<T>(PhantomData<fn() -> T>);

impl<T: 'static> Field for Refused<T> {
    type Cell = u64;
    type Init = T;
    type Value<'g> = Self;
    type Stored = Self;
    type Kept<'a> = Self;

    const FINGERPRINT: u64 = 0;
    const FROZEN: bool = false;
    // A tail in the wrong place is said once, too.
    const SHAPE: Shape = <u64 as Field>::SHAPE;

    fn describe(_: &mut Describer) {}
    fn encode(_: T, _: &mut [u8]) {}
    fn decode<'g>(_: Address, _: &[u8]) -> Result<Self::Value<'g>> {
        Ok(Self(PhantomData))
    }
    fn store(_: Address, _: &[u8]) -> Result<Self> {
        Ok(Self(PhantomData))
    }
    fn kept(_: &Self) -> Self {
        Self(PhantomData)
    }
}

impl<T: 'static> FrozenField for Refused<T> {}

impl<T: 'static> DefaultInit for Refused<T> {
    fn default_init() -> T {
        unreachable!("the program was refused")
    }
}

/// The methods of the type.
impl<T> Deref for Refused<T> {
    type Target = T;
    fn deref(&self) -> &T {
        unreachable!("the program was refused")
    }
}

/// The operations of the type's places.
impl<'g, T> Deref for Place<'g, Refused<T>> {
    type Target = Place<'g, T>;
    fn deref(&self) -> &Place<'g, T> {
        unreachable!("the program was refused")
    }
}

impl<T> Clone for Refused<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Refused<T> {}
impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}
