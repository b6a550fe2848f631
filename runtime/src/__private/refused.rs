//! The stand-in for a field type that `#[remote]` has refused.
//!
//! The program does not compile, so this code never runs. It accepts every use of the field that the declared type would accept, so that the user
//! sees a single error.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::cell::Place;
use farfield_words::Address;
use farfield_words::Result;
use farfield_words::{DefaultInit, Describer, Field, FrozenField, Shape};

/// A field declared as the refused type `T`.
pub struct Refused<T>(PhantomData<fn() -> T>);

impl<T: 'static> Field for Refused<T> {
    type Cell = u64;
    type Init = T;
    type Value<'g> = Self;
    type Stored = Self;
    type Kept<'a> = Self;

    const FINGERPRINT: u64 = 0;
    const FROZEN: bool = false;
    // The error for a tail that is not the last field is reported elsewhere, once.
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

/// The methods of the declared type.
impl<T> Deref for Refused<T> {
    type Target = T;
    fn deref(&self) -> &T {
        unreachable!("the program was refused")
    }
}

/// The operations of the declared type's places.
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
