//! `StampedLink<T>`: an atomic pointer with a version.
//!
//! The classic ABA problem: a thread loads a link; the object is removed, freed, allocated again and linked in the same place; the thread's
//! `compare_exchange` succeeds although everything has changed. Guards prevent this by not freeing the memory. If memory is reused immediately, a
//! *stamp* prevents it: 16 bits beside the address that each store increments. The words differ unless exactly a multiple of 65,536 stores came
//! between.
//!
//! The word is that of a [tagged link](super::tagged) whose tag is the stamp: 16 bits beside a compressed address.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use super::Publish;
use super::link::{Exchanged, exchange};
use super::tagged::{TAG_SHIFT, compress};
use super::{CompareExchangeError, Place, Read};
use crate::error::Result;
use crate::pointer::Guard;
use crate::pointer::{Address, MaybeMarks, RemotePtr, Shared};
use farfield_words::{DefaultInit, Describer, Field, Initial, Pod, Remote, fingerprint};

/// An atomic pointer with a 16-bit stamp, safe from ABA without guards. It has no marks.
///
/// A field is declared as `StampedLink<Node>`; the operations are methods of its [`Place`]. Every store increments the stamp; 65,535 is followed by
/// 0. A thread is not protected if exactly a multiple of 65,536 stores come between its `load` and its `compare_exchange`.
#[repr(transparent)]
pub struct StampedLink<T>(u64, PhantomData<fn() -> T>);

/// A pointer and the stamp beside it.
pub struct Stamped<'g, T> {
    shared: Shared<'g, T>,
    stamp: u16,
}

impl<'g, T> Stamped<'g, T> {
    /// Returns the pointer.
    pub fn shared(self) -> Shared<'g, T> {
        self.shared
    }

    /// Returns the number of stores to the link, modulo 65,536.
    pub fn stamp(self) -> u16 {
        self.stamp
    }

    fn from_word(word: u64) -> Self {
        Self { shared: Shared::unmarked(Address::from_compressed(word)), stamp: (word >> TAG_SHIFT) as u16 }
    }

    /// Returns the next word of a link with this value that is made to point to `target`.
    fn successor(self, target: Address) -> Result<u64> {
        Ok(u64::from(self.stamp.wrapping_add(1)) << TAG_SHIFT | compress(target)?)
    }
}

impl<T> Clone for Stamped<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Stamped<'_, T> {}
impl<T> PartialEq for Stamped<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.shared == other.shared && self.stamp == other.stamp
    }
}
impl<T> Eq for Stamped<'_, T> {}
impl<T> fmt::Debug for Stamped<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}#{}", self.shared, self.stamp)
    }
}
impl<'g, T> Deref for Stamped<'g, T> {
    type Target = Shared<'g, T>;
    fn deref(&self) -> &Shared<'g, T> {
        &self.shared
    }
}

impl<T: Remote> Field for StampedLink<T> {
    type Cell = Self;
    /// The initial pointer, null by default.
    type Init = RemotePtr<T>;
    type Value<'g> = Stamped<'g, T>;
    type Stored = Place<'static, Self>;
    type Kept<'a> = Place<'static, Self>;

    const FINGERPRINT: u64 = fingerprint::wrap("StampedLink", fingerprint::name(T::NAME));
    const FROZEN: bool = false;

    fn describe(describer: &mut Describer) {
        describer.tagged::<T>();
    }

    fn encode(init: RemotePtr<T>, out: &mut [u8]) {
        // An address that does not fit is replaced by one that every access rejects, not by another object's.
        Pod::encode(compress(init.address()).unwrap_or((1 << TAG_SHIFT) - 1), out);
    }
    fn decode<'g>(_: Address, bytes: &[u8]) -> farfield_words::Result<Self::Value<'g>> {
        Ok(Stamped::from_word(<u64 as Pod>::decode(bytes).unwrap_or_default()))
    }
    fn store(at: Address, _: &[u8]) -> farfield_words::Result<Place<'static, Self>> {
        Ok(Place::from_address(at))
    }
    fn kept(stored: &Place<'static, Self>) -> Place<'static, Self> {
        *stored
    }
}

impl<T: Remote, M: MaybeMarks> Initial<RemotePtr<T>> for Shared<'_, T, M> {
    fn into_init(self) -> RemotePtr<T> {
        self.as_ptr()
    }
}

impl<T: Remote> DefaultInit for StampedLink<T> {
    fn default_init() -> RemotePtr<T> {
        RemotePtr::NULL
    }
}

/// Operations are sequentially consistent. All fail with [`Error::InvalidPointer`](crate::Error::InvalidPointer) if the object is not in far memory, or a pointer to be stored does
/// not fit beside a stamp.
impl<'g, T: Remote> Place<'g, StampedLink<T>> {
    /// Returns the link's value. One round trip.
    pub fn load(self, g: &'g Guard<'_>) -> Read<'g, StampedLink<T>> {
        Read::new(self.address(), g)
    }

    /// Makes the link point to `new`. Two round trips, more under contention: the new stamp depends on the old one.
    pub async fn store(self, g: &'g Guard<'_>, new: impl Publish<T>) -> Result<Stamped<'g, T>> {
        Ok(self.exchanged(g, new).await?.1)
    }

    /// Makes the link point to `new` and returns the previous value. Two round trips, more under contention.
    pub async fn swap(self, g: &'g Guard<'_>, new: impl Publish<T>) -> Result<Stamped<'g, T>> {
        Ok(self.exchanged(g, new).await?.0)
    }

    /// Makes the link point to `new`. Returns the previous and the new value.
    async fn exchanged(
        self,
        g: &'g Guard<'_>,
        mut new: impl Publish<T>,
    ) -> Result<(Stamped<'g, T>, Stamped<'g, T>)> {
        let mut current = self.load(g).await?;
        let mut backoff = g.backoff();
        loop {
            match self.compare_exchange(g, current, new).await? {
                Ok(stored) => return Ok((current, stored)),
                Err(changed) => (current, new) = (changed.current, changed.new),
            }
            backoff.wait().await;
        }
    }

    /// Makes the link point to `new` if it holds `current`, address and stamp, and increments the stamp.
    ///
    /// One round trip, as for [`Link`](crate::Link). If the link holds another value, the error contains that value and `new`.
    pub async fn compare_exchange<P: Publish<T>>(
        self,
        g: &'g Guard<'_>,
        current: Stamped<'_, T>,
        mut new: P,
    ) -> Result<Exchanged<Stamped<'g, T>, P>> {
        let word = current.successor(new.address())?;
        let expected = word_of(current)?;
        let found = exchange::<T, ()>(g, self.address(), expected, word, &mut new).await?;
        Ok(if found == expected {
            Ok(Stamped::from_word(word))
        } else {
            Err(CompareExchangeError { current: Stamped::from_word(found), new })
        })
    }
}

fn word_of<T>(stamped: Stamped<'_, T>) -> Result<u64> {
    Ok(u64::from(stamped.stamp) << TAG_SHIFT | compress(stamped.shared.address())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_wrap_around() {
        let last = Stamped::<()>::from_word(0xffff << TAG_SHIFT | 8);
        assert_eq!(last.stamp(), u16::MAX);
        assert_eq!(Stamped::<()>::from_word(last.successor(last.shared.address()).unwrap()).stamp(), 0);
    }

    #[test]
    fn addresses_survive_compression_or_are_refused() {
        let far = Address::new(2047, (512 << 30) - 8);
        assert_eq!(Stamped::<()>::from_word(compress(far).unwrap()).shared().address(), far);
        assert!(compress(Address::new(2048, 64)).is_err());
        assert!(compress(Address::new(0, 512 << 30)).is_err());
    }
}
