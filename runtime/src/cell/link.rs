//! `Link<T>`: an atomic pointer with marks.

use std::fmt;
use std::marker::PhantomData;

use super::Publish;
use super::{Place, Read};
use crate::error::Result;
use crate::io::operations::*;
use crate::pointer::Guard;
use crate::pointer::{Address, Marks, MaybeMarks, RemotePtr, Shared};
use crate::session::ComputeThread;
use farfield_fabric::chain::RawChain;
use farfield_words::{DefaultInit, Describer, Field, Initial, Pod, Remote, fingerprint};

/// An atomic pointer to a `T` in far memory. Marks, if they are declared, are in the bits that are zero by `T`'s alignment (at least three).
///
/// A field is declared as `Link<Node>`, or with named marks by `#[marks(deleted)]`, which makes it a `Link<Node, NodeMarked>`. The operations are
/// methods of its [`Place`].
#[repr(transparent)]
pub struct Link<T, M = ()>(u64, PhantomData<fn() -> (T, M)>);

/// A value for a link: an address and marks. Made from a `Shared` or a `RemotePtr`; null by default.
pub struct LinkWord<T, M = ()> {
    pub(super) word: u64,
    target: PhantomData<fn() -> (T, M)>,
}

impl<T, M> LinkWord<T, M> {
    #[inline]
    const fn new(word: u64) -> Self {
        Self { word, target: PhantomData }
    }
}

impl<T, M> Default for LinkWord<T, M> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T, M> Clone for LinkWord<T, M> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, M> Copy for LinkWord<T, M> {}
impl<T, M> PartialEq for LinkWord<T, M> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}
impl<T, M> Eq for LinkWord<T, M> {}
impl<T: Remote, M: MaybeMarks> fmt::Debug for LinkWord<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shared::<T, M>::from_word(self.word).fmt(f)
    }
}

impl<T: Remote, M: MaybeMarks> From<RemotePtr<T>> for LinkWord<T, M> {
    #[inline]
    fn from(ptr: RemotePtr<T>) -> Self {
        Self::new(ptr.address().bits())
    }
}

impl<T: Remote, M: MaybeMarks> From<Shared<'_, T, M>> for LinkWord<T, M> {
    #[inline]
    fn from(shared: Shared<'_, T, M>) -> Self {
        Self::new(shared.to_word())
    }
}

impl<T: Remote, M: Marks> From<Shared<'_, T>> for LinkWord<T, M> {
    #[inline]
    fn from(shared: Shared<'_, T>) -> Self {
        Self::new(shared.to_word())
    }
}

impl<T: Remote, M: MaybeMarks> Field for Link<T, M> {
    type Cell = Self;
    type Init = LinkWord<T, M>;
    type Value<'g> = Shared<'g, T, M>;
    type Stored = Place<'static, Self>;
    type Kept<'a> = Place<'static, Self>;

    // Only the pointee's name: the pointee may be the struct that contains the link.
    const FINGERPRINT: u64 = fingerprint::wrap("Link", fingerprint::name(T::NAME));
    const FROZEN: bool = false;

    fn describe(describer: &mut Describer) {
        describer.link::<T>();
    }

    #[inline]
    fn encode(init: LinkWord<T, M>, out: &mut [u8]) {
        Pod::encode(init.word, out);
    }
    #[inline]
    fn decode<'g>(_: Address, bytes: &[u8]) -> farfield_words::Result<Self::Value<'g>> {
        Ok(Shared::from_word(<u64 as Pod>::decode(bytes).unwrap_or_default()))
    }
    #[inline]
    fn store(at: Address, _: &[u8]) -> farfield_words::Result<Place<'static, Self>> {
        Ok(Place::from_address(at))
    }
    #[inline]
    fn kept(stored: &Place<'static, Self>) -> Place<'static, Self> {
        *stored
    }
}

impl<T: Remote, M: MaybeMarks> Initial<LinkWord<T, M>> for RemotePtr<T> {
    #[inline]
    fn into_init(self) -> LinkWord<T, M> {
        self.into()
    }
}

impl<T: Remote, M: MaybeMarks> Initial<LinkWord<T, M>> for Shared<'_, T, M> {
    #[inline]
    fn into_init(self) -> LinkWord<T, M> {
        self.into()
    }
}

impl<T: Remote, M: Marks> Initial<LinkWord<T, M>> for Shared<'_, T> {
    #[inline]
    fn into_init(self) -> LinkWord<T, M> {
        self.into()
    }
}

impl<T: Remote, M: MaybeMarks> DefaultInit for Link<T, M> {
    fn default_init() -> LinkWord<T, M> {
        LinkWord::default()
    }
}

/// The error of a `compare_exchange` that found another value than it expected. The link is unchanged.
#[non_exhaustive]
pub struct CompareExchangeError<S, P> {
    /// The link's value.
    pub current: S,
    /// The value that was to be stored. An [`Owned`](crate::Owned) can be edited and retried.
    pub new: P,
}

impl<S: fmt::Debug, P> fmt::Debug for CompareExchangeError<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompareExchangeError").field("current", &self.current).finish_non_exhaustive()
    }
}

/// The result of a `compare_exchange`: the link's new value, or the error.
pub(super) type Exchanged<S, P> = Result<S, CompareExchangeError<S, P>>;

/// Operations are sequentially consistent. They fail with [`Error::InvalidPointer`](crate::Error::InvalidPointer) if the object is not in far memory.
impl<'g, T: Remote, M: MaybeMarks> Place<'g, Link<T, M>> {
    /// Returns the link's value, protected by `g`. One round trip.
    #[inline]
    pub fn load(self, g: &'g Guard<'_>) -> Read<'g, Link<T, M>> {
        Read::new(self.address(), g)
    }

    /// Makes the link point to `new`. Returns the link's new value.
    ///
    /// Storing an `Owned` publishes it. If it is on the link's memory node, one chain writes its image and the link: one round trip. Otherwise the
    /// image is written first: two round trips.
    ///
    /// # Errors
    /// Those of a WRITE. If the publication of an `Owned` fails, the object may be visible, and is not freed.
    pub async fn store(self, g: &'g Guard<'_>, mut new: impl Publish<T, M>) -> Result<Shared<'g, T, M>> {
        let target = Shared::<'g, T, M>::from_word(new.word());
        if new.image().is_none() {
            g.write_word(self.address(), target.to_word()).await?;
            return Ok(target);
        }
        new.set_published(true);
        let mut chain = chain_with_image(g, self.address(), &new).await?;
        chain.write(self.address(), &[target.to_word()]);
        g.submit(chain).await?;
        Ok(target)
    }

    /// Makes the link point to `new` and returns the previous value. Two round trips, more under contention.
    ///
    /// # Errors
    /// Those of [`compare_exchange`](Self::compare_exchange).
    pub async fn swap(self, g: &'g Guard<'_>, mut new: impl Publish<T, M>) -> Result<Shared<'g, T, M>> {
        let mut current = self.load(g).await?;
        let mut backoff = g.backoff();
        loop {
            match self.compare_exchange(g, current, new).await? {
                Ok(_) => return Ok(current),
                Err(changed) => (current, new) = (changed.current, changed.new),
            }
            backoff.wait().await;
        }
    }

    /// Makes the link point to `new` if it holds `current`, compared with its marks.
    ///
    /// One round trip. The chain also writes an `Owned` that is on the link's memory node; otherwise the image is written first, which takes one
    /// more. If the link holds another value, the error contains that value and `new`.
    ///
    /// # Errors
    /// Those of a CAS. If the publication of an `Owned` fails, the object may be visible, and is not freed.
    pub async fn compare_exchange<P: Publish<T, M>>(
        self,
        g: &'g Guard<'_>,
        current: impl Initial<LinkWord<T, M>>,
        mut new: P,
    ) -> Result<Exchanged<Shared<'g, T, M>, P>> {
        let expected = current.into_init().word;
        let target = Shared::<'g, T, M>::from_word(new.word());
        let found = exchange::<T, M>(g, self.address(), expected, target.to_word(), &mut new).await?;
        Ok(if found == expected {
            Ok(target)
        } else {
            Err(CompareExchangeError { current: Shared::from_word(found), new })
        })
    }
}

/// Compares and exchanges a link's word, after writing the image of `new`. Returns the previous word.
///
/// While operations are in flight `new` counts as published. If the future is dropped then, the link may hold it, and its block must not be freed
/// under a WRITE.
pub(super) async fn exchange<T: Remote, M: MaybeMarks>(
    ct: &ComputeThread,
    at: Address,
    expected: u64,
    word: u64,
    new: &mut impl Publish<T, M>,
) -> Result<u64> {
    if new.image().is_none() {
        return ct.compare_exchange_word(at, expected, word).await;
    }
    new.set_published(true);
    let mut chain = chain_with_image(ct, at, &*new).await?;
    let slot = chain.compare_exchange(at, expected, word);
    let found = ct.submit(chain).await?.word(slot);
    new.set_published(found == expected);
    Ok(found)
}

/// Returns a chain for the link at `link` that begins with the image of `new`. If one chain can not access both, writes the image here and returns an
/// empty chain.
pub(super) async fn chain_with_image<T: Remote, M: MaybeMarks>(
    ct: &ComputeThread,
    link: Address,
    new: &impl Publish<T, M>,
) -> Result<RawChain> {
    let mut chain = ct.empty_chain();
    if let Some((object, image)) = new.image() {
        if ct.node_of(object) == ct.node_of(link) {
            chain.write(object, image);
        } else {
            ct.write_words(object, image).await?;
        }
    }
    Ok(chain)
}
