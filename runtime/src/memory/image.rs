//! Images: the words of an object before they are in far memory, in buffers that a thread reuses.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

use farfield_words::{Address, Block};

/// The number of buffers that a thread keeps besides the one that was used last.
const MAX_IMAGES: usize = 7;

/// The number of words of an image that needs no buffer of its own.
const SMALL: usize = 8;

/// A buffer for an object's words; of an unpublished object also what must be undone if it is dropped.
pub(crate) struct Image {
    len: usize,
    /// The words, if there are at most [`SMALL`].
    small: [u64; SMALL],
    /// Otherwise the first of these.
    large: Vec<u64>,
    /// The object's block.
    pub(crate) block: Block,
    /// Its index in the thread's table of unpublished objects.
    pub(crate) held: u32,
    /// True if a link may hold the object, or a WRITE of it may be in flight.
    pub(crate) is_published: bool,
}

impl Default for Image {
    fn default() -> Self {
        let block = Block { address: Address::NULL, bytes: 0 };
        Self { len: 0, small: [0; SMALL], large: Vec::new(), block, held: 0, is_published: true }
    }
}

impl Image {
    /// Its first words. If their number is a constant, so is the place of small ones.
    ///
    /// # Panics
    /// If the image is shorter.
    #[inline]
    pub(crate) fn first(&self, words: usize) -> &[u64] {
        if words <= SMALL { &self.small[..words] } else { &self.large[..words] }
    }

    #[inline]
    fn first_mut(&mut self, words: usize) -> &mut [u64] {
        if words <= SMALL { &mut self.small[..words] } else { &mut self.large[..words] }
    }

    #[inline(never)]
    fn grow(&mut self, words: usize) {
        if self.large.len() < words {
            self.large.resize(words, 0);
        }
    }
}

impl Deref for Image {
    type Target = [u64];
    #[inline]
    fn deref(&self) -> &[u64] {
        self.first(self.len)
    }
}

impl DerefMut for Image {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        self.first_mut(self.len)
    }
}

/// A thread's unused images.
#[derive(Default)]
pub(crate) struct Images {
    /// The one that was used last.
    last: Cell<Option<Box<Image>>>,
    #[allow(clippy::vec_box)] // an object keeps its box
    others: RefCell<Vec<Box<Image>>>,
}

#[allow(clippy::unnecessary_box_returns)] // an object keeps its box
impl Images {
    /// Returns an image of `words` zero words.
    #[inline]
    pub(crate) fn take(&self, words: usize) -> Box<Image> {
        let mut image = self.last.take().unwrap_or_else(|| self.take_other());
        if words > SMALL {
            image.grow(words);
        }
        image.len = words;
        image.first_mut(words).fill(0);
        image
    }

    /// Keeps an image for its buffer.
    #[inline]
    pub(crate) fn put(&self, image: Box<Image>) {
        if let Some(other) = self.last.replace(Some(image)) {
            self.put_other(other);
        }
    }

    #[cold]
    fn take_other(&self) -> Box<Image> {
        self.others.borrow_mut().pop().unwrap_or_default()
    }

    #[cold]
    fn put_other(&self, image: Box<Image>) {
        let mut others = self.others.borrow_mut();
        if others.len() < MAX_IMAGES {
            others.push(image);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_image_is_zero_again_whatever_its_length() {
        let images = Images::default();
        for words in [3, 100, 8, 1, 9, 50, 5] {
            let mut image = images.take(words);
            assert_eq!(image[..], vec![0; words][..]);
            image.fill(u64::MAX);
            images.put(image);
        }
    }

    #[test]
    fn a_thread_keeps_a_few_buffers() {
        let images = Images::default();
        let taken: Vec<_> = (0..2 * MAX_IMAGES).map(|_| images.take(4)).collect();
        let buffers: Vec<_> = taken.iter().map(|image| image.as_ptr()).collect();
        for image in taken {
            images.put(image);
        }
        let again: Vec<_> = (0..=MAX_IMAGES).map(|_| images.take(4)).collect();
        assert!(again.iter().all(|image| buffers.contains(&image.as_ptr())), "no buffer is allocated");
        assert!(images.others.borrow().is_empty());
    }
}
