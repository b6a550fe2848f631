//! `Owned<T>`: a new object that no other thread can reach.
//!
//! Its block is allocated; its bytes are still local: an *image*, which is edited at no cost. Publishing the object through a link posts the image
//! and the link's word in one chain, so an insertion pays one round trip for both if they are on one memory node. A failed `compare_exchange` returns
//! the object, which can be edited and retried.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::Place;
use crate::error::Result;
use crate::io::at_first_poll;
use crate::io::operations::*;
use crate::memory::heap::ThreadHeap;
use crate::memory::holdings::Content;
use crate::memory::image::Image;
use crate::memory::placement::Target;
use crate::pointer::Site;
use crate::pointer::{Address, Marks, MaybeMarks, RemotePtr, Shared};
use crate::session::ComputeThread;
use farfield_fabric::host::Host;
use farfield_words::Block;
use farfield_words::{Field, Initial, Remote, WORD_BYTES};

const HAS_IMAGE: &str = "an object has its image until it is dropped";

/// An object that is allocated and initialised but not yet published.
///
/// Made by the generated `T::new_in`. Dropping it frees its block without a round trip. It becomes visible to other threads through
/// [`Place<Link<T>>::store`](crate::Place::store), `compare_exchange`, or [`Owned::write`].
pub struct Owned<T> {
    /// `None` once the object is dropped. In a box, so that an `Owned` has two words.
    image: Option<Box<Image>>,
    heap: Rc<ThreadHeap>,
    object: PhantomData<fn() -> T>,
}

/// The bytes of a new object.
#[inline]
fn bytes_of<T: Remote>(init: &T::Init) -> u64 {
    T::SIZE.saturating_add(T::tail_bytes(init)).next_multiple_of(WORD_BYTES) as u64
}

impl<T: Remote> Owned<T> {
    /// Builds the image of an object in a new block.
    #[inline]
    fn build(heap: &Rc<ThreadHeap>, block: Block, init: T::Init) -> Self {
        let bytes = bytes_of::<T>(&init) as usize;
        heap.note_allocated::<T>(block, bytes);
        let mut image = heap.images.take(bytes / WORD_BYTES);
        T::encode(init, bytemuck::cast_slice_mut(&mut image));
        image.block = block;
        image.held = heap.holdings.hold(block.address, Content::Unwritten);
        image.is_published = false;
        Self { image: Some(image), heap: Rc::clone(heap), object: PhantomData }
    }

    /// Returns the object's address in far memory.
    #[inline]
    pub fn as_ptr(&self) -> RemotePtr<T> {
        RemotePtr::from_address(self.image().block.address)
    }

    /// Changes a field before publication. No round trip.
    ///
    /// `field` names it by its accessor: `owned.set(|node| node.next(), head)`.
    ///
    /// # Panics
    /// If `field` returns a place outside the object.
    pub fn set<F: Field>(
        &mut self,
        field: impl FnOnce(&T::Fields<'static>) -> Place<'static, F>,
        value: impl Initial<F::Init>,
    ) {
        let address = self.image().block.address;
        let at = field(T::fields(&address)).address();
        let offset = at.bits().checked_sub(address.bits()).and_then(|offset| usize::try_from(offset).ok());
        let image: &mut [u8] = bytemuck::cast_slice_mut(self.image_mut());
        let field = offset
            .and_then(|offset| image.get_mut(offset..))
            .filter(|bytes| bytes.len() >= size_of::<F::Cell>());
        let field = field.expect("the closure given to `Owned::set` names a field of the object itself");
        F::encode(value.into_init(), field);
    }

    /// Writes the object to far memory with one WRITE. Returns its plain pointer, for example for a structure's root object.
    ///
    /// # Errors
    /// Those of a WRITE.
    #[inline]
    pub fn write(self, ct: &ComputeThread) -> impl Future<Output = Result<RemotePtr<T>>> {
        at_first_poll(
            move || match ct.io.endpoint.immediate() {
                Some(host) => Ok(self.write_here(ct, host)),
                None => Err(self),
            },
            move |object| object.write_far(ct),
        )
    }

    /// Executes the WRITE, on an immediate fabric.
    fn write_here(mut self, ct: &ComputeThread, host: &Host) -> Result<RemotePtr<T>> {
        self.heap.holdings.note_written(self.image().block.address);
        self.image_mut().is_published = true;
        let (at, words) = self.written();
        ct.write_here(host, at, words)?;
        Ok(RemotePtr::from_address(at))
    }

    async fn write_far(mut self, ct: &ComputeThread) -> Result<RemotePtr<T>> {
        // Once the WRITE is posted, the block must not be freed under it, whether or not this future is dropped.
        let (block, _) = self.publish();
        self.heap.holdings.note_written(block.address);
        ct.write_words(block.address, self.image()).await?;
        Ok(self.as_ptr())
    }
}

impl<T> Owned<T> {
    #[inline]
    fn image(&self) -> &Image {
        self.image.as_deref().expect(HAS_IMAGE)
    }

    #[inline]
    fn image_mut(&mut self) -> &mut Image {
        self.image.as_deref_mut().expect(HAS_IMAGE)
    }

    /// Marks the object as unpublished again: no link holds it, and no WRITE of it is in flight.
    #[inline]
    pub(crate) fn set_unpublished(&mut self) {
        self.image_mut().is_published = false;
    }
}

impl<T: Remote> Owned<T> {
    /// Returns the address and the words of the WRITE of the object.
    #[inline]
    pub(crate) fn written(&self) -> (Address, &[u64]) {
        let image = self.image();
        // A constant number of words, unless there is a tail.
        let words = if T::TAIL_STRIDE == 0 { image.first(T::SIZE / WORD_BYTES) } else { image };
        (image.block.address, words)
    }

    /// Returns the words of the object's image, to be changed.
    #[inline]
    pub(crate) fn unpublished_words(&mut self) -> &mut [u64] {
        self.image_mut()
    }

    /// Marks the object as published. Returns its block and the words of its WRITE.
    #[inline]
    pub(crate) fn publish(&mut self) -> (Block, &[u64]) {
        let image = self.image_mut();
        image.is_published = true;
        let block = image.block;
        (block, self.written().1)
    }
}

impl<T> Drop for Owned<T> {
    #[inline]
    fn drop(&mut self) {
        let Some(image) = self.image.take() else { return };
        self.heap.holdings.release(image.held);
        if !image.is_published {
            self.heap.free_unpublished(image.block);
        }
        self.heap.images.put(image);
    }
}

impl<T> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({})", self.image().block.address)
    }
}

/// A new object: the future of the generated `T::new_in`.
///
/// If the thread's own lists have a block, the call itself allocates the object and builds its image, and the future is ready. Otherwise the future
/// allocates. Dropping it frees the object.
#[must_use = "a new object is allocated to be published"]
pub struct NewObject<'a, T: Remote>(State<'a, T>);

enum State<'a, T: Remote> {
    Ready(Owned<T>),
    Waits(Allocation<'a, T>),
    Returned,
}

/// An allocation that waits.
type Allocation<'a, T> = Pin<Box<dyn Future<Output = Result<Owned<T>>> + 'a>>;

// Nothing is pinned in place: an allocation that waits is in a box.
impl<T: Remote> Unpin for NewObject<'_, T> {}

impl<'a, T: Remote> NewObject<'a, T> {
    /// Allocates a block and builds the object's image. See the generated `T::new_in`.
    #[inline(always)]
    #[allow(clippy::inline_always)] // or the initial value is copied through memory
    pub(crate) fn new(site: Site<'a>, init: T::Init) -> Self {
        const { T::PROVEN };
        let Site { ct, placement } = site;
        if ct.heap().is_observed {
            ct.free_eagerly();
        }
        if ct.has_retired_too_much() {
            return Self(State::Waits(Self::wait(site, init, None)));
        }
        let (heap, bytes) = (ct.heap(), bytes_of::<T>(&init));
        let target = heap.choose_target(ct, placement);
        match heap.allocate_from_lists(target, bytes, T::ALIGN as u64) {
            Some(block) => Self(State::Ready(Owned::build(heap, block, init))),
            None => Self(State::Waits(Self::wait(site, init, Some(target)))),
        }
    }

    /// Allocates where that may take round trips. `target` is the one whose lists have no block; `None` if the thread has retired too much.
    ///
    /// Returned in registers, so that the caller's `NewObject` is in registers, too. Written in parts and copied as a whole, it would stall the processor.
    #[cold]
    fn wait(Site { ct, placement }: Site<'a>, init: T::Init, target: Option<Target>) -> Allocation<'a, T> {
        Box::pin(async move {
            let (heap, bytes, align) = (ct.heap(), bytes_of::<T>(&init), T::ALIGN as u64);
            let (target, block) = if let Some(target) = target {
                (target, None)
            } else {
                ct.check_retired().await?;
                let target = heap.choose_target(ct, placement);
                (target, heap.allocate_from_lists(target, bytes, align))
            };
            let block = match block {
                Some(block) => block,
                None => heap.allocate(ct, target, bytes, align).await?,
            };
            Ok(Owned::build(heap, block, init))
        })
    }
}

impl<T: Remote> Future for NewObject<'_, T> {
    type Output = Result<Owned<T>>;

    #[inline(always)]
    #[allow(clippy::inline_always)] // or the object is copied through memory
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match std::mem::replace(&mut self.0, State::Returned) {
            State::Ready(object) => Poll::Ready(Ok(object)),
            State::Waits(mut allocation) => {
                let polled = allocation.as_mut().poll(context);
                if polled.is_pending() {
                    self.0 = State::Waits(allocation);
                }
                polled
            }
            State::Returned => panic!("the object was returned by an earlier poll"),
        }
    }
}

impl<T: Remote> fmt::Debug for NewObject<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewObject").finish_non_exhaustive()
    }
}

/// A value that a link with marks `M` can hold: a [`Shared`] from such a link or without named marks, a [`RemotePtr`], or an [`Owned`], which the
/// store publishes.
#[diagnostic::on_unimplemented(
    message = "a link to `{T}` cannot hold this value",
    label = "not an `Owned`, `RemotePtr` or `Shared` of the link's type, or a pointer with the marks of another link",
    note = "a pointer from a link with other marks is stored without them: `pointer.without_marks()`"
)]
pub trait Publish<T: Remote, M: MaybeMarks = ()>: sealed::Sealed<T, M> {}

pub(crate) mod sealed {
    use crate::pointer::{Address, Marks, MaybeMarks, RemotePtr, Shared};
    use farfield_words::Remote;

    pub trait Sealed<T: Remote, M: MaybeMarks>: Sized {
        /// Returns the link's new word.
        fn word(&self) -> u64;
        /// Returns the address in that word.
        fn address(&self) -> Address;
        /// Returns the object's image, which must be written before the link.
        fn image(&self) -> Option<(Address, &[u64])> {
            None
        }
        /// Sets whether a link holds the object, or may hold it because the operation is in flight. Dropping this value frees the object only
        /// otherwise.
        fn set_published(&mut self, published: bool) {
            let _ = published;
        }
    }

    impl<T: Remote, M: MaybeMarks> Sealed<T, M> for RemotePtr<T> {
        fn word(&self) -> u64 {
            (*self).address().bits()
        }
        fn address(&self) -> Address {
            (*self).address()
        }
    }

    impl<T: Remote, M: MaybeMarks> Sealed<T, M> for Shared<'_, T, M> {
        fn word(&self) -> u64 {
            self.to_word()
        }
        fn address(&self) -> Address {
            (*self).address()
        }
    }

    impl<T: Remote, M: Marks> Sealed<T, M> for Shared<'_, T> {
        fn word(&self) -> u64 {
            self.to_word()
        }
        fn address(&self) -> Address {
            (*self).address()
        }
    }

    impl<T: Remote, M: MaybeMarks> Sealed<T, M> for super::Owned<T> {
        #[inline]
        fn word(&self) -> u64 {
            self.image().block.address.bits()
        }
        #[inline]
        fn address(&self) -> Address {
            self.image().block.address
        }
        #[inline]
        fn image(&self) -> Option<(Address, &[u64])> {
            Some(self.written())
        }
        #[inline]
        fn set_published(&mut self, published: bool) {
            self.image_mut().is_published = published;
        }
    }
}

impl<T: Remote, M: MaybeMarks> Publish<T, M> for RemotePtr<T> {}
impl<T: Remote, M: MaybeMarks> Publish<T, M> for Shared<'_, T, M> {}
impl<T: Remote, M: Marks> Publish<T, M> for Shared<'_, T> {}
impl<T: Remote, M: MaybeMarks> Publish<T, M> for Owned<T> {}
