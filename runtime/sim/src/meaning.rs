//! The meaning of the library's own words, which the layer above implements.
//!
//! The simulator checks accesses to objects, whose allocation and freeing [`Watch`](crate::Watch) reports. It knows nothing about words outside
//! objects. Through this trait a trace names them, and a report lists the threads that claim names.

use farfield_words::{Address, ThreadId};

/// The meaning of words outside objects.
pub trait Meaning: Send {
    /// Returns whether objects may be at an address; if not, the address is one of the library's own words.
    fn is_heap(&self, at: Address) -> bool;

    /// Returns the name of one of the library's own words: `epoch`, `chunk[3]`.
    fn name(&self, at: Address) -> String;

    /// Returns whether repeated accesses to the word are the library's own, not a loop of the program.
    fn is_bookkeeping(&self, at: Address) -> bool;

    /// Returns whether the word belongs to epochs: its changes are no progress of the program.
    fn is_of_epochs(&self, at: Address) -> bool;

    /// Returns whether the word, written at this address, claims a name for a thread.
    fn is_claim(&self, at: Address, word: u64) -> bool;

    /// Returns the claimed names: the claim's address, the name, the thread.
    fn claims(&self, load: &dyn Fn(Address) -> u64) -> Vec<(Address, String, ThreadId)>;
}

/// Memory without objects and names, for tests of the fabric alone.
#[derive(Clone, Copy, Debug)]
pub struct NoMeaning;

impl Meaning for NoMeaning {
    fn is_heap(&self, _: Address) -> bool {
        true
    }

    fn name(&self, _: Address) -> String {
        "word".to_owned()
    }

    fn is_bookkeeping(&self, _: Address) -> bool {
        false
    }

    fn is_of_epochs(&self, _: Address) -> bool {
        false
    }

    fn is_claim(&self, _: Address, _: u64) -> bool {
        false
    }

    fn claims(&self, _: &dyn Fn(Address) -> u64) -> Vec<(Address, String, ThreadId)> {
        Vec::new()
    }
}
