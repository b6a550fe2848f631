//! The host fabric: far memory is memory of this process, and every operation completes in the call that posts it.
//!
//! Segments are in one mapping at equal distances, so finding a word is arithmetic, not a table look-up: a step of pointer chasing costs a few cycles
//! with several segments, none with one, and no load. All accesses go through `AtomicU64`, so they are free of data races by construction.
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
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

pub use alarm::{Alarm, Alarms, Moment};
pub use arena::Arena;
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

    /// Reads words from `at` on into `into`, in address order.
    #[inline]
    pub fn read<'a>(&self, at: Address, into: &'a mut [MaybeUninit<u64>]) -> Result<&'a [u64]> {
        let source = self.arena.words(at, into.len())?;
        for (to, from) in into.iter_mut().zip(source) {
            to.write(from.load(Ordering::SeqCst));
        }
        // SAFETY: `Arena::words` returns exactly as many words as it is asked for, so `zip` ends with `into`, each of whose elements the loop has
        // written. `MaybeUninit<u64>` has the layout of `u64`. The mutable borrow of `into` lasts as long as the returned slice, so no code can make
        // an element uninitialised again while it is read.
        Ok(unsafe { &*(std::ptr::from_ref::<[MaybeUninit<u64>]>(into) as *const [u64]) })
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

    /// Executes a chain in program order. Stops at the first operation with an invalid address.
    pub fn execute(&self, chain: &mut RawChain) -> Result<()> {
        let (ops, words) = chain.parts();
        for op in ops {
            match op {
                Op::Read { at, slot, .. } => {
                    let source = self.arena.words(*at, slot.len())?;
                    for (to, from) in words[slot.clone()].iter_mut().zip(source) {
                        *to = from.load(Ordering::SeqCst);
                    }
                }
                Op::Write { at, slot, replaces: true } => {
                    self.compare_exchange(*at, words[slot.start - 1], words[slot.start])?;
                }
                Op::Write { at, slot, replaces: false } => self.write(*at, &words[slot.clone()])?,
                Op::CompareExchange { at, expected, new, slot } => {
                    words[*slot] = self.compare_exchange(*at, *expected, *new)?;
                }
                Op::FetchAdd { at, addend, slot } => words[*slot] = self.fetch_add(*at, *addend)?,
            }
        }
        Ok(())
    }
}

impl Endpoint for Host {
    #[inline]
    fn post(&self, mut chain: RawChain, _: u32) -> Posted {
        let result = self.execute(&mut chain);
        Posted::Done(chain, result)
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
