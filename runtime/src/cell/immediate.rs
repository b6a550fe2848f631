//! `Immediate<T>`: a word that its thread accesses without futures, where far memory is memory of this process.
//!
//! There an operation is over when its future is first polled. So a structure may execute its operations by calls, in a function that is not `async`: its variables stay in registers, and the
//! fabric and the address are checked once for each word. On another fabric the structure awaits the same operations.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::atomic::from_word;
use super::{Atomic, Place};
use crate::error::Result;
use crate::io::operations::*;
use crate::memory::worker::Worker;
use crate::session::ComputeThread;
use farfield_words::{Address, Word};

/// The words of a cache line.
const LINE_WORDS: usize = 8;

/// A word that a thread accesses without waiting: see [`Place::immediate`].
///
/// The operations are those of the [`Place`]: sequentially consistent, and counted by [`ComputeThread::metrics`].
pub struct Immediate<'t, T> {
    ct: &'t Worker,
    at: Address,
    word: &'t AtomicU64,
    value: PhantomData<fn() -> T>,
}

impl<T: Word> Place<'_, Atomic<T>> {
    /// Returns the word where operations are over when they are posted: see [`ComputeThread::is_immediate`]. `None` on another fabric, and if the object is not in far memory.
    ///
    /// ```
    /// # use farfield::prelude::*;
    /// # #[remote]
    /// # struct Counter {
    /// #     count: Atomic<u64>,
    /// # }
    /// # async fn increments(counter: Counter, ct: &ComputeThread) -> farfield::Result<()> {
    /// // Without a future where that is possible.
    /// let old = match counter.count().immediate(ct) {
    ///     Some(count) => count.compare_exchange(1, 2)?,
    ///     None => counter.count().compare_exchange(ct, 1, 2).await?,
    /// };
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn immediate(self, ct: &ComputeThread) -> Option<Immediate<'_, T>> {
        let (at, ct) = (self.address(), ct.worker());
        Some(Immediate { ct, at, word: ct.word_here(at)?, value: PhantomData })
    }
}

impl<T: Word> Immediate<'_, T> {
    /// Returns the value.
    ///
    /// # Errors
    /// [`Error::InvalidValue`](crate::Error::InvalidValue) if the bits encode no `T`.
    #[inline]
    pub fn load(&self) -> Result<T> {
        self.ct.count_read(1);
        Ok(from_word(self.at, self.word.load(Ordering::SeqCst))?)
    }

    /// Asks the processor to load so many words into its cache, from this one on. A hint: it changes nothing but time, and is not counted.
    #[inline]
    pub fn prefetch(&self, words: usize) {
        let first = std::ptr::from_ref(self.word);
        for line in (0..words).step_by(LINE_WORDS).chain(words.checked_sub(1)) {
            farfield_fabric::prefetch_line(first.wrapping_add(line).cast());
        }
    }

    /// Replaces the value by `new` if it is `current`. Returns the previous value, as `Ok` if it was replaced.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    #[inline]
    pub fn compare_exchange(&self, current: T, new: T) -> Result<std::result::Result<T, T>> {
        let (expected, new) = (current.to_word(), new.to_word());
        self.ct.writes_words(&[new]);
        let (exchanged, found) =
            match self.word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(found) => (true, found),
                Err(found) => (false, found),
            };
        self.ct.count_exchange(!exchanged);
        let old = from_word(self.at, found)?;
        Ok(if exchanged { Ok(old) } else { Err(old) })
    }
}
