//! `TaggedLink<T, G>`: an atomic pointer with a tag.
//!
//! The word of a tagged link is a compressed address and up to 16 bits of the program's own: the fingerprint of a key, the size of the object, a version.
//! One READ finds both, and one CAS exchanges both. So a lookup can reject an object, or know how many words to read of it, before it has read any.
//!
//! | bits | contents |
//! |---|---|
//! | 63..48 | the tag |
//! | 47 | 1; 0 if the pointer is null |
//! | 46..36 | segment |
//! | 35..0 | offset / 8 |
//!
//! Instead of a pointer, the word may hold a *value* of 46 bits, for data that needs no object: bit 47 is 0, bit 46 is 1, bits 45..0 are the value's. Or a *hidden* pointer, to an object
//! in a segment below 1024, in the same form: a sweep does not follow it.
//!
//! Segments below 2048 and offsets below 512 GiB can be compressed: [`ComputeThread::check_compressible`] finds a cluster with others before a structure
//! is created in it.
//!
//! A sweep takes any word for a link. Bit 47, which is 0 in every plain address, tells it which kind of link, so it does not take small numbers or
//! plain pointers for tagged links to other objects. Nor does it take a value for a plain address: bit 46 is 0 in those of every segment.
//!
//! A [`StampedLink`](super::StampedLink) is the case of a tag that counts the stores.

use std::fmt;
use std::marker::PhantomData;

use super::link::{Exchanged, chain_with_image, exchange};
use super::{CompareExchangeError, Place, Publish, Read};
use crate::error::{self, Error, PointerFault, Result};
use crate::io::operations::*;
use crate::pointer::{Address, Guard, RemotePtr, Shared};
use crate::session::ComputeThread;
use farfield_words::{DefaultInit, Describer, Field, Initial, Pod, Remote, fingerprint};

pub(super) const TAG_SHIFT: u32 = Address::COMPRESSED_BITS;
/// The bits beside a compressed address.
const TAG_BITS: u32 = u64::BITS - TAG_SHIFT;
/// The bits of a word that say whether it holds a value, and their value then.
const FORM: u64 = 0b11 << VALUE_BITS;
const HOLDS_VALUE: u64 = 0b01 << VALUE_BITS;
/// The same of a pointer to a segment below 1024.
const HOLDS_LOW_POINTER: u64 = 0b10 << VALUE_BITS;
/// The bits of a value in place of a pointer.
const VALUE_BITS: u32 = TAG_SHIFT - 2;

/// The tag of a [`TaggedLink`]: bit fields of at most 16 bits together. `#[tag(…)]` implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the tag of a link",
    label = "is not declared by `#[tag(…)]`",
    note = "`#[tag(fingerprint: 8, size: 8)] struct SlotTag;` declares a tag"
)]
pub trait Tag: Copy + Eq + fmt::Debug + 'static {
    /// The number of its bits.
    const BITS: u32;

    /// Returns its bits.
    fn bits(self) -> u16;

    /// Makes the tag of the lowest [`BITS`](Self::BITS) bits.
    fn from_bits(bits: u16) -> Self;
}

/// An atomic pointer to a `T` in far memory, with a tag. It has no marks.
///
/// A field is declared as `TaggedLink<Node, NodeTag>`, where `NodeTag` is declared by [`#[tag(…)]`](macro@crate::tag); the operations are methods of its
/// [`Place`].
#[repr(transparent)]
pub struct TaggedLink<T, G>(u64, PhantomData<fn() -> (T, G)>);

/// The word of a tagged link, for a store: a pointer and a tag. Null without a tag by default.
pub struct TaggedWord<T, G> {
    pub(super) word: u64,
    link: PhantomData<fn() -> (T, G)>,
}

impl<T, G> TaggedWord<T, G> {
    /// Null, without a tag.
    pub const NULL: Self = Self::of(0);

    const fn of(word: u64) -> Self {
        Self { word, link: PhantomData }
    }
}

impl<T, G: Tag> TaggedWord<T, G> {
    /// Makes the word of a pointer and a tag.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if the address can not be compressed.
    pub fn new(target: RemotePtr<T>, tag: G) -> Result<Self> {
        let place = compress(target.address())?;
        let tag = tag.bits() & used_bits::<G>();
        Ok(Self::of(u64::from(tag) << TAG_SHIFT | place))
    }
}

impl<T, G> TaggedWord<T, G> {
    /// Makes it of the bits of a word in far memory.
    ///
    /// The word of a link is also an [`Atomic<u64>`](super::Atomic) at the same address, which is loaded and exchanged without a guard: a `TaggedWord` is no
    /// pointer that can be followed.
    #[inline]
    pub const fn from_bits(word: u64) -> Self {
        Self::of(word)
    }

    /// Returns the bits of the word in far memory.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.word
    }

    /// Returns the value that the word holds in place of a pointer. `None` for a pointer, also for null.
    #[inline]
    pub const fn value(self) -> Option<u64> {
        if self.word & FORM == HOLDS_VALUE { Some(self.word & ((1 << VALUE_BITS) - 1)) } else { None }
    }

    /// Returns whether the word holds a pointer that is not null.
    #[inline]
    pub const fn is_pointer(self) -> bool {
        self.word >> (TAG_SHIFT - 1) & 1 == 1
    }
}

impl<T, G: Tag> TaggedWord<T, G> {
    /// Makes the word that holds a value of 46 bits, in place of a pointer, and a tag. Higher bits of the value are ignored.
    #[inline]
    pub fn with_value(tag: G, value: u64) -> Self {
        let value = value & ((1 << VALUE_BITS) - 1) | HOLDS_VALUE;
        Self::of(u64::from(tag.bits() & used_bits::<G>()) << TAG_SHIFT | value)
    }

    /// Returns the tag.
    #[inline]
    pub fn tag(self) -> G {
        G::from_bits((self.word >> TAG_SHIFT) as u16 & used_bits::<G>())
    }
}

const fn used_bits<G: Tag>() -> u16 {
    const { assert!(G::BITS >= 1 && G::BITS <= TAG_BITS, "a tag has 1 to 16 bits") };
    (u16::MAX as u32 >> (TAG_BITS - G::BITS)) as u16
}

impl<T, G> Default for TaggedWord<T, G> {
    fn default() -> Self {
        Self::of(0)
    }
}
impl<T, G> Clone for TaggedWord<T, G> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, G> Copy for TaggedWord<T, G> {}
impl<T, G> PartialEq for TaggedWord<T, G> {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}
impl<T, G> Eq for TaggedWord<T, G> {}
impl<T, G> fmt::Debug for TaggedWord<T, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Tagged::<T, G>::from_word(self.word).fmt(f)
    }
}
impl<T, G> From<Tagged<'_, T, G>> for TaggedWord<T, G> {
    fn from(tagged: Tagged<'_, T, G>) -> Self {
        Self::of(tagged.word)
    }
}

/// The value of a tagged link: a pointer and the tag beside it.
///
/// Equality compares both, like the words in far memory.
pub struct Tagged<'g, T, G> {
    word: u64,
    guard: PhantomData<&'g ()>,
    link: PhantomData<fn() -> (T, G)>,
}

impl<'g, T, G> Tagged<'g, T, G> {
    /// Null, without a tag.
    pub const NULL: Self = Self::from_word(0);

    pub(super) const fn from_word(word: u64) -> Self {
        Self { word, guard: PhantomData, link: PhantomData }
    }

    /// Returns the pointer. Not meaningful if the link holds a [value](TaggedWord::value).
    #[inline]
    pub const fn shared(self) -> Shared<'g, T> {
        Shared::unmarked(Address::from_compressed(self.word))
    }

    /// Returns whether the pointer is null, with any tag.
    #[inline]
    pub const fn is_null(self) -> bool {
        Address::from_compressed(self.word).is_null()
    }

    /// Returns the same pointer and tag, hidden from sweeps and collections: the link keeps no object from being freed. For pointers that only show the way to objects that others
    /// hold, and that may point to freed ones. One to a segment above 1023 is not hidden.
    ///
    /// What is stored is the hidden form, so it is also what a compare-exchange expects. It must be [shown](Self::shown) before anything else is asked of it, and the link holds no
    /// [values](TaggedWord::value).
    #[inline]
    #[must_use]
    pub const fn hidden(self) -> Self {
        let is_hidden = self.word & FORM == HOLDS_LOW_POINTER;
        Self::from_word(if is_hidden { self.word ^ FORM } else { self.word })
    }

    /// Returns the pointer and tag of a link that may hold [hidden](Self::hidden) ones.
    #[inline]
    #[must_use]
    pub const fn shown(self) -> Self {
        let is_hidden = self.word & FORM == HOLDS_VALUE;
        Self::from_word(if is_hidden { self.word ^ FORM } else { self.word })
    }
}

impl<T, G: Tag> TaggedWord<T, G> {
    /// Null, with a tag.
    #[inline]
    pub fn null(tag: G) -> Self {
        Self::of(u64::from(tag.bits() & used_bits::<G>()) << TAG_SHIFT)
    }
}

impl<'g, T, G: Tag> Tagged<'g, T, G> {
    /// Makes the value of a link of a pointer and a tag.
    ///
    /// # Errors
    /// Those of [`TaggedWord::new`].
    pub fn new(target: Shared<'g, T>, tag: G) -> Result<Self> {
        Ok(Self::from_word(TaggedWord::new(target.as_ptr(), tag)?.word))
    }
}

impl<T, G: Tag> Tagged<'_, T, G> {
    /// Null, with a tag.
    #[inline]
    pub fn null(tag: G) -> Self {
        Self::from_word(TaggedWord::<T, G>::null(tag).word)
    }

    /// Makes that of a value in place of a pointer: see [`TaggedWord::with_value`].
    #[inline]
    pub fn with_value(tag: G, value: u64) -> Self {
        Self::from_word(TaggedWord::<T, G>::with_value(tag, value).word)
    }

    /// Returns the same pointer with another tag.
    #[inline]
    #[must_use]
    pub fn with_tag(self, tag: G) -> Self {
        let pointer = self.word & ((1 << TAG_SHIFT) - 1);
        Self::from_word(u64::from(tag.bits() & used_bits::<G>()) << TAG_SHIFT | pointer)
    }

    /// Returns the tag.
    #[inline]
    pub fn tag(self) -> G {
        G::from_bits((self.word >> TAG_SHIFT) as u16 & used_bits::<G>())
    }
}

impl<T, G> Clone for Tagged<'_, T, G> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, G> Copy for Tagged<'_, T, G> {}
impl<T, G> PartialEq for Tagged<'_, T, G> {
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}
impl<T, G> Eq for Tagged<'_, T, G> {}
impl<T, G> fmt::Debug for Tagged<'_, T, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:#x}", Address::from_compressed(self.word), self.word >> TAG_SHIFT)
    }
}

/// Returns the compressed address, or the error that names it.
pub(super) fn compress(address: Address) -> Result<u64> {
    let refused = error::InvalidPointer { address, fault: PointerFault::NotCompressible };
    address.compress().ok_or_else(|| Error::from(refused))
}

impl<T: Remote, G: 'static> Field for TaggedLink<T, G> {
    type Cell = Self;
    /// The initial value; null without a tag by default.
    type Init = TaggedWord<T, G>;
    type Value<'g> = Tagged<'g, T, G>;
    type Stored = Place<'static, Self>;
    type Kept<'a> = Place<'static, Self>;

    const FINGERPRINT: u64 = fingerprint::wrap("TaggedLink", fingerprint::name(T::NAME));
    const FROZEN: bool = false;

    fn describe(describer: &mut Describer) {
        describer.tagged::<T>();
    }

    fn encode(init: TaggedWord<T, G>, out: &mut [u8]) {
        Pod::encode(init.word, out);
    }
    #[inline]
    fn decode<'g>(_: Address, bytes: &[u8]) -> farfield_words::Result<Self::Value<'g>> {
        Ok(Tagged::from_word(<u64 as Pod>::decode(bytes).unwrap_or_default()))
    }
    fn store(at: Address, _: &[u8]) -> farfield_words::Result<Place<'static, Self>> {
        Ok(Place::from_address(at))
    }
    fn kept(stored: &Place<'static, Self>) -> Place<'static, Self> {
        *stored
    }
}

impl<T: Remote, G: Tag> DefaultInit for TaggedLink<T, G> {
    fn default_init() -> TaggedWord<T, G> {
        TaggedWord::default()
    }
}

impl<T, G> Initial<TaggedWord<T, G>> for Tagged<'_, T, G> {
    fn into_init(self) -> TaggedWord<T, G> {
        self.into()
    }
}

/// Operations are sequentially consistent. All fail with [`Error::InvalidPointer`] if the object is not in far memory, or a pointer to be stored can not
/// be compressed.
impl<'g, T: Remote, G: Tag> Place<'g, TaggedLink<T, G>> {
    /// Returns the link's value. One round trip.
    #[inline]
    pub fn load(self, g: &'g Guard<'_>) -> Read<'g, TaggedLink<T, G>> {
        Read::new(self.address(), g)
    }

    /// Makes the link point to `new`, with `tag`. Returns the link's new value. One round trip; two if `new` is an [`Owned`](crate::Owned) on another
    /// memory node than the link.
    pub async fn store(self, g: &'g Guard<'_>, mut new: impl Publish<T>, tag: G) -> Result<Tagged<'g, T, G>> {
        let TaggedWord { word, .. } = TaggedWord::<T, G>::new(RemotePtr::from_address(new.address()), tag)?;
        if new.image().is_none() {
            g.write_word(self.address(), word).await?;
            return Ok(Tagged::from_word(word));
        }
        new.set_published(true);
        let mut chain = chain_with_image::<T, ()>(g, self.address(), &new).await?;
        chain.write(self.address(), &[word]);
        g.submit(chain).await?;
        Ok(Tagged::from_word(word))
    }

    /// Makes the link point to `new`, with `tag`, if it holds `current`, pointer and tag.
    ///
    /// One round trip, as for [`Link`](crate::Link). If the link holds another value, the error contains that value and `new`.
    pub async fn compare_exchange<P: Publish<T>>(
        self,
        g: &'g Guard<'_>,
        current: impl Initial<TaggedWord<T, G>>,
        mut new: P,
        tag: G,
    ) -> Result<Exchanged<Tagged<'g, T, G>, P>> {
        let TaggedWord { word, .. } = TaggedWord::<T, G>::new(RemotePtr::from_address(new.address()), tag)?;
        let expected = current.into_init().word;
        let found = exchange::<T, ()>(g, self.address(), expected, word, &mut new).await?;
        Ok(if found == expected {
            Ok(Tagged::from_word(word))
        } else {
            Err(CompareExchangeError { current: Tagged::from_word(found), new })
        })
    }
}

impl ComputeThread {
    /// Checks that every address of the cluster can be compressed, as [`TaggedLink`]s and [`StampedLink`](crate::StampedLink)s need. A structure that
    /// has such links calls it before it is created. No round trip.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] with the largest address of a cluster of more than 2048 segments, or of segments of more than 512 GiB.
    pub fn check_compressible(&self) -> Result<()> {
        compress(self.heap().grid.last_word()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Bits<const N: u32>(u16);

    impl<const N: u32> Tag for Bits<N> {
        const BITS: u32 = N;
        fn bits(self) -> u16 {
            self.0
        }
        fn from_bits(bits: u16) -> Self {
            Self(bits)
        }
    }

    fn word<const N: u32>(address: Address, tag: u16) -> Result<u64> {
        TaggedWord::<(), Bits<N>>::new(RemotePtr::from_address(address), Bits(tag)).map(|word| word.word)
    }

    proptest::proptest! {
        #[test]
        fn pointers_and_tags_are_kept_and_are_found_by_a_sweep(segment in 0_u16..2048, index in 1_u64..1 << 36, tag: u16) {
            let address = Address::new(segment, index * 8);
            let narrow = word::<7>(address, tag).unwrap();
            let value = Tagged::<(), Bits<7>>::from_word(narrow);
            proptest::prop_assert_eq!((value.shared().address(), value.tag().0), (address, tag & 0x7f));
            proptest::prop_assert_eq!(farfield_words::link_target(narrow), address);
            let wide = word::<16>(address, tag).unwrap();
            let value = Tagged::<(), Bits<16>>::from_word(wide);
            proptest::prop_assert_eq!((value.shared().address(), value.tag().0), (address, tag));
            proptest::prop_assert_eq!(farfield_words::link_target(wide), address);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_hidden_pointer_leads_a_sweep_nowhere(segment in 0_u16..2048, index in 1_u64..1 << 36, tag: u16) {
            let address = Address::new(segment, index * 8);
            let shown = Tagged::<(), Bits<16>>::from_word(word::<16>(address, tag).unwrap());
            let hidden = shown.hidden();
            proptest::prop_assert_eq!(hidden.shown(), shown);
            proptest::prop_assert_eq!(hidden.tag(), shown.tag());
            let target = farfield_words::link_target(hidden.word);
            proptest::prop_assert!(if segment < 1024 { target.offset() >= 1 << 46 } else { target == address }, "{}", target);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_value_and_its_tag_are_kept_and_lead_a_sweep_nowhere(value in 0_u64..1 << 46, tag: u16) {
            let word = TaggedWord::<(), Bits<16>>::with_value(Bits(tag), value);
            proptest::prop_assert_eq!((word.value(), word.tag().0), (Some(value), tag));
            proptest::prop_assert!(!word.is_pointer());
            let target = farfield_words::link_target(word.bits());
            proptest::prop_assert!(target.offset() >= 1 << 46, "{}", target);
        }
    }

    #[test]
    fn pointers_are_no_values() {
        let null = TaggedWord::<(), Bits<16>>::null(Bits(5));
        let pointer = TaggedWord::<(), Bits<16>>::from_bits(word::<16>(Address::new(2047, 8), 5).unwrap());
        assert_eq!((null.value(), null.is_pointer()), (None, false));
        assert_eq!((pointer.value(), pointer.is_pointer()), (None, true));
    }

    #[test]
    fn a_null_link_keeps_its_tag() {
        let value = Tagged::<(), Bits<4>>::from_word(word::<4>(Address::NULL, 5).unwrap());
        assert!(value.is_null() && value.tag().0 == 5);
        assert_eq!((value.hidden(), value.shown()), (value, value));
    }
}
