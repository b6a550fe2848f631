//! A key-value engine for more data than memory: an index and some of the pages are in local memory, under a budget, and all pages in far memory.
//!
//! Values lie in *pages* of 16 KiB, one after the other. Each thread adds records to a page of its own, which is in local memory meanwhile; a new value of a key is a new record, and the
//! old one is dead. A page with many dead records is *rebuilt*: its live ones are added to another page.
//!
//! | module | contents |
//! |---|---|
//! | `store` | what compute threads do: reading, writing, deleting, rebuilding |
//! | `open` | the index is made of the pages, when a store is opened |
//! | `pages` | pages in far memory, and what of them is in local memory |
//! | `lists` | lists of pages |
//! | `tally` | numbers that each operation changes, in a part for each thread |
//! | `index` | where the record of each key is |
//! | `handle` | the store for any thread and any executor |
//! | `record` | a key and its value, as they lie in a page; encryption |
//!
//! # What is promised
//!
//! 1. **One process** has a store, all of its compute threads share it, and operations on a key are linearizable: a write takes effect when the index leads to its record.
//! 2. **A write that has returned is not lost** when the process is killed, nor is it undone: its record, and the state of the one that it replaces, were posted in this order before it returned. On
//!    `local:` and `shm:`, what is posted is in far memory. On other fabrics the last writes of a process that is killed may never arrive: wait for them by [`flush`](Store::flush) where that matters, in all threads
//!    that have written the same keys meanwhile. If a memory node can not be reached, the store refuses all operations until it is opened again: posted WRITEs may be lost, and later ones not.
//! 3. **The budget** of local memory is kept: the index, what is known of each page, what is kept of pages, and the buffers of operations that have the size of a page. What is not counted is what operations need
//!    for themselves besides, less than 12 KiB each and three times the value. New keys are refused before the index takes what changes of the others need.
//! 4. **A dropped future** has changed its key or not; the store works on. If it was rebuilding a page, that page's far memory may be lost until [it is collected](farfield::Cluster::collect).
//! 5. **A nonce is used once**, also if the store is opened again: it has the number of the opening, which is counted in far memory, and that of the record.
//!
//! # Why a rebuild misses no update, and a death undoes none
//!
//! A record is added, and the one that it replaces is buried, under the lock of its segment of the index: so operations on a key change far memory in the order in which they change the index, and a rebuild copies no
//! record that another write has replaced. Of the live records of a key in far memory, one is that of the last operation that has returned, and one at most is being written.
//!
//! On fabrics where WRITEs overtake each other, three rules keep that order. A record that another thread has added is buried when it has arrived. A record in another segment than the one that replaces it
//! is buried when that has arrived. And a page is freed when all of its records are dead in far memory. Readers that have found a place in it have a guard, which protects it,
//! and its number: no other page has that before they have dropped their guards.
//!
//! # What it costs
//!
//! | operation | round trips |
//! |---|---|
//! | `read` | 0 if the record is in local memory, else 1 |
//! | `write` | 0, or 1 to compare the key of an old record that is not in local memory, for which its first 24 bytes are read, 40 if it is encrypted; one in a hundred opens a page: 3 more. On networks, 1 more if the old record is in another segment of far memory, or another thread has just written it |
//! | `delete` | as `write` |
//! | opening | 1 for each 16 pages |
//!
//! Where far memory is memory of this process, most of an operation's time are cache misses. A program that knows its next requests gives hints ([`Store::hint`]); `get_many` and rebuilds have some of their
//! own.
//!
//! A record takes 8 bytes besides its key and value, up to a multiple of 8; 32 more if it is encrypted. The index takes some 18 bytes of local memory a record.
//!
//! ```
//! use farfield::prelude::*;
//! use farfield_kv::{Options, Store};
//!
//! # fn main() -> farfield::Result<()> {
//! Cluster::connect("local:")?.run(1, async |ct| {
//!     let options = Options::new(1 << 20, 8 << 20);
//!     let store = Store::open("people", &options, ct).await?;
//!     store.write(b"0123456789abcdef", b"Ada", false, ct).await?;
//!     assert_eq!(store.read(b"0123456789abcdef", ct).await?.as_deref(), Some(&b"Ada"[..]));
//!     assert!(store.delete(b"0123456789abcdef", ct).await?);
//!     Ok(())
//! })?;
//! # Ok(())
//! # }
//! ```

mod error;
#[cfg(any(fuzzing, test))]
mod exercise;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handle;
mod index;
mod lists;
mod open;
mod options;
mod pages;
mod record;
mod store;
mod tally;

pub use handle::FarStore;
pub use open::Opened;
pub use options::{Options, Stats};
pub use pages::FarPage;
pub use record::{KEY_BYTES, MOST_VALUE_BYTES};
pub use store::{Hint, Store, StoreRoot};
