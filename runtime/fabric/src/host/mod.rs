//! The host fabric: far memory is memory of this process, and every operation completes in the call that posts it.
//!
//! Segments are in one mapping at equal distances, so finding a word is arithmetic, not a table look-up: a step of pointer chasing costs a few cycles
//! with several segments, none with one, and no load. All accesses go through `AtomicU64`, so they are free of data races by construction.
//!
//! # The order of a READ
//!
//! A READ of several words promises: each word is one that was written as a whole; and a later word is no older than an earlier one, so that a reader
//! that finds a version unchanged in the last word has read the words before it. Both need an atomic load for each word, and an order between the
//! loads: `SeqCst`, since a READ of one word is such a load, too, and all single operations have one order. On x86-64 this is the cheapest code
//! that keeps the promise. Any atomic load is a plain `mov` there, and the processor keeps loads in order, so `SeqCst` costs nothing more
//! than `Relaxed` would; and neither order may be merged into loads of vectors, of which the architecture promises neither the words' atomicity nor their
//! order. So a READ costs a load and a store for each word. On other processors `SeqCst` loads take the instruction that the order needs (`ldar`).
//!
//! | module | contents |
//! |---|---|
//! | `arena` | the mapping of all segments, and its bounds check |
//! | `delayed` | the same memory with delayed completions, for tests |
//! | `sealed` | shared memory whose size no process can change |
//! | `available` | the memory that the system can still give |
//! | `spawn` | compute threads and background threads |
//! | `alarm` | timers that wake wakers |

mod alarm;
mod arena;
#[cfg(target_os = "linux")]
mod available;
mod delayed;
#[cfg(target_os = "linux")]
mod sealed;
mod spawn;

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

pub use alarm::{Alarm, Alarms, Moment};
pub use arena::{Arena, Window};
pub use delayed::Delayed;
#[cfg(target_os = "linux")]
pub use sealed::{SealedMemory, SharedMemoryError};
pub use spawn::{BackgroundThread, StopSignal, ThreadReservation, first_line, run_threads};

use crate::chain::{Op, RawChain};
use crate::error::Result;
use crate::{Endpoint, Posted, Ticket};
use farfield_words::Address;

/// Puts the calling thread to sleep for a duration.
pub fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Loads words into `into`, in address order: see [the module](self#the-order-of-a-read).
///
/// # Panics
/// If there are fewer words in `into`.
#[inline]
pub fn load<'a>(words: &[AtomicU64], into: &'a mut [MaybeUninit<u64>]) -> &'a [u64] {
    let into = &mut into[..words.len()];
    for (to, word) in into.iter_mut().zip(words) {
        to.write(word.load(Ordering::SeqCst));
    }
    // SAFETY: `into` is as long as `words`, so `zip` ends with both, and the loop has written each element of `into`. `MaybeUninit<u64>` has the layout
    // of `u64`. The mutable borrow of `into` lasts as long as the returned slice, so no code can make an element uninitialised again while it is
    // read.
    unsafe { &*(std::ptr::from_ref::<[MaybeUninit<u64>]>(into) as *const [u64]) }
}

/// One thread's access to the host's memory.
#[derive(Clone)]
pub struct Host {
    arena: Arc<Arena>,
}

impl Host {
    /// Makes a thread's access to this memory.
    pub fn new(arena: Arc<Arena>) -> Self {
        Self { arena }
    }

    /// Returns the view through which the thread reads a few words.
    pub fn window(&self) -> Window {
        Window::of(&self.arena)
    }

    /// Returns the `count` words from `at` on.
    #[inline]
    pub fn words(&self, at: Address, count: usize) -> Result<&[AtomicU64]> {
        self.arena.words(at, count)
    }

    /// Reads a word.
    #[inline]
    pub fn read_word(&self, at: Address) -> Result<u64> {
        Ok(self.arena.word(at)?.load(Ordering::SeqCst))
    }

    /// Writes words in address order: each is visible after those before it.
    #[inline]
    pub fn write(&self, at: Address, words: &[u64]) -> Result<()> {
        let target = self.arena.words(at, words.len())?;
        let order = if words.len() == 1 { Ordering::SeqCst } else { Ordering::Release };
        for (to, from) in target.iter().zip(words) {
            to.store(*from, order);
        }
        Ok(())
    }

    /// Compares and exchanges a word. Returns the previous value.
    #[inline]
    pub fn compare_exchange(&self, at: Address, expected: u64, new: u64) -> Result<u64> {
        let word = self.arena.word(at)?;
        Ok(match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(old) | Err(old) => old,
        })
    }

    /// Adds to a word. Returns the previous value.
    #[inline]
    pub fn fetch_add(&self, at: Address, addend: u64) -> Result<u64> {
        Ok(self.arena.word(at)?.fetch_add(addend, Ordering::SeqCst))
    }

    /// Executes a chain in program order. Stops at the first operation with an invalid address. Returns the number of CAS operations that failed.
    pub fn execute(&self, chain: &mut RawChain) -> Result<u64> {
        let mut failed = 0;
        let (ops, words) = chain.parts();
        for op in ops {
            match op {
                Op::Read { at, slot, .. } => {
                    let source = self.arena.words(*at, slot.words())?;
                    for (to, from) in words[slot.range()].iter_mut().zip(source) {
                        *to = from.load(Ordering::SeqCst);
                    }
                }
                Op::Write { at, slot, replaces: true } => {
                    self.compare_exchange(*at, words[slot.start() - 1], words[slot.start()])?;
                }
                Op::Write { at, slot, replaces: false } => self.write(*at, &words[slot.range()])?,
                Op::CompareExchange { at, expected, new, slot } => {
                    let found = self.compare_exchange(*at, *expected, *new)?;
                    failed += u64::from(found != *expected);
                    words[*slot as usize] = found;
                }
                Op::FetchAdd { at, addend, slot } => words[*slot as usize] = self.fetch_add(*at, *addend)?,
            }
        }
        Ok(failed)
    }
}

impl Endpoint for Host {
    #[inline]
    fn post(&self, mut chain: RawChain, _: u32) -> Posted {
        let result = self.execute(&mut chain);
        Posted::Done(chain, result.map(drop))
    }

    fn poll(&self, _: Ticket) -> Poll<(RawChain, Result<()>)> {
        unreachable!("the host fabric leaves no chain in flight")
    }

    fn forget(&self, _: Ticket) {
        unreachable!("the host fabric leaves no chain in flight")
    }

    #[inline]
    fn is_asynchronous(&self) -> bool {
        false
    }

    fn is_underway(&self) -> bool {
        false
    }

    fn now(&self) -> Duration {
        self.arena.mapped.elapsed()
    }

    fn idle(&self) {
        std::thread::yield_now();
    }
}
