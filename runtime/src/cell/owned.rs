//! `Owned<T>`: a new object that nobody else can reach.
//!
//! Its block is allocated, its bytes are still here: an *image* in local memory, edited at no cost. Publishing it
//! through a link posts the image and the link's word in one chain, so an insertion pays one round trip for both where
//! they are on one memory node. If a `compare_exchange` fails, the object comes back and can be edited again.

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
/// Made by the generated `T::new_in`. Dropping it frees it at no cost; it becomes visible to others through
/// [`Place<Link<T>>::store`](crate::Place::store), `compare_exchange`, or [`Owned::write`].
pub struct Owned<T> {
    block: Block,
    image: Vec<u64>,
    heap: Rc<ThreadHeap>,
    /// Where it is among what the thread holds.
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

    /// Where the object will be.
    pub fn as_ptr(&self) -> RemotePtr<T> {
        RemotePtr::from_address(self.block.address)
    }

    /// Changes a field before publication, at no cost.
    ///
    /// `field` names it through its accessor: `owned.set(|node| node.next(), head)`. A field of another object, or one
    /// past the image, is left alone and reported.
    ///
    /// # Panics
    /// If `field` gives the place of another object's field.
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

    /// Writes the object to far memory with one WRITE and gives its plain pointer, as for a structure's root object.
    ///
    /// # Errors
    /// Those of a WRITE.
    pub async fn write(mut self, ct: &ComputeThread) -> Result<RemotePtr<T>> {
        // Once posted, the block must not be freed under the WRITE, whatever becomes of this future.
        self.published = true;
        self.heap.holdings.wrote(self.block.address);
        ct.write_words(self.block.address, &self.image).await?;
        Ok(self.as_ptr())
    }
}

impl<T> Owned<T> {
    /// Counts as unpublished again: no link holds it, and nothing that writes it is in flight.
    pub(crate) fn set_unpublished(&mut self) {
        self.published = false;
    }

    /// Counts as published from now on; gives the block and what is to be written there.
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

/// What a link with marks `M` can be made to point to: a [`Shared`] from such a link or without named marks, a
/// [`RemotePtr`], or an [`Owned`] object, which is thereby published.
#[diagnostic::on_unimplemented(
    message = "a link to `{T}` cannot be made to hold this",
    label = "is no `Owned`, `RemotePtr` or `Shared` to what the link points to, or has the marks of another link",
    note = "a pointer from a link with other marks is stored without them: `pointer.without_marks()`"
)]
pub trait Publish<T: Remote, M = ()>: sealed::Sealed<T, M> {}

pub(crate) mod sealed {
    use crate::pointer::{Address, Marks, RemotePtr, Shared};
    use farfield_words::Remote;

    pub trait Sealed<T: Remote, M>: Sized {
        /// The word that the link is to hold.
        fn word(&self) -> u64;
        /// The address in it.
        fn address(&self) -> Address;
        /// The object's image, to be written before the link.
        fn image(&self) -> Option<(Address, &[u64])> {
            None
        }
        /// Says whether a link holds it, or may because the operation is in flight: it is then not freed with this
        /// value.
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
