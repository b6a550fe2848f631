//! The host fabric: far memory is memory of this process, and every operation completes in the call that posts it.
//!
//! Segments are in one mapping at equal distances, so finding a word is arithmetic, not a table look-up: it costs a few cycles and no load, and
//! a step of pointer chasing in one segment not even these ([`Window`]). All accesses are atomic, so they are free of data races by construction.
//!
//! # The order of a READ
//!
//! A READ of several words promises: each word is one that was written as a whole; and a later word is no older than an earlier one, so that a reader
//! that finds a version unchanged in the last word has read the words before it. Both need an atomic load for each word, and an order between the
//! loads: `SeqCst`, since a READ of one word is such a load, too, and all single operations have one order. On x86-64 this is the cheapest code
//! that keeps the promise for a few words. Any atomic load is a plain `mov` there, and the processor keeps loads in order, so `SeqCst` costs nothing more
//! than `Relaxed` would. The compiler may merge neither order into loads of vectors. So a READ of a few words costs a load and a store for each. On other
//! processors `SeqCst` loads take the instruction that the order needs (`ldar`).
//!
//! READs of [`FEWEST_IN_PAIRS`] words and more load two at a time where they can ([`load_in_pairs`]). Processors with AVX load 16 aligned bytes of
//! cacheable memory as a whole: the manuals of AMD ("Access Atomicity") and Intel ("Guaranteed Atomic Operations") promise it. So both words are of one
//! moment, and the order between loads is as before, with half the loads and stores. The loads are instructions of assembly, since Rust
//! has no atomic type of 16 bytes. READs that begin at an odd word, other processors, and Miri, which knows no assembly, get single words.
//!
//! | module | contents |
//! |---|---|
//! | `arena` | the mapping of all segments, and its bounds check |
//! | `delayed` | the same memory with delayed completions, for tests |
//! | `mapping` | mappings of shared memory on huge pages |
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
mod mapping;
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

/// READs of fewer words gain nothing from [`load_in_pairs`].
pub const FEWEST_IN_PAIRS: usize = 8;

/// Loads words into `into`, in address order: see [the module](self#the-order-of-a-read).
///
/// # Panics
/// If there are fewer words in `into`.
#[inline]
pub fn load<'a>(words: &[AtomicU64], into: &'a mut [MaybeUninit<u64>]) -> &'a [u64] {
    load_by(load_each, words, into)
}

/// Like [`load`], for many words: in pairs if possible, and by a call, or the compiler would make a variable of each, and copy all from one place of the
/// stack to another.
///
/// # Panics
/// Like [`load`].
#[inline]
pub fn load_many<'a>(words: &[AtomicU64], into: &'a mut [MaybeUninit<u64>]) -> &'a [u64] {
    load_by(load_pairs, words, into)
}

/// Loads words by a function that writes as many elements as there are words. The slices have the same length, which the compiler mostly knows.
#[inline(always)]
#[allow(clippy::inline_always)] // it is the body of two functions
fn load_by<'a>(
    load: impl FnOnce(&[AtomicU64], &mut [MaybeUninit<u64>]),
    words: &[AtomicU64],
    into: &'a mut [MaybeUninit<u64>],
) -> &'a [u64] {
    let into = &mut into[..words.len()];
    load(words, into);
    // SAFETY: `into` is as long as `words`, and `load` is `load_each` or `load_pairs`, which write each of its elements, alone or as one of a pair.
    // `MaybeUninit<u64>` has the layout of `u64`. The mutable borrow of `into` lasts as long as the returned slice, so no code can make an element
    // uninitialised again while it is read.
    unsafe { &*(std::ptr::from_ref::<[MaybeUninit<u64>]>(into) as *const [u64]) }
}

/// Loads words one by one.
///
/// The first ones are loaded without a loop. A loop of a constant number of rounds is unrolled late with fat link-time optimisation, and until then its
/// results are in memory: a step of a pointer chase took twice as long.
#[inline(always)]
#[allow(clippy::inline_always)] // their number is often a constant of a type
fn load_each(words: &[AtomicU64], into: &mut [MaybeUninit<u64>]) {
    macro_rules! without_loop {
        ($words:expr, $into:expr;) => {
            for (to, word) in $into.iter_mut().zip($words) {
                to.write(word.load(Ordering::SeqCst));
            }
        };
        ($words:expr, $into:expr; $_:literal $($rest:literal)*) => {
            if let ([word, words @ ..], [to, into @ ..]) = ($words, $into) {
                to.write(word.load(Ordering::SeqCst));
                without_loop!(words, into; $($rest)*);
            }
        };
    }
    without_loop!(words, into; 1 2 3 4 5 6 7);
}

/// Like [`load`], in pairs if possible.
///
/// # Panics
/// Like [`load`].
#[inline(always)]
#[allow(clippy::inline_always)] // as `load_each`
pub fn load_in_pairs<'a>(words: &[AtomicU64], into: &'a mut [MaybeUninit<u64>]) -> &'a [u64] {
    load_by(load_pairs_here, words, into)
}

/// Loads words in pairs if possible, by a call.
#[inline(never)]
fn load_pairs(words: &[AtomicU64], into: &mut [MaybeUninit<u64>]) {
    load_pairs_here(words, into);
}

/// Loads words in pairs if possible.
#[inline(always)]
#[allow(clippy::inline_always)] // it is the body of two functions
fn load_pairs_here(words: &[AtomicU64], into: &mut [MaybeUninit<u64>]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if pairs::are_possible(words) {
        let (fours, words) = words.as_chunks();
        let (into_fours, into) = into.as_chunks_mut();
        for (to, four) in into_fours.iter_mut().zip(fours) {
            // SAFETY: the pairs are possible.
            unsafe { pairs::load_four(four, to) };
        }
        let (pairs, odd) = words.as_chunks();
        let (into_pairs, into_odd) = into.as_chunks_mut();
        for (to, pair) in into_pairs.iter_mut().zip(pairs) {
            // SAFETY: the pairs are possible.
            unsafe { pairs::load(pair, to) };
        }
        return load_each(odd, into_odd);
    }
    load_each(words, into);
}

/// Two words by one load: see [the module](self#the-order-of-a-read).
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod pairs {
    use std::arch::asm;
    use std::arch::x86_64::__m128i;
    use std::mem::MaybeUninit;
    use std::sync::atomic::AtomicU64;

    /// Returns whether the words are pairs from the first one on, and this processor loads a pair as a whole.
    #[inline(always)]
    #[allow(clippy::inline_always)] // it is a step of a READ
    pub(super) fn are_possible(words: &[AtomicU64]) -> bool {
        words.as_ptr().addr().is_multiple_of(size_of::<__m128i>())
            && std::arch::is_x86_feature_detected!("avx")
    }

    /// Loads two words.
    ///
    /// # Safety
    /// They are one of the pairs of words for which [`are_possible`] has returned `true`.
    #[inline(always)]
    #[allow(clippy::inline_always)] // it is one instruction
    pub(super) unsafe fn load(words: &[AtomicU64; 2], into: &mut [MaybeUninit<u64>; 2]) {
        let pair: __m128i;
        // SAFETY: the instruction reads the 16 bytes of `words`, which are aligned (the function's contract), and accesses nothing else. Other threads
        // may write them: this processor loads them as a whole (the contract), so the block is an atomic load of each of the two words. The compiler
        // assumes that it accesses all memory, and keeps it in its place between other loads and stores.
        unsafe {
            asm!("movdqa {pair}, [{words}]", words = in(reg) words, pair = lateout(xmm_reg) pair, options(nostack, preserves_flags));
        }
        store(pair, into);
    }

    /// Loads four pairs of words, in address order.
    ///
    /// # Safety
    /// Like [`load`].
    #[inline(always)]
    #[allow(clippy::inline_always)] // it is four instructions
    pub(super) unsafe fn load_four(words: &[AtomicU64; 8], into: &mut [MaybeUninit<u64>; 8]) {
        let pairs: [__m128i; 4];
        // SAFETY: as in `load`, of each of the four instructions: they read the 64 bytes of `words`, and the processor keeps loads in order.
        unsafe {
            let (first, second, third, fourth);
            asm!(
                "movdqa {first}, [{words}]",
                "movdqa {second}, [{words} + 16]",
                "movdqa {third}, [{words} + 32]",
                "movdqa {fourth}, [{words} + 48]",
                words = in(reg) words,
                first = out(xmm_reg) first,
                second = out(xmm_reg) second,
                third = out(xmm_reg) third,
                fourth = out(xmm_reg) fourth,
                options(nostack, preserves_flags)
            );
            pairs = [first, second, third, fourth];
        }
        for (to, pair) in into.as_chunks_mut().0.iter_mut().zip(pairs) {
            store(pair, to);
        }
    }

    /// Writes a loaded pair.
    #[inline(always)]
    #[allow(clippy::inline_always)] // it is one instruction
    fn store(pair: __m128i, into: &mut [MaybeUninit<u64>; 2]) {
        // SAFETY: `into` has 16 bytes, borrowed mutably, and any bytes are allowed in it. The write needs no alignment.
        unsafe { std::ptr::from_mut(into).cast::<__m128i>().write_unaligned(pair) };
    }
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

    /// Tells the processor that words will be accessed, so that they come to its cache in parallel with others. Words out of bounds are none.
    #[inline]
    pub fn prefetch(&self, at: Address, count: usize) {
        if let Ok(words) = self.words(at, count) {
            crate::prefetch(words);
        }
    }

    /// Reads a word.
    #[inline]
    pub fn read_word(&self, at: Address) -> Result<u64> {
        Ok(self.arena.word(at)?.load(Ordering::SeqCst))
    }

    /// Writes words in address order: each is visible after those before it.
    #[inline]
    pub fn write(&self, at: Address, words: &[u64]) -> Result<()> {
        self.write_each(at, words.iter().copied())
    }

    /// The same for words of an iterator.
    #[inline]
    pub fn write_each(&self, at: Address, words: impl ExactSizeIterator<Item = u64>) -> Result<()> {
        let target = self.arena.words(at, words.len())?;
        let order = if words.len() == 1 { Ordering::SeqCst } else { Ordering::Release };
        for (to, from) in target.iter().zip(words) {
            to.store(from, order);
        }
        Ok(())
    }

    /// The value of a word on which threads sleep, and its value once they are to wake.
    pub const ASLEEP: u64 = 1;
    /// See [`ASLEEP`](Self::ASLEEP).
    pub const AWAKE: u64 = 0;

    /// Compares and exchanges a word for a thread that does not map the memory. If that replaces [`ASLEEP`](Self::ASLEEP) by [`AWAKE`](Self::AWAKE), threads that
    /// sleep on the word wake: only a process that maps the memory can wake them. Returns the previous value.
    pub fn exchange_for_others(&self, at: Address, expected: u64, new: u64) -> Result<u64> {
        let old = self.compare_exchange(at, expected, new)?;
        if old == expected && (expected, new) == (Self::ASLEEP, Self::AWAKE) {
            self.wake(at);
        }
        Ok(old)
    }

    /// Puts the thread to sleep while a word is [`ASLEEP`](Self::ASLEEP), for `most` at most, until a process [wakes](Self::wake) it.
    pub fn sleep_on(&self, at: Address, most: Duration) {
        #[cfg(target_os = "linux")]
        self.arena.sleep_on(at, Self::ASLEEP as u32, most);
        // There are no other processes elsewhere, and this is short enough for its threads.
        #[cfg(not(target_os = "linux"))]
        if self.read_word(at).is_ok_and(|word| word == Self::ASLEEP) {
            sleep(most.min(Duration::from_micros(100)));
        }
    }

    /// Wakes the threads that sleep on a word.
    pub fn wake(&self, at: Address) {
        #[cfg(target_os = "linux")]
        self.arena.wake(at);
        #[cfg(not(target_os = "linux"))]
        let _ = at;
    }

    /// Returns the memory.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Loads of so many words from the `start`th on, by each function.
    fn loads(words: &[AtomicU64], start: usize, count: usize) -> [Vec<u64>; 3] {
        [load, load_in_pairs, load_many].map(|load| {
            let mut into = [const { MaybeUninit::uninit() }; 70];
            load(&words[start..start + count], &mut into).to_vec()
        })
    }

    #[test]
    fn any_number_of_words_is_loaded_from_any_word_on() {
        let words: [AtomicU64; 70] = std::array::from_fn(|index| AtomicU64::new(index as u64));
        for (start, count) in (0..4).flat_map(|start| (0..=66).map(move |count| (start, count))) {
            let expected: Vec<u64> = (start..start + count).map(|index| index as u64).collect();
            for found in loads(&words, start, count) {
                assert_eq!(found, expected, "{count} from {start}");
            }
        }
    }

    /// Returns whether a thread of this process sleeps in the kernel.
    #[cfg(target_os = "linux")]
    fn sleeps(thread: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('S')
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_exchange_for_others_wakes_threads_that_sleep_on_the_word() {
        use std::sync::atomic::AtomicI32;
        use std::time::Instant;

        const MOST: Duration = Duration::from_secs(20);
        let geometry = farfield_words::Geometry::new(1, 1, 64 << 10).unwrap();
        let (host, at) = (Host::new(Arc::new(Arena::new(geometry).unwrap())), Address::new(0, 4096));
        host.write(at, &[Host::ASLEEP]).unwrap();
        let sleeper = AtomicI32::new(0);
        let slept = std::thread::scope(|scope| {
            let sleeping = scope.spawn(|| {
                sleeper.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
                let began = Instant::now();
                host.sleep_on(at, MOST);
                began.elapsed()
            });
            while sleeper.load(Ordering::SeqCst) == 0 || !sleeps(sleeper.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
            assert_eq!(host.exchange_for_others(at, 7, Host::AWAKE).unwrap(), Host::ASLEEP, "no exchange");
            assert!(sleeps(sleeper.load(Ordering::SeqCst)));
            assert_eq!(host.exchange_for_others(at, Host::ASLEEP, Host::AWAKE).unwrap(), Host::ASLEEP);
            sleeping.join().unwrap()
        });
        assert!(slept < MOST, "it was woken");
    }

    /// The writer changes the last word first, so at any time no word is older than the one before it.
    #[test]
    fn no_word_is_older_than_the_one_loaded_before_it() {
        let (words, has_ended) = ([const { AtomicU64::new(0) }; 67], AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1.. {
                    words.iter().rev().for_each(|word| word.store(round, Ordering::Release));
                    if has_ended.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            // Loads that the writer has overtaken.
            let (mut changed, mut last) = (0, 0);
            while changed < 5_000 {
                for (start, count) in [(0, 8), (1, 9), (0, 67), (1, 66)] {
                    for found in loads(&words, start, count) {
                        if !found.is_sorted() {
                            has_ended.store(true, Ordering::Relaxed);
                            panic!("{found:?}");
                        }
                        changed += u32::from(found[0] != last);
                        last = found[0];
                    }
                }
            }
            has_ended.store(true, Ordering::Relaxed);
        });
    }
}
