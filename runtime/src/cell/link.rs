//! `Link<T>`: an atomic pointer with marks.

use std::fmt;
use std::marker::PhantomData;

use super::Publish;
use super::{Place, Read};
use crate::error::Result;
use crate::io::operations::*;
use crate::pointer::Guard;
use crate::pointer::{Address, Marks, RemotePtr, Shared};
use crate::session::ComputeThread;
use farfield_fabric::chain::Chain;
use farfield_words::{DefaultInit, Describer, Field, Initial, Pod, Remote, fingerprint};

/// An atomic pointer to a `T` in far memory, with as many mark bits as `T`'s alignment leaves free (three at least).
///
/// A field is declared as `Link<Node>`, with `#[marks(deleted)]` if its marks have names, which makes it a
/// `Link<Node, NodeMarked>`; the operations are those of its [`Place`].
#[repr(transparent)]
pub struct Link<T, M = ()>(u64, PhantomData<fn() -> (T, M)>);

/// What a link holds, or is to hold: an address and marks. Made from a `Shared` or a `RemotePtr`; null by default.
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
impl<T: Remote, M> fmt::Debug for LinkWord<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shared::<T, M>::from_word(self.word).fmt(f)
    }
}

impl<T: Remote, M> From<RemotePtr<T>> for LinkWord<T, M> {
    #[inline]
    fn from(ptr: RemotePtr<T>) -> Self {
        Self::new(ptr.address().bits())
    }
}

impl<T: Remote, M> From<Shared<'_, T, M>> for LinkWord<T, M> {
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

impl<T: Remote, M: 'static> Field for Link<T, M> {
    type Cell = Self;
    type Init = LinkWord<T, M>;
    type Value<'g> = Shared<'g, T, M>;
    type Stored = Place<'static, Self>;
    type Kept<'a> = Place<'static, Self>;

    // The pointee's name only: it may be the struct that the link is in.
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

impl<T: Remote, M> Initial<LinkWord<T, M>> for RemotePtr<T> {
    #[inline]
    fn into_init(self) -> LinkWord<T, M> {
        self.into()
    }
}

impl<T: Remote, M> Initial<LinkWord<T, M>> for Shared<'_, T, M> {
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

impl<T: Remote, M: 'static> DefaultInit for Link<T, M> {
    fn default_init() -> LinkWord<T, M> {
        LinkWord::default()
    }
}

/// A `compare_exchange` that found something else than it expected. Nothing was changed.
#[non_exhaustive]
pub struct CompareExchangeError<S, P> {
    /// What the link holds.
    pub current: S,
    /// What was to be put there; an [`Owned`](crate::Owned) can be edited and tried again.
    pub new: P,
}

impl<S: fmt::Debug, P> fmt::Debug for CompareExchangeError<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompareExchangeError").field("current", &self.current).finish_non_exhaustive()
    }
}

/// What a `compare_exchange` gives: what the link holds now, or why it was not changed.
pub(super) type Exchanged<S, P> = Result<S, CompareExchangeError<S, P>>;

/// Operations are sequentially consistent and fail with [`Error::InvalidPointer`](crate::Error::InvalidPointer) if the
/// object is not in far memory.
impl<'g, T: Remote, M: 'static> Place<'g, Link<T, M>> {
    /// What the link holds, protected by `g`. One round trip.
    #[inline]
    pub fn load(self, g: &'g Guard<'_>) -> Read<'g, Link<T, M>> {
        Read::new(self.address(), g)
    }

    /// Makes the link point to `new`; gives what it holds now.
    ///
    /// An `Owned` is thereby published: its image and the link travel in one chain, one round trip, if they are on one
    /// memory node; otherwise the image first.
    ///
    /// # Errors
    /// Those of a WRITE. An `Owned` whose publication failed half-way is not freed: it may be visible.
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

    /// Makes the link point to `new` and gives what it held. Two round trips, more under contention.
    ///
    /// # Errors
    /// As [`compare_exchange`](Self::compare_exchange).
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

    /// Makes the link point to `new` if it holds `current`, address and marks.
    ///
    /// One round trip. An `Owned` travels in the same chain as the link if they are on one memory node; otherwise it is
    /// written first. If the link holds something else, the error has it, and `new` back.
    ///
    /// # Errors
    /// Those of a CAS. An `Owned` whose publication failed half-way is not freed: it may be visible.
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

/// Compares and exchanges a link's word, having written the image of `new` before; gives what the link held.
///
/// While operations are in flight `new` counts as published: if the future is dropped then, the link may hold it, and
/// its block must not be freed under a WRITE.
pub(super) async fn exchange<T: Remote, M>(
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
    let found = ct.submit(chain).await?.word(&slot);
    new.set_published(found == expected);
    Ok(found)
}

/// A chain for the link at `link` that begins with the image of `new`; if one chain can not reach both, the image is
/// written here and the chain is empty.
pub(super) async fn chain_with_image<T: Remote, M>(
    ct: &ComputeThread,
    link: Address,
    new: &impl Publish<T, M>,
) -> Result<Chain> {
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
