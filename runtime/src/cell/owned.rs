//! `Owned<T>`: a new object that no other thread can reach.
//!
//! Its block is allocated; its bytes are still local: an *image*, which is edited at no cost. Publishing the object through a link posts the image
//! and the link's word in one chain, so an insertion pays one round trip for both if they are on one memory node. A failed `compare_exchange` returns
//! the object, which can be edited and retried.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use super::Place;
use crate::error::Result;
use crate::io::operations::*;
use crate::memory::heap::ThreadHeap;
use crate::memory::holdings::Content;
use crate::pointer::Site;
use crate::pointer::{Marks, RemotePtr, Shared};
use crate::session::ComputeThread;
use farfield_words::Block;
use farfield_words::{Field, Initial, Remote, WORD_BYTES};

/// An object that is allocated and initialised but not yet published.
///
/// Made by the generated `T::new_in`. Dropping it frees its block without a round trip. It becomes visible to other threads through
/// [`Place<Link<T>>::store`](crate::Place::store), `compare_exchange`, or [`Owned::write`].
pub struct Owned<T> {
    block: Block,
    image: Vec<u64>,
    heap: Rc<ThreadHeap>,
    /// Its index in the thread's table of unpublished objects.
    held: u32,
    published: bool,
    object: PhantomData<fn() -> T>,
}

impl<T: Remote> Owned<T> {
    /// Allocates a block and builds the object's image. See the generated `T::new_in`.
    pub(crate) async fn new(Site { ct, placement }: Site<'_>, init: T::Init) -> Result<Self> {
        const { T::PROVEN };
        let heap = ct.heap();
        ct.check_retired().await?;
        let bytes = T::SIZE.saturating_add(T::tail_bytes(&init)).next_multiple_of(WORD_BYTES);
        let target = heap.choose_target(ct, placement);
        let block = match heap.allocate_from_lists(target, bytes as u64, T::ALIGN as u64) {
            Some(block) => block,
            None => heap.allocate(ct, target, bytes as u64, T::ALIGN as u64).await?,
        };
        heap.note_allocated::<T>(block, bytes);
        let mut image = heap.take_image(bytes / WORD_BYTES);
        T::encode(init, bytemuck::cast_slice_mut(&mut image));
        let held = heap.holdings.hold(block.address, Content::Unwritten);
        Ok(Self { block, image, heap: Rc::clone(heap), held, published: false, object: PhantomData })
    }

    /// Returns the object's address in far memory.
    pub fn as_ptr(&self) -> RemotePtr<T> {
        RemotePtr::from_address(self.block.address)
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
        let address = self.block.address;
        let at = field(T::fields(&address)).address();
        let offset = at.bits().checked_sub(address.bits()).and_then(|offset| usize::try_from(offset).ok());
        let image: &mut [u8] = bytemuck::cast_slice_mut(&mut self.image);
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
    pub async fn write(mut self, ct: &ComputeThread) -> Result<RemotePtr<T>> {
        // Once the WRITE is posted, the block must not be freed under it, whether or not this future is dropped.
        self.published = true;
        self.heap.holdings.note_written(self.block.address);
        ct.write_words(self.block.address, &self.image).await?;
        Ok(self.as_ptr())
    }
}

impl<T> Owned<T> {
    /// Marks the object as unpublished again: no link holds it, and no WRITE of it is in flight.
    pub(crate) fn set_unpublished(&mut self) {
        self.published = false;
    }

    /// Marks the object as published. Returns its block and its image.
    pub(crate) fn publish(&mut self) -> (Block, &[u64]) {
        self.published = true;
        (self.block, &self.image)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        self.heap.holdings.release(self.held);
        if !self.published {
            self.heap.free(self.block);
        }
        self.heap.return_image(std::mem::take(&mut self.image));
    }
}

impl<T> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({})", self.block.address)
    }
}

/// A value that a link with marks `M` can hold: a [`Shared`] from such a link or without named marks, a [`RemotePtr`], or an [`Owned`], which the
/// store publishes.
#[diagnostic::on_unimplemented(
    message = "a link to `{T}` cannot hold this value",
    label = "not an `Owned`, `RemotePtr` or `Shared` of the link's type, or a pointer with the marks of another link",
    note = "a pointer from a link with other marks is stored without them: `pointer.without_marks()`"
)]
pub trait Publish<T: Remote, M = ()>: sealed::Sealed<T, M> {}

pub(crate) mod sealed {
    use crate::pointer::{Address, Marks, RemotePtr, Shared};
    use farfield_words::Remote;

    pub trait Sealed<T: Remote, M>: Sized {
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

    impl<T: Remote, M> Sealed<T, M> for RemotePtr<T> {
        fn word(&self) -> u64 {
            (*self).address().bits()
        }
        fn address(&self) -> Address {
            (*self).address()
        }
    }

    impl<T: Remote, M> Sealed<T, M> for Shared<'_, T, M> {
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

    impl<T: Remote, M> Sealed<T, M> for super::Owned<T> {
        fn word(&self) -> u64 {
            self.block.address.bits()
        }
        fn address(&self) -> Address {
            self.block.address
        }
        fn image(&self) -> Option<(Address, &[u64])> {
            Some((self.block.address, &self.image))
        }
        fn set_published(&mut self, published: bool) {
            self.published = published;
        }
    }
}

impl<T: Remote, M> Publish<T, M> for RemotePtr<T> {}
impl<T: Remote, M> Publish<T, M> for Shared<'_, T, M> {}
impl<T: Remote, M: Marks> Publish<T, M> for Shared<'_, T> {}
impl<T: Remote, M> Publish<T, M> for Owned<T> {}
