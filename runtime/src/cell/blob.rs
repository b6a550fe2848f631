//! `Blob`: a byte string in far memory.
//!
//! A blob is an object: a word with the number of bytes, and the bytes. It is published as any object, in the chain of the link that holds it, never changes
//! after that, and is retired as any object.
//!
//! Reading a byte string of unknown length takes two READs, one of the length. So its [`SizeClass`] belongs into the tag of the link that holds it: it
//! is a number of 8 bits, and one READ of as many words as a blob of that class may have finds the length and all bytes. A block is as large as its
//! class, so such a READ stays inside it.
//!
//! | size of the block, in bytes | classes |
//! |---|---|
//! | 16 to 512 | each multiple of 8 |
//! | up to 8 KiB | 4 to a doubling |
//! | up to 1 MiB | 16 to a doubling |
//! | 1 MiB and 64 KiB | one, for a key and a value of 1 MiB |
//!
//! The first two rows are the allocator's own [classes](crate::segment::classes). So beyond 512 bytes at most a fifth of a READ is not the string's, and beyond
//! 8 KiB at most a seventeenth.

use std::fmt;
use std::marker::PhantomData;

use super::{NewObject, Owned, Place, op};
use crate::error::{self, Error, Result};
use crate::pointer::{Address, Guard, MaybeMarks, RemotePtr, Shared, Site};
use farfield_words::scratch::bytes;
use farfield_words::{Describer, Field, FieldInfo, FrozenField, Pod, Remote, Shape, WORD_BYTES};
use farfield_words::{fingerprint_of, invalid_value};

/// The bytes of the word with the length.
const LENGTH_BYTES: usize = WORD_BYTES;
const SMALLEST: usize = 16;
const FINE: usize = 512;
const COARSE: usize = 8 * 1024;
const FINE_CLASSES: usize = (FINE - SMALLEST) / WORD_BYTES + 1;
const COARSE_CLASSES: usize = 4 * (COARSE / FINE).ilog2() as usize;
/// The classes of a doubling, up to 8 KiB and beyond.
const PER_DOUBLING: [usize; 2] = [4, 16];

/// The size class of a [`Blob`]: how many words it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// The number of classes. Their numbers are 1 to this.
    pub const COUNT: u8 = {
        let doublings = (Blob::MAX_BYTES / COARSE).ilog2() as usize;
        (FINE_CLASSES + COARSE_CLASSES + PER_DOUBLING[1] * doublings + 1) as u8
    };

    /// Returns the smallest class of byte strings of `length` bytes, or `None` for more than [`Blob::MAX_BYTES`].
    pub const fn of(length: usize) -> Option<Self> {
        if length > Blob::MAX_BYTES {
            return None;
        }
        let size = length + LENGTH_BYTES;
        if size <= FINE {
            let index = size.saturating_sub(SMALLEST).div_ceil(WORD_BYTES);
            return Some(Self(index as u8 + 1));
        }
        let is_large = size > COARSE;
        let (bottom, below) =
            if is_large { (COARSE, FINE_CLASSES + COARSE_CLASSES) } else { (FINE, FINE_CLASSES) };
        let per_doubling = PER_DOUBLING[is_large as usize];
        // The size is above `start`, which is `bottom` doubled several times, and at most twice as large.
        let doublings = ((size - 1) / bottom).ilog2() as usize;
        let start = bottom << doublings;
        let step = (size - start).div_ceil(start / per_doubling);
        Some(Self((below + doublings * per_doubling + step) as u8))
    }

    /// Returns the class of a [number](Self::number), or `None` if there is no such class.
    pub const fn from_number(number: u8) -> Option<Self> {
        if number >= 1 && number <= Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Returns its number, from 1 on: for a tag of 8 bits.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the bytes of its blocks: a multiple of 8.
    const fn block_bytes(self) -> usize {
        let index = self.0 as usize - 1;
        if index < FINE_CLASSES {
            return SMALLEST + index * WORD_BYTES;
        }
        let is_large = index >= FINE_CLASSES + COARSE_CLASSES;
        let (bottom, index) = if is_large {
            (COARSE, index - FINE_CLASSES - COARSE_CLASSES)
        } else {
            (FINE, index - FINE_CLASSES)
        };
        let per_doubling = PER_DOUBLING[is_large as usize];
        let start = bottom << (index / per_doubling);
        start + (index % per_doubling + 1) * (start / per_doubling)
    }

    /// Returns the largest number of bytes of its byte strings.
    pub const fn capacity(self) -> usize {
        self.block_bytes() - LENGTH_BYTES
    }

    /// Returns the words that a READ of such a blob reads.
    pub(super) const fn words(self) -> usize {
        self.block_bytes() / WORD_BYTES
    }
}

/// A byte string of up to 1 MiB and 64 KiB in far memory.
///
/// It never changes once it is published. Any link can hold it; a [`TaggedLink`](crate::TaggedLink) has room for its [`SizeClass`], by which one READ finds
/// all of it.
///
/// ```
/// use farfield::prelude::*;
///
/// #[tag(size: 8)]
/// struct NameTag;
///
/// #[remote]
/// struct Person {
///     name: TaggedLink<Blob, NameTag>,
/// }
///
/// # Cluster::connect("local:size=64KiB")?.run(1, async |ct| {
/// let g = &ct.pin();
/// let person = Person::new_in(ct, Person::init()).await?.write(ct).await?;
/// let name = Blob::new_in(ct, "Ada").await?;
/// let tag = NameTag::new(Blob::class(&name).number());
/// person.name().store(g, name, tag).await?; // one round trip for the bytes and the link
///
/// let name = person.name().load(g).await?;
/// let class = SizeClass::from_number(name.tag().size()).expect("every link was stored with a class");
/// assert_eq!(name.shared().read_bytes(class, g).await?, b"Ada"); // one READ
/// # Ok(()) })?;
/// # Ok::<(), farfield::Error>(())
/// ```
pub struct Blob(());

/// The layout of a blob's first word.
#[doc(hidden)]
#[repr(C, align(8))]
pub struct BlobThis {
    length: u64,
}

/// The accessors of a blob: none, since it is read as a whole.
#[doc(hidden)]
#[repr(transparent)]
pub struct BlobFields<'g>(Address, PhantomData<&'g ()>);

/// The length of a new blob, and its class.
#[doc(hidden)]
pub struct BlobInit {
    length: u64,
    class: SizeClass,
}

/// The length of a blob, as [`Shared::read`] finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobSnapshot {
    length: u64,
}

impl BlobSnapshot {
    /// Returns the number of bytes.
    pub fn len(self) -> u64 {
        self.length
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }
}

impl Blob {
    /// The most bytes of a byte string: a value of 1 MiB, and a key of 64 KiB less a few bytes.
    pub const MAX_BYTES: usize = (1 << 20) + (64 << 10) - LENGTH_BYTES;

    /// Allocates a byte string, whose image stays in local memory until it is published.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for more than [`MAX_BYTES`](Self::MAX_BYTES); those of an allocation.
    pub async fn new_in<'a>(site: impl Into<Site<'a>>, bytes: impl Into<Vec<u8>>) -> Result<Owned<Self>> {
        let bytes = bytes.into();
        let mut new = Self::zeroed_in(site, bytes.len()).await?;
        Self::bytes_mut(&mut new).copy_from_slice(&bytes);
        Ok(new)
    }

    /// Allocates a byte string of zeros, to be filled through [`bytes_mut`](Self::bytes_mut) before it is published.
    ///
    /// # Errors
    /// Those of [`new_in`](Self::new_in).
    #[inline]
    pub fn zeroed_in<'a>(
        site: impl Into<Site<'a>>,
        length: usize,
    ) -> impl Future<Output = Result<Owned<Self>>> {
        let class = SizeClass::of(length);
        let new = class.map(|class| NewObject::new(site.into(), BlobInit { length: length as u64, class }));
        async move {
            match new {
                Some(new) => new.await,
                None => Err(too_long(length)),
            }
        }
    }

    /// Returns the bytes of a new byte string, to be changed before it is published. No round trip.
    pub fn bytes_mut(new: &mut Owned<Self>) -> &mut [u8] {
        let words = new.unpublished_words();
        let length = words.first().map_or(0, |length| *length as usize);
        &mut bytemuck::cast_slice_mut(words)[LENGTH_BYTES..][..length]
    }

    /// Returns the class of a new byte string.
    pub fn class(new: &Owned<Self>) -> SizeClass {
        let length = new.written().1[0] as usize;
        // Its length was checked when it was made.
        SizeClass::of(length).unwrap_or(SizeClass(SizeClass::COUNT))
    }
}

#[cold]
fn too_long(length: usize) -> Error {
    let value = format!("{length} bytes").into();
    let reason = "a byte string has at most 1 MiB and 64 KiB";
    Error::from(error::InvalidArgument { argument: "blob", value, reason })
}

/// Returns the bytes of a blob in the words of a READ.
#[inline]
pub(super) fn blob_bytes(at: Address, words: &[u64]) -> Result<&[u8]> {
    let bytes = bytes(words);
    let length = words.first().copied().unwrap_or(u64::MAX);
    let contents = usize::try_from(length).ok().and_then(|length| bytes[LENGTH_BYTES..].get(..length));
    contents.ok_or_else(|| invalid_value::<Blob>(at).into())
}

impl<M: MaybeMarks> Shared<'_, Blob, M> {
    /// Reads a byte string of a class. One READ.
    ///
    /// # Errors
    /// Those of a READ; [`Error::InvalidValue`] if the string is longer than its class.
    pub async fn read_bytes(self, class: SizeClass, g: &Guard<'_>) -> Result<Vec<u8>> {
        self.as_ptr().read_bytes(class, g).await
    }

    /// Reads a byte string of a class, and returns what `decode` makes of it. See [`RemotePtr::read_bytes_with`].
    ///
    /// # Errors
    /// Those of [`read_bytes`](Self::read_bytes).
    #[inline]
    pub fn read_bytes_with<'g, R>(
        self,
        class: SizeClass,
        g: &'g Guard<'_>,
        decode: impl FnOnce(&[u8]) -> R + 'g,
    ) -> impl Future<Output = Result<R>>
    where
        R: 'g,
    {
        self.as_ptr().read_bytes_with(class, g, decode)
    }
}

impl RemotePtr<Blob> {
    /// Reads a byte string of a class. One READ. See [`Shared::read_bytes`].
    ///
    /// # Errors
    /// Those of [`Shared::read_bytes`].
    pub async fn read_bytes(self, class: SizeClass, g: &Guard<'_>) -> Result<Vec<u8>> {
        self.read_bytes_with(class, g, <[u8]>::to_vec).await
    }

    /// Reads a byte string of a class, and returns what `decode` makes of it. One READ, and no allocation but those of `decode`.
    ///
    /// # Errors
    /// Those of [`Shared::read_bytes`].
    #[inline]
    pub fn read_bytes_with<'g, R>(
        self,
        class: SizeClass,
        g: &'g Guard<'_>,
        decode: impl FnOnce(&[u8]) -> R + 'g,
    ) -> impl Future<Output = Result<R>>
    where
        R: 'g,
    {
        g.chain(op::read_bytes_with(self.shared(g), class, decode)).submit()
    }
}

impl Field for Blob {
    type Cell = BlobThis;
    type Init = BlobInit;
    type Value<'g> = BlobSnapshot;
    type Stored = Place<'static, Self>;
    type Kept<'a> = Place<'static, Self>;

    const FINGERPRINT: u64 = fingerprint_of::<Self>();
    const FROZEN: bool = true;
    const TAIL_STRIDE: usize = 1;

    fn describe(describer: &mut Describer) {
        describer.nested::<Self>();
    }
    fn tail_bytes(init: &BlobInit) -> usize {
        init.class.capacity()
    }
    fn encode(init: BlobInit, out: &mut [u8]) {
        Pod::encode(init.length, out);
    }
    fn decode<'g>(_: Address, bytes: &[u8]) -> farfield_words::Result<Self::Value<'g>> {
        Ok(BlobSnapshot { length: <u64 as Pod>::decode(bytes).unwrap_or_default() })
    }
    fn store(at: Address, _: &[u8]) -> farfield_words::Result<Place<'static, Self>> {
        Ok(Place::from_address(at))
    }
    fn kept(stored: &Place<'static, Self>) -> Place<'static, Self> {
        *stored
    }
}

impl FrozenField for Blob {}

// SAFETY: `BlobFields` is transparent over an address, and makes no use of it.
unsafe impl Remote for Blob {
    type Fields<'g> = BlobFields<'g>;
    const NAME: &'static str = "Blob";
    const FIELDS: &'static [FieldInfo] = &[FieldInfo::new("bytes", 0, BYTES)];
}

/// The length and the bytes.
const BYTES: Shape = <super::Tail<u8> as Field>::SHAPE;

impl fmt::Debug for BlobFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blob({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::classes;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        let mut class = SizeClass::of(0).unwrap();
        assert_eq!(class.number(), 1);
        for length in 0..=Blob::MAX_BYTES {
            if length > class.capacity() {
                let next = SizeClass::from_number(class.number() + 1).expect("there is a larger class");
                assert!(next.capacity() > class.capacity());
                class = next;
            }
            assert_eq!(SizeClass::of(length), Some(class), "{length}");
        }
        assert_eq!(class.number(), SizeClass::COUNT);
        assert_eq!(SizeClass::of(Blob::MAX_BYTES + 1), None);
        assert!(
            SizeClass::from_number(0).is_none() && SizeClass::from_number(SizeClass::COUNT + 1).is_none()
        );
    }

    #[test]
    fn classes_are_those_of_the_allocator_or_waste_less() {
        for class in (1..=SizeClass::COUNT).filter_map(SizeClass::from_number) {
            let bytes = class.block_bytes();
            assert!(bytes.is_multiple_of(WORD_BYTES));
            if bytes <= COARSE {
                assert_eq!(
                    classes::block_bytes(bytes as u64, 8),
                    bytes as u64,
                    "a block has the class's size"
                );
            }
            if let Some(before) = class.number().checked_sub(1).and_then(SizeClass::from_number) {
                let unused = bytes - before.block_bytes();
                let most = if bytes <= FINE {
                    8
                } else if bytes <= COARSE {
                    bytes / 5
                } else {
                    bytes / 17
                };
                assert!(unused <= most, "{bytes} after {}", before.block_bytes());
            }
        }
    }

    #[test]
    fn a_length_beyond_the_class_is_an_error() {
        let at = Address::new(0, 64);
        assert_eq!(blob_bytes(at, &[3, u64::from_le_bytes(*b"abcdefgh")]).unwrap(), b"abc");
        for length in [9, u64::MAX] {
            assert!(matches!(blob_bytes(at, &[length, 0]), Err(Error::InvalidValue { .. })));
        }
    }
}
