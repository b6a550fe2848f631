//! The meaning of the library's own words, given by the layer above.
//!
//! The simulator judges accesses to objects, of which it hears when they are allocated and freed. Of the words outside objects it knows
//! nothing by itself; a trace names them, and a report says who claims which name, through this trait.

use farfield_words::{Address, ThreadId};

/// What the words outside objects mean.
pub trait Meaning: Send {
    /// True if objects may be at an address; else it is one of the library's own words.
    fn is_heap(&self, at: Address) -> bool;

    /// What one of the library's own words is called: `epoch`, `chunk[3]`.
    fn name(&self, at: Address) -> String;

    /// True for words whose reading again and again is no loop of the program's.
    fn is_bookkeeping(&self, at: Address) -> bool;

    /// True for the words of epochs: what changes there is no progress of the program's.
    fn is_of_epochs(&self, at: Address) -> bool;

    /// True if a word that is written there claims a name for a thread.
    fn is_claim(&self, at: Address, word: u64) -> bool;

    /// The names that are claimed: the claim's address, the name, the thread.
    fn claims(&self, load: &dyn Fn(Address) -> u64) -> Vec<(Address, String, ThreadId)>;
}

/// Memory without objects and names: for tests of the fabric alone.
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
